/*
 * This tab's part in the mesh's log: takes part, lives again when the browser will not keep the log, hands leadership
 * over, and begins the next epoch when most voters are gone for good (twin of that part of peer/member/mesh_member.py).
 * Edge.
 */

import { BadCommand, textOf } from '../errors';
import { LogKeeping } from './log_keeping';
import type { Node } from '../member/frame_router';
import { type Beginning, Replica } from './replica';

const HAND_OVER_MS = 3000; // for one peer to become leader
const RECOVER_WITHIN_MS = 10_000;

/** Another peer leads; nobody is here who could keep the mesh; or somebody is, who has not taken over in time. */
export type HandedOver = 'taken' | 'alone' | 'late';

export class LogPart {
  log: LogKeeping;
  rejoin: (() => Promise<void>) | null = null; // one try to be a whole member again; null: not in yet
  private readonly node: Node;
  private readonly mesh: string;
  private readonly notice: (text: string) => void;

  /** Of a peer that keeps nothing, until `keeps` says otherwise. */
  constructor(node: Node, mesh: string, notice: (text: string) => void) {
    this.node = node;
    this.mesh = mesh;
    this.notice = notice;
    this.log = new LogKeeping(mesh, node.me, false, notice);
    node.onLogLost.add((why) => this.liveAgain(why));
  }

  /** From here on this tab's log outlives it, as far as the browser lets it. */
  keeps(): void {
    this.log = new LogKeeping(this.mesh, this.node.me, true, this.notice);
  }

  /** Starts this peer's copy of the log. Raises BadBoot. */
  take(begin: Beginning): Replica {
    const { node, log } = this;
    const replica = new Replica(
      begin,
      log.durable ? log.store : null,
      (peer, message) => node.sendMessage(peer, message),
      node,
    );
    node.keepLog(replica);
    return replica;
  }

  /** Lets another peer lead. Follows what happens: who leads, who is here; it waits HAND_OVER_MS at most. */
  handOver(): Promise<HandedOver> {
    const { node } = this;
    const standing = (): HandedOver | null => {
      if (node.coordinator !== null && node.coordinator !== node.me) return 'taken';
      node.leading.coordinating?.tend();
      return node.leading.coordinating?.alone === true ? 'alone' : null;
    };
    return new Promise((resolve) => {
      const told = [node.onRole, node.onState] as const;
      const settle = (how: HandedOver): void => {
        clearTimeout(timer);
        for (const listeners of told) listeners.delete(look);
        endLinks();
        resolve(how);
      };
      const look = (): void => {
        const how = standing();
        if (how !== null) settle(how);
      };
      const timer = setTimeout(() => settle('late'), HAND_OVER_MS);
      for (const listeners of told) listeners.add(look);
      const endLinks = node.links.onGone(look);
      look();
    });
  }

  /** Whether this tab could go on with what it knows, if the others were gone for good. */
  get canRecover(): boolean {
    const { replica, leading, coordinator } = this.node;
    return (
      replica !== null &&
      !replica.fresh &&
      coordinator === null &&
      leading.coordinate !== null &&
      this.rejoin !== null
    );
  }

  /** Begins the next epoch from what this peer knows; its number. Raises BadCommand, StateUnusable. */
  async recover(): Promise<number> {
    const { node, log } = this;
    const { replica } = node;
    if (replica === null || !this.canRecover) {
      throw new BadCommand('nothing was changed: somebody coordinates this mesh, or this tab cannot');
    }
    const { state, epoch } = replica;
    node.leaveLog();
    this.take(await log.found(state, epoch + 1));
    await node.leading.begins(RECOVER_WITHIN_MS);
    await this.rejoin?.();
    return epoch + 1;
  }

  /** What is kept here can be trusted no more: this peer joins as another one, and keeps nothing from now on. */
  private liveAgain(why: string): void {
    this.notice(`the log of the mesh cannot be kept here: ${textOf(why)}`);
    this.node.leaveLog();
    this.log.close();
    this.log = new LogKeeping(this.mesh, this.node.me, false, this.notice);
    this.node.roleChanged(); // nobody leads, as far as this peer knows: it looks for the mesh
  }
}
