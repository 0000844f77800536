/*
 * Decides, for the leader, who stands for the vote: the members as the log and its own eyes show them (twin of
 * peer/coordination/electorate.py). Pure.
 *
 * voter_policy.ts says what follows from it. Who was lost a moment ago still stands: it may come back, and be again
 * what it was. Who said that it leaves before it was lost stands no more.
 */

import type { Status } from '../consensus/events';
import type { Member } from '../state/generated/commands';
import type { MeshState } from '../state/mesh_state';
import { type Candidate, PATIENCE, type Patience, Watch } from './voter_policy';

const NEARLY = 64; // entries that a member may lack and count as caught up
const LEARNER_KEPT_MS = 10_000; // the place of a learner that was lost

/** Whether a mesh can live on with this member alone: a tab that keeps no log coordinates nothing. */
export function keepsMesh({ headless, durable }: Member): boolean {
  return headless || durable;
}

/** What a leader remembers of members beside the log. A new leader begins with a new one. */
export class Electorate {
  private readonly watch = new Watch();
  private readonly gone = new Map<string, { readonly member: Member; readonly sinceMs: number }>();
  private readonly patience: Patience;

  constructor(patience: Patience = PATIENCE) {
    this.patience = patience;
  }

  /** The connection to a member ended, or it is silent and gone. */
  lost(nowMs: number, member: Member): void {
    this.gone.set(member.peer, { member, sinceMs: nowMs });
  }

  /** It said goodbye: its place is free. */
  left(peer: string): void {
    this.gone.delete(peer);
  }

  /** Every member, and those whose place is kept. Who leads need not go because another one keeps more. */
  candidates(
    nowMs: number,
    state: MeshState,
    { config, commit, leader, matched }: Status,
    connected: ReadonlySet<string>,
  ): readonly Candidate[] {
    for (const [peer, { member, sinceMs }] of [...this.gone]) {
      // Who keeps nothing never comes back as the voter that it was.
      const keptMs = config.voters.includes(peer) && member.durable ? this.patience.goneMs : LEARNER_KEPT_MS;
      if (state.members.has(peer) || nowMs - sinceMs >= keptMs) this.gone.delete(peer);
    }
    const members = new Map(state.members);
    for (const [peer, { member }] of this.gone) members.set(peer, member);
    for (const [peer, member] of members) {
      this.watch.see(nowMs, peer, connected.has(peer) && !this.gone.has(peer), ailing(member));
    }
    this.watch.keep((peer) => members.has(peer));
    return [...members].map(([peer, member], seniority) => ({
      id: peer,
      incarnation: member.incarnation,
      headless: member.headless,
      durable: member.durable || peer === leader,
      mayVote: keepsMesh(member),
      seniority,
      leaving: member.status === 'leaving',
      caughtUp: (matched.get(peer) ?? 0) + NEARLY >= commit,
      sight: this.watch.sight(nowMs, peer),
    }));
  }
}

/** Its tab is hidden, say. */
function ailing({ status, headless }: Member): boolean {
  return status === 'paused' || (status === 'draining' && !headless);
}
