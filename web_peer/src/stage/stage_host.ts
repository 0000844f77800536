/*
 * This peer as a stage: what its core decides is done, and what its units computed is told to the core (twin of
 * peer/stage/stage_host.py). Edge; models run in the workers of unit_host.ts.
 */

import { bundled } from '../wire/bundles';
import type { Frame } from '../wire/generated/frames';
import type { NotRan, Ran, RunStep, StageEffect } from '../session/effects';
import { BadCommand, PeerError } from '../errors';
import type { ModelView } from '../replication/decoder_view';
import type { Seat } from '../session/seat';
import { StageCore } from '../session/stage';
import { askerOf } from '../state/conversations';
import { countedMilli, mayAsk } from '../state/fairness';
import type { Journal } from '../storage/journal';
import type { PeerLinks } from '../transport/peer_links';
import { nowS } from '../transport/ticker';
import { Queue } from './seat_waiting';
import type { Serving } from './unit_host';
import type { KvCopyAnswer, KvCopyRequest } from '../wire/generated/requests';

type Links = Pick<PeerLinks, 'me' | 'sendOrLose' | 'spare'>;
type View = Pick<ModelView, 'state' | 'subscribe'>;

/** How caches of sessions come here and go to others. */
export interface CacheCopies {
  /** Begins to copy the cache of a seat that warms; false: there is nothing to copy. */
  bring(seat: Seat): boolean;
  /** The answer to `kv_copy`. Raises BadCommand. */
  lend(peer: string, said: KvCopyRequest): Promise<KvCopyAnswer>;
}

/** The stages of this peer: its core, the line for seats, and the units once it lends. */
export class StageHost {
  readonly core: StageCore;
  readonly queue: Queue; // those who wait for a seat here
  private readonly me: string;
  private readonly links: Links;
  private readonly view: View;
  private loaded: Serving | null = null;
  private journal: Journal | null = null; // null: nothing is computed here
  private copies: CacheCopies | null = null;
  private notedTokens = 0;
  private readonly touched = new Set<() => void>();
  private readonly whenStep = new Set<(step: RunStep) => void>();

  constructor(links: Links, view: View) {
    this.me = links.me;
    this.links = links;
    this.view = view;
    this.core = new StageCore(links.me, {
      authorOf: (session) => askerOf(view.state.conversations, session),
      mayAsk: (origin) => mayAsk(view.state.fairness, view.state.ledger, origin),
      owedMilli: (origin) => countedMilli(view.state.fairness, view.state.ledger, origin),
      bring: (seat) => this.copies?.bring(seat) === true,
      positionBytes: (run) => this.loaded?.positionBytes(run) ?? 0,
    });
    this.queue = new Queue(this.core);
    view.subscribe(() => this.protect());
    this.protect();
  }

  /** The connection to `peer` has no room for more frames, or has room again. */
  congestion(peer: string, full: boolean): void {
    this.perform(this.core.congestion(peer, full));
  }

  /** The connection to `peer` ended. */
  gone(peer: string): void {
    this.perform(this.core.peerGone(nowS(), peer));
  }

  /** The units that run here; null: this peer only asks. */
  get units(): Serving | null {
    return this.loaded;
  }

  /** Computes with `units` from here on, and keeps what happens to sessions in `journal`. */
  lend(units: Serving, journal: Journal): void {
    this.loaded = units;
    this.journal = journal;
  }

  /** From here on caches of sessions are copied by `copies`; null: no more. */
  copyBy(copies: CacheCopies | null): void {
    this.copies = copies;
  }

  /** The answer to `kv_copy`. Raises BadCommand. */
  async lendCache(peer: string, said: KvCopyRequest): Promise<KvCopyAnswer> {
    if (this.copies === null) throw new BadCommand('kv_copy: expected a session that is computed here');
    return this.copies.lend(peer, said);
  }

  /** Calls `listener` before a step is computed, until the result is called. */
  onStep(listener: (step: RunStep) => void): () => void {
    this.whenStep.add(listener);
    return () => this.whenStep.delete(listener);
  }

  /** Does what a stage decided. */
  perform(effects: readonly StageEffect[]): void {
    const sends = new Map<string, Frame[]>();
    for (const effect of effects) {
      if (effect.kind !== 'send') continue;
      const frames = sends.get(effect.peer) ?? [];
      frames.push(effect.frame);
      sends.set(effect.peer, frames);
    }
    for (const [peer, frames] of sends) {
      const together = peer === this.me || frames.length === 1 ? frames : bundled(frames);
      for (const frame of together) this.links.sendOrLose(peer, frame);
    }
    for (const effect of effects) {
      switch (effect.kind) {
        case 'send':
          break;
        case 'spare':
          this.links.spare(effect.peer, effect.frame);
          break;
        case 'runStep':
          this.submit(effect);
          break;
        case 'freeSlot':
          this.running().free(effect);
          break;
        case 'prefixWork':
          this.running().front(effect);
          break;
        default:
          effect satisfies never;
      }
    }
    this.note();
    this.touch();
  }

  /** The worker finished or refused steps. */
  results(results: readonly (Ran | NotRan)[]): void {
    this.perform(results.flatMap((result) => this.resultOf(result)));
  }

  /** Called often: leases and other deadlines of sessions may be over. */
  tick(): void {
    this.perform(this.core.tick(nowS()));
    this.queue.look();
  }

  /** Waits until no session is being answered on this peer's stages. */
  async idle(): Promise<void> {
    while (this.core.active() > 0) {
      await new Promise<void>((resolve) => this.touched.add(resolve));
    }
  }

  // --- inner moves

  private running(): Serving {
    if (this.loaded === null) throw new BadCommand('this peer runs no units');
    return this.loaded;
  }

  private submit(step: RunStep): void {
    const units = this.running();
    if (units.runtime(step.run) !== null) for (const listener of [...this.whenStep]) listener(step);
    units.submit(step);
  }

  private resultOf(result: Ran | NotRan): StageEffect[] {
    if ('reason' in result) return this.core.notRan(nowS(), result);
    try {
      return this.core.ran(nowS(), result);
    } catch (error) {
      if (!(error instanceof PeerError)) throw error;
      const { run, session, epoch, position } = result;
      const text = error.message;
      // It ends this session, and no other whose result came along.
      return this.core.notRan(nowS(), { run, session, epoch, position, have: 0, reason: 'failed', text });
    }
  }

  /** Tells the transaction log what happened to sessions here. */
  private note(): void {
    const notes = this.core.notes();
    if (this.journal === null) return;
    for (const { what, session, stage } of notes) {
      switch (what) {
        case 'opened':
          this.journal.opened(session, stage);
          break;
        case 'taken over':
          this.journal.tookOver(session, stage);
          break;
        case 'closed':
          this.journal.closed(session, stage);
          break;
        default:
          what satisfies never;
      }
    }
    const fresh = this.core.tokensSampled - this.notedTokens;
    if (fresh > 0) this.journal.tokens(fresh);
    this.notedTokens = this.core.tokensSampled;
  }

  /** Keeps to the mesh's protection settings. */
  private protect(): void {
    const { shadow, logSessionBytes, logTotalBytes } = this.view.state.protection;
    this.core.protect(shadow === 'log', logSessionBytes, logTotalBytes);
  }

  private touch(): void {
    for (const wake of [...this.touched]) {
      this.touched.delete(wake);
      wake();
    }
  }
}
