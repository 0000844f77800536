/*
 * The mesh as this peer knows it: its copy of the log, who leads, and the way to the leader (twin of
 * peer/replication/mesh_view.py). Edge. What changed is told without saying what: whoever listens reads it again.
 */

import type { Message } from '../consensus/messages';
import { encode as encodeMessage } from '../consensus/message_codec';
import { nameOf, names } from '../state/display_names';
import type { Command } from '../state/member_commands';
import { EMPTY_STATE, type MeshState } from '../state/mesh_state';
import type { Run } from '../state/plan_record';
import type { PeerLinks } from '../transport/peer_links';
import { Redial, wanted } from '../transport/redial';
import { nowS } from '../transport/ticker';
import type { Consensus } from '../wire/generated/frames';
import { LeaderLine, PATIENCE_MS, spelled } from './leader_client';
import { type Beginning, type Keeper, Replica } from './replica';
import { HELD, LEADER, type LeaderAnswer, MEASURED, PROPOSE } from '../wire/generated/requests';
import type { MemberMeasured } from '../state/generated/commands';
import type { RequestKind } from '../wire/request_kind';

const PATIENT_S = 2; // most questions are over by then

type Links = Pick<
  PeerLinks,
  'me' | 'ask' | 'isConnected' | 'know' | 'on' | 'prepare' | 'sendOrLose' | 'unreached'
>;

/** What this peer knows of its mesh; empty before there is a copy of the log. */
export class MeshView {
  readonly me: string;
  private readonly links: Links;
  private readonly patient: boolean;
  private readonly line: LeaderLine;
  private readonly redial = new Redial();
  private readonly sinceS = nowS();
  private known: MeshState = EMPTY_STATE;
  private copy: Replica | null = null;
  private readonly whenState = new Set<() => void>();
  private readonly whenRole = new Set<() => void>();
  private readonly whenRefused = new Set<(why: string) => void>();
  private readonly whenLost = new Set<(why: string) => void>();
  private readonly whenLeft = new Set<() => void>();

  /** `patient`: a peer that only asks, which connects to voters when it has been here for a while. */
  constructor(links: Links, patient = false) {
    this.me = links.me;
    this.links = links;
    this.patient = patient;
    this.line = new LeaderLine(
      () => this.leader ?? '',
      (peer, kind, said) => links.ask(peer, kind, said),
    );
    links.on(LEADER, () => this.whoLeads());
  }

  /** The connection to `peer` ended. */
  unreachable(peer: string): void {
    this.copy?.unreachable(peer);
  }

  /** The state that the log has built so far. */
  get state(): MeshState {
    return this.known;
  }

  /** This peer's copy of the log; null: it is in no mesh yet. */
  get replica(): Replica | null {
    return this.copy;
  }

  /** Who leads, as far as this peer knows. */
  get leader(): string | null {
    const leader = this.copy?.leader ?? '';
    return leader === '' ? null : leader;
  }

  /** What people call a peer. */
  nameOf(peer: string): string {
    return nameOf(peer, names(this.state.members.values()));
  }

  /** Whether what was lost may soon be held: by a plan that comes, or by a standby that `loads` it. */
  hopeful(loads: boolean): boolean {
    return this.copy !== null && (this.state.refused === '' || loads);
  }

  // --- listening

  /** Calls `listener` at each new state, until the result is called. */
  subscribe(listener: () => void): () => void {
    this.whenState.add(listener);
    return () => this.whenState.delete(listener);
  }

  /** Calls `listener` when role, term or leader is new, until the result is called. */
  onRole(listener: () => void): () => void {
    this.whenRole.add(listener);
    return () => this.whenRole.delete(listener);
  }

  /** Calls `listener` with why the log cannot be written for now, with '' when it can again, until the result is called. */
  onLogRefused(listener: (why: string) => void): () => void {
    this.whenRefused.add(listener);
    return () => this.whenRefused.delete(listener);
  }

  /** Calls `listener` when this copy of the log can be kept no more, until the result is called. */
  onLogLost(listener: (why: string) => void): () => void {
    this.whenLost.add(listener);
    return () => this.whenLost.delete(listener);
  }

  /** Calls `listener` when this copy of the log is given up, until the result is called. */
  onLeft(listener: () => void): () => void {
    this.whenLeft.add(listener);
    return () => this.whenLeft.delete(listener);
  }

  /** Waits until the state satisfies `holds`; false when the time is over first, or `signal` aborts. */
  until(
    holds: (state: MeshState) => boolean,
    timeoutS: number | null,
    signal?: AbortSignal,
  ): Promise<boolean> {
    return new Promise((resolve) => {
      const settle = (value: boolean): void => {
        this.whenState.delete(look);
        clearTimeout(timer);
        signal?.removeEventListener('abort', stop);
        resolve(value);
      };
      const look = (): void => {
        if (holds(this.state)) settle(true);
      };
      const stop = (): void => settle(false);
      const timer = timeoutS === null ? undefined : setTimeout(stop, timeoutS * 1000);
      signal?.addEventListener('abort', stop);
      this.whenState.add(look);
      look();
    });
  }

  // --- to the leader

  /** The answer of whoever leads. `first`: whom to ask first. Raises its refusal, or NotLeader when patience ends. */
  askLeader<T, A>(kind: RequestKind<T, A>, said: T, patienceMs = PATIENCE_MS, first = ''): Promise<A> {
    return this.line.ask(kind, said, patienceMs, first);
  }

  /** Tells whoever leads what this peer measured, `again` where it was asked to. Raises MeshError. */
  async measured(command: MemberMeasured, again = false): Promise<void> {
    await this.askLeader(MEASURED, { command: spelled(command), again });
  }

  /** Tells whoever leads which runs of units of the mesh's own model are loaded here. Raises MeshError. */
  async holds(runs: readonly Run[]): Promise<void> {
    await this.askLeader(HELD, { command: spelled({ kind: 'UnitsHeld', peer: this.me, held: runs }) });
  }

  /** Has `command` put into the log; it is committed then. Raises MeshError. */
  async propose(command: Command): Promise<void> {
    await this.askLeader(PROPOSE, { command: spelled(command) });
  }

  // --- the log

  /** Takes part in a mesh from here on; `keeper` null: nothing outlives this page. Raises BadBoot. */
  takePart(begin: Beginning, keeper: Keeper | null): Replica {
    const replica = new Replica(begin, keeper, (peer, message) => this.sendMessage(peer, message), this);
    this.copy = replica;
    replica.start();
    return replica;
  }

  /** What this peer knows of the mesh is void: it is to begin anew. */
  leaveLog(): void {
    for (const listener of [...this.whenLeft]) listener();
    this.copy?.close();
    this.copy = null;
    this.known = EMPTY_STATE;
    this.links.know(this.known.members, null);
  }

  /** Takes a message of another server of the group. */
  received(peer: string, frame: Consensus): void {
    this.copy?.received(peer, frame.body);
  }

  /** Called often: dials those to whom this peer keeps a connection for the log's sake, and those that it lost. */
  tick(): void {
    const { copy } = this;
    if (copy === null || (this.patient && nowS() - this.sinceS < PATIENT_S)) return;
    const kept = wanted(copy.config, this.me, copy.leads);
    const peers = [...new Set([...kept, ...this.links.unreached])];
    for (const peer of this.redial.due(nowS(), peers, (other) => this.links.isConnected(other))) {
      this.links.prepare(peer);
    }
  }

  close(): void {
    this.copy?.close();
  }

  // --- what the replica tells

  logChanged(): void {
    if (this.copy === null) return;
    this.known = this.copy.state;
    this.links.know(this.known.members, this.leader);
    for (const listener of [...this.whenState]) listener();
  }

  roleChanged(): void {
    this.links.know(this.known.members, this.leader);
    this.line.changed();
    for (const listener of [...this.whenRole]) listener();
  }

  logRefused(why: string): void {
    for (const listener of [...this.whenRefused]) listener(why);
  }

  logLost(why: string): void {
    for (const listener of [...this.whenLost]) listener(why);
  }

  // --- inner moves

  /** Hands a message of the core over. One that cannot go now is lost; the core sends again. */
  private sendMessage(peer: string, message: Message): void {
    if (this.links.isConnected(peer)) {
      this.links.sendOrLose(peer, { kind: 'CONSENSUS', body: encodeMessage(message) });
    }
  }

  private whoLeads(): LeaderAnswer {
    const { copy } = this;
    if (copy === null) return { leader: '', term: 0, epoch: 0, voters: [] };
    const isKnown = copy.config.byId.has(this.me); // who is not in yet knows nothing of the mesh
    const { leader, term, begin, config } = copy;
    return { leader, term, epoch: isKnown ? begin.epoch : 0, voters: [...config.voters] };
  }
}
