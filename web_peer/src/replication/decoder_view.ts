/*
 * The mesh as the parts see it that serve one model: its own, or a further one that answers in words (twin of
 * peer/replication/decoder_view.py). Edge.
 */

import { seenAs } from '../state/decoder_sight';
import type { Command } from '../state/member_commands';
import type { MeshState } from '../state/mesh_state';
import type { Run } from '../state/plan_record';
import { HELD } from '../wire/generated/requests';
import type { RequestKind } from '../wire/request_kind';
import { PATIENCE_MS, spelled } from './leader_client';
import type { MeshView } from './mesh_view';

/** What the parts that serve one model know of the mesh, and tell it. `state.model` is the model that they serve. */
export type ModelView = Pick<
  MeshView,
  'me' | 'leader' | 'state' | 'askLeader' | 'holds' | 'hopeful' | 'nameOf' | 'propose' | 'subscribe' | 'until'
>;

/** The same of the further model that the mesh calls `name`. Close it when the model is not offered any more. */
export class DecoderView implements ModelView {
  readonly name: string;
  private readonly view: MeshView;
  private seenOf: MeshState;
  private seen: MeshState;
  private readonly whenState = new Set<() => void>();
  private readonly unsubscribe: () => void;

  constructor(view: MeshView, name: string) {
    this.name = name;
    this.view = view;
    this.seenOf = view.state;
    this.seen = seenAs(view.state, name);
    this.unsubscribe = view.subscribe(() => {
      for (const listener of [...this.whenState]) listener();
    });
  }

  get me(): string {
    return this.view.me;
  }

  get leader(): string | null {
    return this.view.leader;
  }

  /** The state as if this model were the mesh's own. */
  get state(): MeshState {
    const { state } = this.view;
    if (this.seenOf !== state) {
      this.seenOf = state;
      this.seen = seenAs(state, this.name);
    }
    return this.seen;
  }

  /** What people call a peer. */
  nameOf(peer: string): string {
    return this.view.nameOf(peer);
  }

  /** As MeshView.hopeful, of this model. */
  hopeful(loads: boolean): boolean {
    const { refused, model } = this.state;
    return this.view.replica !== null && model !== null && (refused === '' || loads);
  }

  /** Calls `listener` after each change of the state, until the result is called. */
  subscribe(listener: () => void): () => void {
    this.whenState.add(listener);
    return () => this.whenState.delete(listener);
  }

  /** As MeshView.until, of this state. */
  until(
    holds: (state: MeshState) => boolean,
    timeoutS: number | null,
    signal?: AbortSignal,
  ): Promise<boolean> {
    return this.view.until(() => holds(this.state), timeoutS, signal);
  }

  /** As MeshView.askLeader. */
  askLeader<T, A>(kind: RequestKind<T, A>, said: T, patienceMs = PATIENCE_MS, first = ''): Promise<A> {
    return this.view.askLeader(kind, said, patienceMs, first);
  }

  /** Has the log say `command`, as MeshView.propose does. */
  propose(command: Command): Promise<void> {
    return this.view.propose(command);
  }

  /** Tells whoever leads which runs of units of this model are loaded here. Raises MeshError. */
  async holds(runs: readonly Run[]): Promise<void> {
    const { name, me: peer } = this;
    await this.askLeader(HELD, { command: spelled({ kind: 'DecoderHeld', name, peer, held: runs }) });
  }

  /** Tells nobody of changes any more. */
  close(): void {
    this.unsubscribe();
    this.whenState.clear();
  }
}
