/*
 * Decides what this tab is: the one of its profile that lends, or a viewer that asks until the first one closes; when
 * it pauses lending (hidden, frozen, offline, battery low); and when it tries again to come in. Edge.
 *
 * One tab of a profile computes for this server's meshes at a time, by a Web Lock that the browser frees with the tab.
 */

import type { PieceCache } from '../model/piece_cache';
import { MeshError, NotAdmitted, textOf } from '../errors';
import { type KeptIdentity, keptIdentity, viewerIdentity } from '../storage/peer_keys';
import { join, type JoinOptions, type Times } from './joining';
import { passes, retryPauseMs } from './join_retry';
import type { Decoder } from '../planner/manifest';
import type { MeshMember } from './mesh_member';
import { type JoinPhase, phaseOf } from './progress';
import type { Patience } from '../coordination/voter_policy';

const LOCK = 'shoal-lends';
const HIDDEN_GRACE_MS = 20_000; // a glance at another tab is no reason to move units
const BATTERY_LOW = 0.2;
export const ASKED = 'paused by hand';
const FROZEN = 'the browser froze the tab';
const HIDDEN = 'the tab is hidden';
const OFFLINE = 'the network is gone';
const HARD: ReadonlySet<string> = new Set([ASKED, FROZEN, OFFLINE]); // the others drain: it serves if nobody else can
const TAKE_OVER_LOOK_MS = 500;

export type TabState =
  | { readonly kind: 'joining' }
  | { readonly kind: 'in'; readonly mesh: MeshMember }
  | { readonly kind: 'waiting'; readonly error: unknown; readonly untilMs: number } // to try again, by performance.now
  | { readonly kind: 'out'; readonly error: unknown; readonly left: boolean };

/** What the person chose, and how this browser computes. */
export interface TabOptions {
  readonly name: string;
  readonly memoryBytes: number;
  readonly lends: boolean; // false: only asks
  readonly relayOnly?: boolean; // others see the address of the mesh's relay, never that of this device
  readonly cache: PieceCache;
  readonly measure: (decoder: Decoder, signal: AbortSignal) => Promise<Times>;
  readonly hiddenGraceMs?: number; // how long it may be hidden before it says so
  readonly patience?: Patience; // before members vote, when this tab leads
}

export interface TabEvents {
  /** Look again. */
  changed(): void;
  notice(text: string): void;
}

/** One tab with the link of a mesh: joins, lends or views, pauses, and ends when it is closed. */
export class Tab {
  state: TabState = { kind: 'joining' };
  phase: JoinPhase = phaseOf('connect');
  viewer = false; // another tab of this profile lends
  private readonly link: string;
  private options: TabOptions;
  private readonly events: TabEvents;
  private readonly closed = new AbortController();
  private hurry: (() => void) | null = null; // ends the pause before the next try
  private freeLock: (() => void) | null = null;
  private reasons: ReadonlySet<string> = new Set(); // why lending pauses, in words
  private pausing: Promise<void> = Promise.resolve();

  constructor(link: string, options: TabOptions, events: TabEvents) {
    this.link = link;
    this.options = options;
    this.events = events;
  }

  /** The mesh while this tab is in it. */
  get mesh(): MeshMember | null {
    return this.state.kind === 'in' ? this.state.mesh : null;
  }

  /** Comes in, or ends where trying again is of no use; `state` says how it goes. Never raises. */
  async start(): Promise<void> {
    this.watchSurroundings();
    await this.enter();
  }

  /** Tries again after it ended, or at once where it waits. */
  async retry(): Promise<void> {
    this.hurry?.();
    if (this.state.kind === 'out') await this.enter();
  }

  /** Stops lending until `resume`, as the person wishes. */
  pause(): void {
    this.because(ASKED, true);
  }

  resume(): void {
    this.reasons = new Set();
    this.settle();
  }

  setPledge(bytes: number): void {
    this.options = { ...this.options, memoryBytes: bytes };
    this.mesh?.lending.setPledge(bytes).catch((error: unknown) => this.events.notice(textOf(error)));
  }

  /** Is called `name` from now on, here and where it comes in again. */
  rename(name: string): void {
    this.options = { ...this.options, name };
    this.mesh?.rename(name).catch((error: unknown) => this.events.notice(textOf(error)));
  }

  /** Leaves politely; lets another tab of this profile take over. */
  async leave(): Promise<void> {
    const { mesh } = this;
    this.become({ kind: 'out', error: null, left: true });
    this.hurry?.();
    await mesh?.leave('left');
    this.release();
  }

  /** The page goes: what can still be said is said. */
  close(): void {
    this.closed.abort();
    const { mesh } = this;
    mesh?.leadership.current?.farewell();
    if (mesh !== null) void mesh.leave('the tab was closed');
    this.release();
  }

  // --- coming in

  private async enter(): Promise<void> {
    for (let failed = 1; ; failed += 1) {
      this.phase = phaseOf('connect');
      this.become({ kind: 'joining' });
      const mine = this.options.lends && (await this.takeLock());
      this.viewer = this.options.lends && !mine;
      const error = await this.comeIn(mine);
      if (error === null) break;
      if (!passes(error)) {
        this.become({ kind: 'out', error, left: false });
        break;
      }
      const pauseMs = retryPauseMs(failed);
      this.become({ kind: 'waiting', error, untilMs: performance.now() + pauseMs });
      await this.pauseFor(pauseMs);
      if (this.gone()) break;
    }
    if (this.viewer && this.state.kind === 'in') void this.takeOver();
  }

  /** Until `ms` are over, a person or the network wishes it at once, or the tab ends. */
  private pauseFor(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.closed.signal.removeEventListener('abort', end);
        this.hurry = null;
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.closed.signal.addEventListener('abort', end);
      this.hurry = end;
    });
  }

  /** Why it failed; null: it is in, or was meant to end meanwhile. */
  private async comeIn(mine: boolean): Promise<unknown> {
    const { name, cache, memoryBytes, measure, lends, patience, relayOnly = false } = this.options;
    const identity = (mesh: string): Promise<KeptIdentity> =>
      // One key, one tab: whoever only asks has another one, or it would put the tab that lends out.
      (mine ? keptIdentity : viewerIdentity)(mesh, (text) => this.events.notice(text));
    const why = lends ? 'another tab of this browser lends already' : 'you chose to ask only';
    const options: JoinOptions = {
      name,
      identity,
      cache,
      lends: mine ? { memoryBytes, measure } : { why },
      relayOnly,
      ...(patience === undefined ? {} : { patience }),
    };
    try {
      const mesh = await join(this.link, options, {
        changed: () => this.events.changed(),
        phase: (phase) => {
          this.phase = phase;
          this.events.changed();
        },
        notice: (text) => this.events.notice(text),
      });
      mesh.onEnded(() => {
        if (this.mesh !== mesh) return;
        this.release();
        const error = new MeshError(mesh.ended ?? 'the mesh ended');
        this.become({ kind: 'out', error, left: false });
      });
      if (this.gone()) await mesh.leave('left while it came in');
      else if (mesh.ended === null) this.become({ kind: 'in', mesh });
      else this.become({ kind: 'out', error: new MeshError(mesh.ended), left: false });
      this.settle();
      return null;
    } catch (error) {
      this.release();
      return this.gone() ? null : error;
    }
  }

  /** Whether the person left, or the page went, while this tab was coming in. */
  private gone(): boolean {
    return this.closed.signal.aborted || this.state.kind === 'out';
  }

  private become(state: TabState): void {
    this.state = state;
    this.events.changed();
  }

  // --- one tab lends

  /** Whether this tab is the one that lends; it holds the lock until `release`. */
  private takeLock(): Promise<boolean> {
    if (this.freeLock !== null) return Promise.resolve(true);
    const { locks } = navigator as { readonly locks?: LockManager }; // absent without a secure context
    if (locks === undefined) return Promise.resolve(true);
    return new Promise((resolve) => {
      void locks.request(LOCK, { ifAvailable: true }, (lock) => {
        if (lock === null) {
          resolve(false);
          return undefined;
        }
        return this.hold(() => resolve(true));
      });
    });
  }

  private hold(held: () => void): Promise<void> {
    return new Promise((free) => {
      this.freeLock = free;
      held();
    });
  }

  private release(): void {
    this.freeLock?.();
    this.freeLock = null;
  }

  /** Waits for the tab that lends to close, then lends in its place, as the same peer. */
  private async takeOver(): Promise<void> {
    await new Promise<void>((resolve) => {
      navigator.locks
        .request(LOCK, { signal: this.closed.signal }, () => this.hold(resolve))
        .catch(() => resolve());
    });
    while (this.mesh !== null && this.mesh.isAnswering()) {
      await new Promise((resolve) => setTimeout(resolve, TAKE_OVER_LOOK_MS));
    }
    const { mesh } = this;
    if (this.closed.signal.aborted || mesh === null) {
      this.release();
      return;
    }
    this.become({ kind: 'joining' });
    await mesh.leave('another role');
    this.viewer = false;
    this.events.notice('the other tab is gone: this one lends now');
    await this.enter();
  }

  // --- when lending pauses

  private watchSurroundings(): void {
    const { signal } = this.closed;
    const options = { signal };
    const grace = this.options.hiddenGraceMs ?? HIDDEN_GRACE_MS;
    let hidden: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      clearTimeout(hidden);
      if (document.visibilityState === 'visible') this.because(HIDDEN, false);
      else hidden = setTimeout(() => this.because(HIDDEN, true), grace);
    };
    document.addEventListener('visibilitychange', look, options);
    look(); // it may have been opened behind another
    document.addEventListener('freeze', () => this.because(FROZEN, true), options);
    document.addEventListener('resume', () => this.because(FROZEN, false), options);
    window.addEventListener('offline', () => this.because(OFFLINE, true), options);
    window.addEventListener('online', () => this.because(OFFLINE, false), options);
    window.addEventListener('online', () => this.hurry?.(), options);
    if (!navigator.onLine) this.because(OFFLINE, true);
    window.addEventListener('pagehide', () => this.close(), options);
    void this.watchBattery(signal);
  }

  private async watchBattery(signal: AbortSignal): Promise<void> {
    const { getBattery } = navigator as { readonly getBattery?: () => Promise<Battery> };
    if (getBattery === undefined) return; // Firefox and Safari do not say
    try {
      const battery = await getBattery.call(navigator);
      const look = (): void =>
        this.because('the battery is low', battery.level < BATTERY_LOW && !battery.charging);
      battery.addEventListener('levelchange', look, { signal });
      battery.addEventListener('chargingchange', look, { signal });
      look();
    } catch {
      return; // a policy forbids it
    }
  }

  private because(reason: string, holds: boolean): void {
    const reasons = new Set(this.reasons);
    if (holds) reasons.add(reason);
    else reasons.delete(reason);
    this.reasons = reasons;
    this.settle();
  }

  /** Pauses or resumes lending, one after the other. */
  private settle(): void {
    this.pausing = this.pausing.then(async () => {
      const { mesh } = this;
      const [why] = this.reasons;
      const hard = [...this.reasons].find((reason) => HARD.has(reason));
      try {
        if (hard !== undefined) await mesh?.lending.pause(hard);
        else if (why !== undefined) await mesh?.lending.drain(why);
        else await mesh?.lending.resume();
      } catch (error) {
        if (!(error instanceof NotAdmitted)) this.events.notice(textOf(error));
      }
    });
  }
}

/** Of the Battery Status API, which only some browsers have. */
interface Battery extends EventTarget {
  readonly level: number;
  readonly charging: boolean;
}
