/*
 * This peer's turn to coordinate: begins when it leads and can, ends when it leads no more (twin of
 * peer/coordination/leadership.py). Edge.
 */

import type { Coordinating } from './coordinator_service';
import { isProven } from '../conversation/entry_links';
import { BadCommand, NotLeader } from '../errors';
import type { MeshView } from '../replication/mesh_view';
import type { Replica } from '../replication/replica';
import type { ParticipantInvited } from '../state/generated/commands';
import type { MeshState } from '../state/mesh_state';
import type { PeerLinks } from '../transport/peer_links';
import {
  JOIN,
  type JoinAnswer,
  LEADER_REQUESTS,
  PROPOSE,
  type ProposeRequest,
} from '../wire/generated/requests';
import type { RequestKind } from '../wire/request_kind';

type Links = Pick<PeerLinks, 'on'>;
type View = Pick<MeshView, 'me' | 'replica' | 'subscribe' | 'onRole' | 'onLogLost' | 'onLeft'>;

/** Who coordinates here: a `Coordinating` while this peer leads and is able to, nobody otherwise. */
export class Leadership {
  private readonly view: View;
  private running: Coordinating | null = null;
  private make: ((state: MeshState) => Coordinating) | null = null; // null: this peer cannot, yet
  private ledBefore = ''; // who led before whoever leads now
  private readonly begun = new Set<() => void>();

  constructor(links: Links, view: View) {
    this.view = view;
    // The coordinator knows better than the links who may.
    for (const kind of LEADER_REQUESTS) {
      links.on({ ...kind, sender: 'anyone' }, async (peer, said) => {
        const index = await this.settled(peer, kind, said);
        if (kind.method !== JOIN.method) return null;
        // Who joins may know the log up to the entry of the answer, and must.
        return { index: Math.max(index, view.replica?.order[1] ?? 0) } satisfies JoinAnswer;
      });
    }
    view.subscribe(() => this.take());
    view.onRole(() => this.roleChanged());
    view.onLogLost(() => this.stepDown());
    view.onLeft(() => this.stepDown());
  }

  /** The coordinator that runs here; null: this peer does not lead, or cannot coordinate. */
  get current(): Coordinating | null {
    return this.running;
  }

  /** The connection to `peer` ended, `reason` says why. */
  gone(peer: string, reason: string): void {
    this.running?.gone(peer, reason);
  }

  /** Whether this peer coordinates once it leads. */
  get isAble(): boolean {
    return this.make !== null;
  }

  /** From here on this peer coordinates whenever it leads: it knows the model. */
  enable(make: (state: MeshState) => Coordinating): void {
    this.make = make;
    this.take();
  }

  /** A proposal was refused: a new coordinator begins with what is committed, once no proposal is under way. */
  again(): void {
    this.stepDown();
    const { replica } = this.view;
    if (replica?.leads !== true) return;
    void replica.settled().then(() => this.take());
  }

  /** Waits until this peer coordinates; false when the time is over first. */
  untilLeads(withinMs: number): Promise<boolean> {
    if (this.running !== null) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.begun.delete(end);
        resolve(this.running !== null);
      };
      const timer = setTimeout(end, withinMs);
      this.begun.add(end);
    });
  }

  /** Called often: time has passed. */
  tick(): void {
    this.running?.look(Math.floor(performance.now()));
  }

  close(): void {
    this.make = null;
    this.stepDown();
  }

  // --- inner moves

  /** Coordinates once it leads, has committed in its own term, and can. */
  private take(): void {
    const { replica } = this.view;
    if (replica?.ready !== true || this.running !== null || this.make === null) return;
    this.running = this.make(replica.state);
    this.running.begin(this.ledBefore);
    for (const wake of [...this.begun]) wake();
  }

  private roleChanged(): void {
    const { replica, me } = this.view;
    if (replica === null) return;
    if (!replica.leads) this.stepDown();
    if (replica.leader !== '' && replica.leader !== me) this.ledBefore = replica.leader;
    this.take();
  }

  private stepDown(): void {
    this.running?.close();
    this.running = null;
  }

  /** The entry up to which all is committed that was asked for. Raises NotLeader where this peer cannot say so. */
  private async settled<T>(peer: string, kind: RequestKind<T, unknown>, said: T): Promise<number> {
    const { replica, me } = this.view;
    const { running } = this;
    if (running === null) {
      const leader = replica?.leader ?? '';
      const why = leader === '' ? 'nobody coordinates now' : 'another peer coordinates';
      throw new NotLeader(why, leader === me ? '' : leader);
    }
    running.admit(peer, kind);
    if (kind.method === PROPOSE.method) {
      const command = running.proposal(peer, said as ProposeRequest);
      if (command.kind === 'ParticipantInvited') await this.prove(command, running, replica);
      running.propose(peer, command);
    } else running.answer(peer, kind.method, said);
    const [, index] = await running.settled();
    return index;
  }

  /** Raises BadCommand where somebody comes into a conversation with an invite whose secret they do not hold. */
  private async prove(
    command: ParticipantInvited,
    running: Coordinating,
    replica: Replica | null,
  ): Promise<void> {
    if (replica === null || !(await isProven(replica.begin.mesh, command))) {
      throw new BadCommand('propose: expected a signature by the key of that invite: ask for the link again');
    }
    if (this.running !== running) throw new NotLeader('another peer coordinates', '');
  }
}
