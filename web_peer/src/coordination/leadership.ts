/*
 * This peer's turn to coordinate: begins when it leads and can, ends when it leads no more (twin of that part of
 * peer/member/frame_router.py). Edge.
 */

import type { PeerLinks } from '../transport/peer_links';
import type { Body } from '../transport/rpc';
import type { Coordinating } from './coordinator_service';
import { isProven } from '../conversation/entry_links';
import { BadCommand, NotLeader } from '../errors';
import type { ParticipantInvited } from '../state/conversation_entry';
import type { MeshState } from '../state/mesh_state';
import type { Replica } from '../replication/replica';

/** What members ask of whoever leads. Its own rules tell who may, by the state that it has made so far. */
const REQUESTS: readonly string[] = [
  'join',
  'measured',
  'held',
  'drain',
  'paused',
  'leaving',
  'left',
  'suspect',
  'propose',
  'work',
];

export class Leading {
  coordinating: Coordinating | null = null;
  coordinate: ((state: MeshState) => Coordinating) | null = null; // null: this peer cannot, yet
  private readonly me: string;
  private readonly replica: () => Replica | null;
  private ledBefore = ''; // who led before whoever leads now
  private readonly begun = new Set<() => void>();

  constructor(me: string, replica: () => Replica | null, links: Pick<PeerLinks, 'on'>) {
    this.me = me;
    this.replica = replica;
    for (const method of REQUESTS) {
      links.on(method, (peer, body) => this.answer(peer, method, body), 'anyone');
    }
  }

  /** From here on this peer coordinates whenever it leads: it knows the model. */
  learned(coordinate: (state: MeshState) => Coordinating): void {
    this.coordinate = coordinate;
    this.take();
  }

  /** Coordinates once it leads, has committed in its own term, and can. */
  take(): void {
    const replica = this.replica();
    if (replica?.ready !== true || this.coordinating !== null || this.coordinate === null) return;
    this.coordinating = this.coordinate(replica.state);
    this.coordinating.begin(this.ledBefore);
    for (const wake of [...this.begun]) wake();
  }

  roleChanged(): void {
    const replica = this.replica();
    if (replica === null) return;
    if (!replica.leads) this.stepDown();
    if (replica.leader !== '' && replica.leader !== this.me) this.ledBefore = replica.leader;
    this.take();
  }

  stepDown(): void {
    this.coordinating?.close();
    this.coordinating = null;
  }

  /** A proposal was refused: a new coordinator begins with what is committed, once no proposal is under way. */
  again(): void {
    this.stepDown();
    const replica = this.replica();
    if (replica?.leads !== true) return;
    void replica.settled().then(() => this.take());
  }

  /** Waits until this peer coordinates; false when the time is over first. */
  begins(withinMs: number): Promise<boolean> {
    if (this.coordinating !== null) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.begun.delete(end);
        resolve(this.coordinating !== null);
      };
      const timer = setTimeout(end, withinMs);
      this.begun.add(end);
    });
  }

  /** The answer when what was asked for is committed. Raises NotLeader where this peer cannot say so. */
  private async answer(peer: string, method: string, body: Body): Promise<Body> {
    const replica = this.replica();
    const { coordinating } = this;
    if (coordinating === null) {
      const leader = replica?.leader ?? '';
      const why = leader === '' ? 'nobody coordinates now' : 'another peer coordinates';
      throw new NotLeader(why, leader === this.me ? '' : leader);
    }
    let answer: Body = {};
    if (method === 'propose') {
      const command = coordinating.proposal(peer, body);
      if (command.kind === 'ParticipantInvited') await this.prove(command, coordinating, replica);
      coordinating.propose(peer, command);
    } else answer = coordinating.answer(peer, method, body);
    const [, index] = await coordinating.settled();
    // Who joins may know the log up to here, and must.
    return method === 'join' ? { ...answer, index: Math.max(index, replica?.order[1] ?? 0) } : answer;
  }

  /** Raises BadCommand where somebody comes into a conversation with an invite whose secret they do not hold. */
  private async prove(
    command: ParticipantInvited,
    coordinating: Coordinating,
    replica: Replica | null,
  ): Promise<void> {
    if (replica === null || !(await isProven(replica.begin.mesh, command))) {
      throw new BadCommand('propose: expected a signature by the key of that invite: ask for the link again');
    }
    if (this.coordinating !== coordinating) throw new NotLeader('another peer coordinates', '');
  }
}
