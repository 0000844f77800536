/*
 * This tab's part in the mesh's log: takes part, lives again when the browser will not keep the log, hands leadership
 * over, and begins the next epoch when most voters are gone for good (twin of that part of peer/member/mesh_member.py).
 * Edge.
 */

import { BadCommand, textOf } from '../errors';
import { LogKeeping } from './log_keeping';
import type { PeerLinks } from '../transport/peer_links';
import type { MeshView } from './mesh_view';
import type { Beginning, Replica } from './replica';

const HAND_OVER_MS = 3000; // for one peer to become leader
const RECOVER_WITHIN_MS = 10_000;
const GIVE_UP_DISK_MS = 10_000; // a disk that is full for longer is done without, where others keep the log
const KEEP_AGAIN_MS = 15_000; // between looks whether it takes something again

/** Another peer leads; nobody is here who could keep the mesh; or somebody is, who has not taken over in time. */
export type HandedOver = 'taken' | 'alone' | 'late';

/** What this peer's part in the log takes of its turn to lead. */
export interface Lead {
  /** Whether it coordinates once it leads. */
  readonly isAble: boolean;
  /** The coordinator that runs here, if this peer leads. */
  readonly current: { readonly alone: boolean; tend(): void } | null;
  untilLeads(withinMs: number): Promise<boolean>;
}

/** What this tab does for the log of one mesh, from taking part to leaving. */
export class LogPart {
  private keeping: LogKeeping;
  private rejoin: (() => Promise<void>) | null = null; // one try to be a whole member again; null: not in yet
  private looking: ReturnType<typeof setTimeout> | null = null; // whether the browser keeps the log again
  private readonly links: Pick<PeerLinks, 'isConnected' | 'onGone'>;
  private readonly view: MeshView;
  private readonly lead: Lead;
  private readonly mesh: string;
  private readonly notice: (text: string) => void;

  /** Of a peer that keeps nothing, until `keeps` says otherwise. */
  constructor(
    links: Pick<PeerLinks, 'isConnected' | 'onGone'>,
    view: MeshView,
    lead: Lead,
    mesh: string,
    notice: (text: string) => void,
  ) {
    this.links = links;
    this.view = view;
    this.lead = lead;
    this.mesh = mesh;
    this.notice = notice;
    this.keeping = new LogKeeping(mesh, view.me, false, notice);
    view.onLogRefused((why) => this.logRefused(why));
    view.onLogLost((why) => this.liveAgain(why));
  }

  /** Where the log of this peer is kept, if it is. */
  get log(): LogKeeping {
    return this.keeping;
  }

  /** This peer is in: `rejoin` is one try to be a whole member again. */
  entered(rejoin: () => Promise<void>): void {
    this.rejoin = rejoin;
  }

  /** From here on this tab's log outlives it, as far as the browser lets it. */
  keeps(): void {
    this.keeping = new LogKeeping(this.mesh, this.view.me, true, this.notice);
  }

  /** Starts this peer's copy of the log. Raises BadBoot. */
  take(begin: Beginning): Replica {
    const { log } = this;
    if (log.lacks) this.lookForDisk(log);
    return this.view.takePart(begin, log.durable ? log.store : null);
  }

  /** Lets go of the log: this membership is over. */
  close(): void {
    if (this.looking !== null) clearTimeout(this.looking);
    this.looking = null;
    this.log.close();
  }

  /** Lets another peer lead. Follows what happens: who leads, who is here; it waits HAND_OVER_MS at most. */
  handOver(): Promise<HandedOver> {
    const { links, view, lead } = this;
    const standing = (): HandedOver | null => {
      if (view.leader !== null && view.leader !== view.me) return 'taken';
      lead.current?.tend();
      return lead.current?.alone === true ? 'alone' : null;
    };
    return new Promise((resolve) => {
      const settle = (how: HandedOver): void => {
        clearTimeout(timer);
        for (const end of ends) end();
        resolve(how);
      };
      const look = (): void => {
        const how = standing();
        if (how !== null) settle(how);
      };
      const timer = setTimeout(() => settle('late'), HAND_OVER_MS);
      const ends = [view.onRole(look), view.subscribe(look), links.onGone(look)];
      look();
    });
  }

  /** Whether this tab could go on with what it knows, if the others were gone for good. */
  get canRecover(): boolean {
    const { replica, leader } = this.view;
    const isWhole = replica !== null && (!replica.fresh || this.log.salvage !== null);
    return isWhole && leader === null && this.lead.isAble && this.rejoin !== null;
  }

  /** Begins the next epoch from what this peer knows; its number. Raises BadCommand, StateUnusable. */
  async recover(): Promise<number> {
    const { view, log } = this;
    const { replica } = view;
    if (replica === null || !this.canRecover) {
      throw new BadCommand('nothing was changed: somebody coordinates this mesh, or this tab cannot');
    }
    const { epoch } = replica;
    const state = replica.fresh && log.salvage !== null ? log.salvage : replica.state;
    view.leaveLog();
    this.take(await log.found(state, epoch + 1));
    await this.lead.untilLeads(RECOVER_WITHIN_MS);
    await this.rejoin?.();
    return epoch + 1;
  }

  /** Who votes alone waits for its disk; elsewhere the mesh goes on, and this peer with it before long. */
  private logRefused(why: string): void {
    const { view } = this;
    const { replica } = view;
    const isAlone = replica?.config.voters.every((peer) => peer === view.me) ?? true;
    if (why === '' || isAlone) return;
    setTimeout(() => {
      if (replica === view.replica && replica?.refused === why) this.liveAgain(why);
    }, GIVE_UP_DISK_MS);
  }

  /** What is kept here is not trusted: this peer joins as another one, in memory until the browser takes a log. */
  private liveAgain(why: string): void {
    this.notice(`the log of the mesh cannot be kept here: ${textOf(why)}; goes on without it`);
    const kept = this.log;
    this.goOnWith(new LogKeeping(this.mesh, this.view.me, false, this.notice));
    this.lookForDisk(kept);
  }

  /** Looks from time to time whether the browser keeps what it refused, and goes on with `kept` then. */
  private lookForDisk(kept: LogKeeping): void {
    this.looking ??= setTimeout(() => void this.keepAgain(kept).catch(reportError), KEEP_AGAIN_MS);
  }

  private async keepAgain(kept: LogKeeping): Promise<void> {
    const takes = this.rejoin !== null && (await kept.canKeep());
    if (this.looking === null) return; // this peer left meanwhile
    this.looking = null;
    if (!takes || !this.copyIsSpare) {
      this.lookForDisk(kept);
      return;
    }
    this.notice('the log of the mesh is kept here again');
    this.goOnWith(kept);
  }

  /**
   * Whether the mesh is led, and the voters that are reached from here are a majority without this one: otherwise the
   * vote of this life may be what the next leader needs.
   */
  private get copyIsSpare(): boolean {
    const { replica, leader, me } = this.view;
    if (replica === null || replica.fresh) return true;
    const { voters } = replica.config;
    const others = voters.filter((peer) => peer !== me && this.links.isConnected(peer));
    return leader !== null && leader !== me && (!voters.includes(me) || 2 * others.length > voters.length);
  }

  private goOnWith(keeping: LogKeeping): void {
    this.view.leaveLog();
    this.log.close();
    this.keeping = keeping;
    this.view.roleChanged(); // nobody leads, as far as this peer knows: it looks for the mesh
  }
}
