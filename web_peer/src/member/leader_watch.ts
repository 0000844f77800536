/*
 * Watches whether this peer is a whole member: somebody leads, there is a way there, and it is among the members (twin
 * of peer/member/leader_watch.py). Edge. When something is missing it waits a moment, since leadership may just be
 * handed over, then tells people and searches (reconnect.ts).
 */

import { textOf } from '../errors';
import type { MeshView } from '../replication/mesh_view';
import { unserved } from '../session/routes';
import { serving } from '../state/mesh_state';
import type { PeerLinks } from '../transport/peer_links';
import { type Away, Returning } from './reconnect';

const HANDOVER_GRACE_S = 0.7; // without a leader, before anybody is told

/** Whose membership is watched. */
export interface Watched {
  readonly signal: AbortSignal; // aborts when it is over
  /** Whether it is over, or ends. */
  isOver(): boolean;
  /** What is to be shown has changed. */
  changed(): void;
  /** It cannot be watched any more. */
  failed(text: string): void;
}

/** Nothing is watched before `begin`. */
export class LeaderWatch {
  private readonly links: Pick<PeerLinks, 'isConnected' | 'onConnected' | 'unreached'>;
  private readonly view: MeshView;
  private readonly owner: Watched;
  private returning: Returning | null = null;
  private searching = false;
  private ledBy = ''; // who led when this peer was last a whole member

  constructor(
    links: Pick<PeerLinks, 'isConnected' | 'onConnected' | 'unreached'>,
    view: MeshView,
    owner: Watched,
  ) {
    this.links = links;
    this.view = view;
    this.owner = owner;
  }

  /** Watches from here on. `rejoin` makes one try to be a whole member again. */
  begin(rejoin: () => Promise<void>): void {
    this.returning = new Returning(
      (attempt) => this.missing(attempt),
      rejoin,
      () => this.owner.changed(),
    );
    this.view.onRole(() => {
      this.look();
      this.owner.changed();
    });
    this.view.subscribe(() => this.look());
    this.links.onConnected(() => this.look());
    this.missing(0); // notes who leads now: nothing may change until that one is lost
  }

  /** Set while nobody coordinates, as far as this peer knows, or while it is left out. */
  get away(): Away | null {
    return this.returning?.away ?? null;
  }

  /** Looks for the mesh at once instead of after the next pause. */
  tryNow(): void {
    this.returning?.tryNow();
  }

  /** Begins to search when something is missing, and lets a search end when nothing is. */
  look(): void {
    const { returning } = this;
    if (returning === null || this.owner.isOver()) return;
    if (this.searching) {
      if (this.missing(0) === null) returning.tryNow();
      return;
    }
    if (this.missing(0) === null) return;
    this.searching = true;
    this.search(returning)
      .catch((error: unknown) => this.owner.failed(`a defect, please report it: ${textOf(error)}`))
      .finally(() => {
        this.searching = false;
        this.owner.changed();
      });
  }

  private async search(returning: Returning): Promise<void> {
    // Leadership that is handed over is back in a moment: nobody need hear of it.
    await this.view.until(() => this.missing(0) === null, HANDOVER_GRACE_S, this.owner.signal);
    if (this.missing(0) !== null) await returning.search(this.owner.signal);
  }

  /** What this peer lacks to be a whole member: somebody who leads, a way there, its place among the members. */
  private missing(attempt: number): Away | null {
    const { links } = this;
    const { replica, state, leader, me } = this.view;
    const there = leader !== null && (leader === me || links.isConnected(leader));
    if (there && (state.members.has(me) || replica?.fresh === true)) {
      this.ledBy = leader;
      return null;
    }
    const refused = replica?.refused ?? '';
    const plan = serving(state);
    const gone = new Set([...links.unreached, this.ledBy]);
    const voters = replica?.config.voters ?? [];
    const here = voters.filter((peer) => peer === me || (links.isConnected(peer) && peer !== this.ledBy));
    return {
      name: state.members.get(this.ledBy)?.name ?? '',
      needed: plan !== null && unserved(state, plan, gone).length > 0,
      voters: voters.length,
      here: here.length,
      attempt: refused === '' ? attempt : 0,
      refused,
    };
  }
}
