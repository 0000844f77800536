/*
 * This peer's copy of the mesh's log: the consensus core with its clock, its store and the ways to the others (twin of
 * peer/replication/replica.py). Edge.
 *
 * On the page's own thread: a step takes well under a millisecond. `state` is what committed entries build. While the
 * disk is full the core stands still as in a page that was frozen: nothing reaches it and it says nothing, so that
 * others lead; the write is tried again, and it goes on where it was.
 */

import { Core } from '../consensus/core';
import { BadMessage } from '../consensus/errors';
import type { Message } from '../consensus/messages';
import type { Config, Entry, Snapshot } from '../consensus/records';
import {
  type Change,
  type Effect,
  type Event,
  type Persist,
  type Reject,
  type Role,
  type RoleName,
  SETTINGS,
  type Status,
  type StoreSnapshot,
} from '../consensus/events';
import { decode } from '../consensus/message_codec';
import type { Kept } from '../storage/stored_log';
import { BadCommand, DiskFull, NotLeader, textOf, WrongField } from '../errors';
import { applyEntry, decodeState, EMPTY_STATE, encodeState, type MeshState } from '../state/mesh_state';

const RETRY_MS = 1000; // between tries to write what the disk refuses
const COMPACT_ENTRIES = 1024; // in the log since the last snapshot, or
const COMPACT_BYTES = 1 << 20; // so many bytes of them, or as many as that snapshot has
const REASONS: ReadonlyMap<string, string> = new Map([
  ['not_leader', 'another peer coordinates'],
  ['no_leader', 'nobody coordinates now'],
  ['leader_changed', 'another peer coordinates now'],
  ['timeout', 'a majority of the voters did not answer in time'],
  ['transferring', 'the coordinator is handing over'],
  ['not_ready', 'the coordinator has only just begun'],
]); // of the core's refusals, those that another peer or a moment later may lift

/** What a replica starts from: from its store, or with nothing as a joiner. */
export interface Beginning extends Kept {
  readonly mesh: string;
  readonly epoch: number;
  readonly me: string;
}

/** Where the log is kept; durable when a promise resolves. Calls are served one after the other. */
export interface Keeper {
  persist(effect: Persist): Promise<void>;
  storeSnapshot(effect: StoreSnapshot): Promise<void>;
}

export interface ReplicaEvents {
  /** `state` is new. */
  logChanged(): void;
  /** Role, term or leader is new. */
  roleChanged(): void;
  /** The disk refuses for now, and this replica stands still; '': it goes on. */
  logRefused(why: string): void;
  /** The store fails: this replica has stopped, and must never speak again in this incarnation. */
  logLost(why: string): void;
}

/** (term, index) of an entry. */
export type Order = readonly [term: number, index: number];

interface Asked {
  resolve(order: Order): void;
  reject(error: Error): void;
}

/** One copy of the log, of one incarnation of this peer in one epoch of the mesh. */
export class Replica {
  readonly begin: Beginning;
  state: MeshState = EMPTY_STATE;
  order: Order = [0, 0]; // of the last entry that this member obeyed
  role: RoleName = 'follower';
  term: number;
  leader = '';
  private trusted = ''; // a peer whose word is taken though it is no known voter
  ready = false; // to lead: an entry of its own term is committed and applied
  private readonly core = new Core();
  private readonly keeper: Keeper | null;
  private readonly send: (peer: string, message: Message) => void;
  private readonly events: ReplicaEvents;
  private readonly queue: Event[] = [];
  private stepping = false;
  private closed = false;
  private refusal = '';
  private readonly unwritten: (Persist | StoreSnapshot)[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private ctx = 0;
  private readonly asked = new Map<number, Asked>(); // by ctx
  private readonly waiting = new Map<number, { readonly term: number; readonly asked: Asked }>(); // by index
  private readonly under = new Set<Promise<Order>>(); // all of them
  private grownEntries = 0; // applied since the last snapshot
  private grownBytes = 0;
  private snapshotBytes = 0;

  /** `send` may lose what it is given. `keeper` null: nothing outlives this page. */
  constructor(
    begin: Beginning,
    keeper: Keeper | null,
    send: (peer: string, message: Message) => void,
    events: ReplicaEvents,
  ) {
    this.begin = begin;
    this.term = begin.hardState.term;
    this.keeper = keeper;
    this.send = send;
    this.events = events;
  }

  /** Boots the core. Raises BadBoot when what was kept does not fit together. */
  start(): void {
    const { hardState, snapshot, entries, mesh, epoch, me, incarnation } = this.begin;
    const [seed = 1] = crypto.getRandomValues(new Uint32Array(1));
    this.feed({
      kind: 'boot',
      hardState,
      snapshot,
      entries,
      meshId: mesh,
      groupEpoch: epoch,
      me,
      incarnation,
      seed: Math.max(seed, 1),
      settings: SETTINGS,
    });
    this.feed({ kind: 'tick' }); // who votes alone leads at once
  }

  /** Stops; who waits for something gets NotLeader. */
  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.failAll('this peer is leaving');
  }

  // --- use

  /** Takes the word of `peer` from here on, though it is no known voter. */
  trust(peer: string): void {
    this.trusted = peer;
  }

  /** Why the log cannot be written now; '': it can. */
  get refused(): string {
    return this.refusal;
  }

  /** Whether nothing of the log has come yet. */
  get fresh(): boolean {
    return this.core.status.last === 0;
  }

  get epoch(): number {
    return this.begin.epoch;
  }

  get leads(): boolean {
    return this.role === 'leader';
  }

  get status(): Status {
    return this.core.status;
  }

  get config(): Config {
    return this.core.status.config;
  }

  /** (term, index) once it is committed and applied here; NotLeader when that cannot be promised any more. */
  propose(data: Uint8Array): Promise<Order> {
    return this.ask((ctx) => ({ kind: 'propose', data, ctx }));
  }

  /** As `propose`, for a change of the configuration. BadCommand when the core refuses it, for good or for now. */
  change(change: Change): Promise<Order> {
    return this.ask((ctx) => ({ kind: 'change_config', change, ctx }));
  }

  /** Begins to hand leadership over; only failure settles the promise, with an error. */
  transfer(to: string): Promise<Order> {
    return this.ask((ctx) => ({ kind: 'transfer', to, ctx }));
  }

  /** Of the server of that name in the newest configuration; 0: none. */
  incarnationOf(peer: string): number {
    return this.config.byId.get(peer)?.incarnation ?? 0;
  }

  /** Resolves when nothing that was proposed here so far waits any more, whatever became of it. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.under]);
  }

  /** Resolves when `state` holds everything that was committed before the call anywhere. Raises NotLeader. */
  read(): Promise<Order> {
    return this.ask((ctx) => ({ kind: 'read', ctx }));
  }

  /** A connection ended, which may mean that the peer is gone. */
  unreachable(peer: string): void {
    this.feed({ kind: 'unreachable', id: peer });
  }

  /** Takes a CONSENSUS frame. Raises WrongField for one that is no message. */
  received(peer: string, body: Uint8Array): void {
    let message: Message;
    try {
      message = decode(body);
    } catch (error) {
      if (!(error instanceof BadMessage)) throw error;
      throw new WrongField(`CONSENSUS: ${error.message}`);
    }
    if (message.sender !== peer)
      throw new WrongField('CONSENSUS: expected a message of the peer that sent it');
    if (this.maySay(peer, message)) this.feed({ kind: 'received', sender: peer, message });
  }

  /** Voters say all; learners answer their leader, and move no term; others are not heard. */
  private maySay(peer: string, { body, term }: Message): boolean {
    const server = this.config.byId.get(peer);
    if (server?.voter === true || peer === this.trusted) return true;
    const answer = ['append_reply', 'install_reply', 'read_index'].includes(body.kind);
    return server !== undefined && answer && this.leads && term <= this.term;
  }

  // --- the core

  private feed(event: Event): void {
    if (this.refusal !== '') return; // it stands still: messages are lost, and sent again
    this.queue.push(event);
    if (this.stepping) return; // its turn comes when the effects before it are done
    this.stepping = true;
    try {
      for (let next = this.queue.shift(); next !== undefined; next = this.queue.shift()) {
        if (this.closed) return;
        for (const effect of this.core.step(Math.floor(performance.now()), next)) this.perform(effect);
      }
    } finally {
      this.stepping = false;
    }
  }

  private perform(effect: Effect): void {
    switch (effect.kind) {
      case 'persist':
      case 'store_snapshot':
        this.store(effect);
        return;
      case 'send':
        this.send(effect.to, effect.message);
        return;
      case 'apply':
        this.apply(effect.entries);
        return;
      case 'restore':
        this.restore(effect.snapshot);
        return;
      case 'read_ready':
        this.take(effect.ctx)?.resolve([this.term, effect.index]);
        return;
      case 'proposed': {
        const asked = this.take(effect.ctx);
        if (asked !== undefined) this.waiting.set(effect.index, { term: effect.term, asked });
        return;
      }
      case 'role':
        this.become(effect);
        return;
      case 'deadline':
        this.wakeAt(effect.atMs);
        return;
      case 'reject':
        this.rejected(effect);
        return;
      default:
        effect satisfies never;
    }
  }

  /** A defect of who listens must not keep the core's other effects from being carried out. */
  private tell(event: () => void): void {
    try {
      event();
    } catch (error) {
      reportError(error);
    }
  }

  private wakeAt(atMs: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.feed({ kind: 'tick' }), Math.max(0, atMs - performance.now()));
  }

  private store(effect: Persist | StoreSnapshot): void {
    const { token } = effect;
    if (this.keeper === null) {
      this.feed(
        effect.kind === 'persist' ? { kind: 'persisted', token } : { kind: 'snapshot_stored', token },
      );
      return;
    }
    this.unwritten.push(effect);
    if (this.unwritten.length === 1) void this.writeAll(this.keeper);
  }

  /** One after the other; what the disk refuses is tried again, and nothing behind it is written before. */
  private async writeAll(keeper: Keeper): Promise<void> {
    for (let effect = this.unwritten[0]; effect !== undefined && !this.closed; effect = this.unwritten[0]) {
      try {
        await (effect.kind === 'persist' ? keeper.persist(effect) : keeper.storeSnapshot(effect));
      } catch (error) {
        if (!(error instanceof DiskFull)) {
          this.lose(textOf(error));
          return;
        }
        this.refuse(error.message);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        continue;
      }
      const { token } = effect;
      this.goOn();
      this.feed(
        effect.kind === 'persist' ? { kind: 'persisted', token } : { kind: 'snapshot_stored', token },
      );
      this.unwritten.shift();
    }
  }

  /** Nobody is led from here, and nothing is promised, until the disk takes what waits. */
  private refuse(why: string): void {
    if (this.closed || this.refusal === why) return;
    this.refusal = why;
    clearTimeout(this.timer);
    this.failAll(why);
    this.become({ role: 'follower', term: this.term, leader: '' });
    this.tell(() => this.events.logRefused(why));
  }

  private goOn(): void {
    if (this.closed || this.refusal === '') return;
    this.refusal = '';
    const { role, term, leader } = this.core.status;
    this.ready = role === 'leader' && this.order[0] === term;
    this.become({ role, term, leader });
    this.tell(() => this.events.logRefused(''));
    this.feed({ kind: 'tick' });
  }

  /** Whatever it would say from here on might be forgotten. */
  private lose(why: string): void {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.timer);
    this.failAll('its log cannot be kept');
    this.tell(() => this.events.logLost(why));
  }

  // --- the state

  private apply(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (!above([entry.term, entry.index], this.order)) continue; // an old order
      this.order = [entry.term, entry.index];
      if (entry.kind === 'command') this.state = applyEntry(this.state, entry.data);
      this.grownEntries += 1;
      this.grownBytes += entry.data.length;
      this.commit(entry);
    }
    const last = entries.at(-1);
    if (last === undefined) return;
    this.queue.push({ kind: 'applied', index: last.index });
    if (this.leads && last.term === this.term) this.ready = true;
    this.tell(() => this.events.logChanged());
    this.compact();
  }

  private restore({ term, index, data }: Snapshot): void {
    if (above(this.order, [term, index])) return; // an old order
    this.state = decodeState(data);
    this.order = [term, index];
    this.grownEntries = 0;
    this.grownBytes = 0;
    this.snapshotBytes = data.length;
    for (const [at, { asked }] of [...this.waiting]) {
      if (at > index) continue;
      this.waiting.delete(at);
      asked.reject(new NotLeader('another peer coordinates now', this.leader));
    }
    this.queue.push({ kind: 'applied', index });
    this.tell(() => this.events.logChanged());
  }

  private commit({ index, term }: Entry): void {
    const waiting = this.waiting.get(index);
    if (waiting === undefined) return;
    this.waiting.delete(index);
    if (waiting.term === term) waiting.asked.resolve([term, index]);
    else waiting.asked.reject(new NotLeader('another peer coordinates now', this.leader));
  }

  /** Takes a snapshot when the log has grown as much as one is long. */
  private compact(): void {
    const bytes = Math.max(COMPACT_BYTES, this.snapshotBytes);
    if (this.grownEntries < COMPACT_ENTRIES && this.grownBytes < bytes) return;
    this.grownEntries = 0;
    this.grownBytes = 0;
    const data = encodeState(this.state);
    this.snapshotBytes = data.length;
    this.queue.push({ kind: 'compact', index: this.order[1], data });
  }

  // --- those who wait

  private ask(event: (ctx: number) => Event): Promise<Order> {
    if (this.closed || this.refusal !== '') {
      return Promise.reject(new NotLeader(this.refusal === '' ? 'this peer is leaving' : this.refusal));
    }
    const asking = new Promise<Order>((resolve, reject) => {
      this.ctx += 1;
      this.asked.set(this.ctx, { resolve, reject });
      this.feed(event(this.ctx));
    });
    this.under.add(asking);
    const over = (): boolean => this.under.delete(asking);
    asking.then(over, over); // not everybody who proposes waits
    return asking;
  }

  private take(ctx: number): Asked | undefined {
    const asked = this.asked.get(ctx);
    this.asked.delete(ctx);
    return asked;
  }

  private rejected({ ctx, reason, leader }: Reject): void {
    const lifted = REASONS.get(reason);
    this.take(ctx)?.reject(
      lifted !== undefined ? new NotLeader(lifted, leader) : new BadCommand(`consensus: ${reason}`),
    );
  }

  private become({ role, term, leader }: Omit<Role, 'kind'>): void {
    const led = this.leads;
    if (role !== 'leader' || term !== this.term) this.ready = false;
    this.role = role;
    this.term = term;
    this.leader = leader;
    if (led && role !== 'leader') this.failAll('another peer coordinates now');
    this.tell(() => this.events.roleChanged());
  }

  /** What was proposed may still be committed; that is no longer this peer's to promise. */
  private failAll(why: string): void {
    const all = [...this.waiting.values()].map(({ asked }) => asked).concat([...this.asked.values()]);
    this.waiting.clear();
    this.asked.clear();
    const leader = this.leader === this.begin.me ? '' : this.leader;
    for (const asked of all) asked.reject(new NotLeader(why, leader));
  }
}

function above([term, index]: Order, [otherTerm, otherIndex]: Order): boolean {
  return term > otherTerm || (term === otherTerm && index > otherIndex);
}
