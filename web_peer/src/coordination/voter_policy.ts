/*
 * Decides who votes in the consensus group and who leads it: from what the leader sees, the next single change (twin of
 * peer/coordination/voter_policy.py, which gives the reasons).
 *
 * Pure. Five, three or one vote: an even number is only passed through. Peers without a window come first; browsers
 * that were here long enough and keep what they store only where there are fewer than three such peers; who is hidden,
 * low on battery, flapping or away comes last. What is stays, until the contrary has lasted. No change is proposed
 * whose own configuration has no majority of connected, caught-up voters.
 */

import { byBytes } from '../wire/utf8_order';
import type { Config, Server } from '../consensus/records';
import type { Change } from '../consensus/events';

const MAX_VOTERS = 5;
const ENOUGH = 3; // voters, so that any one of them may vanish

/** How long things last before they count. Short in tests, never zero in a real mesh. */
export interface Patience {
  readonly settleMs: number; // a peer without a window is connected so long before it may vote
  readonly longMs: number; // a browser
  readonly lostMs: number; // a voter is away so long before another takes its place: a restart, a reload, a nap
  readonly goneMs: number; // and so long before it loses its seat although there is no other
  readonly ailingMs: number; // a voter is hidden or low on battery so long before it matters
  readonly calmMs: number; // and others are well again for so long
  readonly againMs: number; // after a hand-over that failed
}

export const PATIENCE: Patience = {
  settleMs: 5_000,
  longMs: 30_000,
  lostMs: 60_000,
  goneMs: 600_000,
  ailingMs: 30_000,
  calmMs: 60_000,
  againMs: 10_000,
};
const FLAPS = 3; // so many losses within the window below are flapping
const FLAP_WINDOW_MS = 600_000;

/** What the leader sees of a peer. A peer is ailing while its tab is hidden or its battery low. */
export interface Sight {
  readonly connected: boolean;
  readonly connectedMs: number; // since when that is so
  readonly ailing: boolean;
  readonly ailingMs: number | null; // since when that is so; null: it was never ailing
  readonly flapping: boolean;
}

/** A member of the mesh. */
export interface Candidate {
  readonly id: string;
  readonly incarnation: number; // of its present life, the newest that is known
  readonly headless: boolean; // no window that somebody can close
  readonly durable: boolean; // keeps what it stores over a restart
  readonly mayVote: boolean; // false for who only asks, and for who wishes not to
  readonly seniority: number; // index of the entry by which it joined
  readonly leaving: boolean; // it said that it goes
  readonly caughtUp: boolean; // has nearly all of the log
  readonly sight: Sight;
}

/** What the leader knows. `settled`: it has committed an entry of its term, and the last change of configuration. */
export interface Situation {
  readonly nowMs: number;
  readonly leader: string;
  readonly config: Config;
  readonly candidates: readonly Candidate[]; // every member, the leader too
  readonly settled: boolean;
  readonly handedOverMs: number | null; // when it last tried to hand over leadership
}

/** Leadership goes to `to`. */
export interface HandOver {
  readonly kind: 'hand_over';
  readonly to: string;
}

/** What to do next, and why, for logs and people. */
export interface Move {
  readonly do: Change | HandOver;
  readonly why: string;
}

/** The next single change; null: everything is as it should be, or has to wait. Asked again after every change. */
export function nextMove(situation: Situation, patience: Patience = PATIENCE): Move | null {
  const view = new View(situation, patience);
  const { leader, settled } = situation;
  if (!settled || !view.members.has(leader) || !view.votes(leader)) return null;
  return shrink(view) ?? leave(view) ?? followMembers(view) ?? approach(view) ?? handOver(view);
}

/** Who should vote by what is known now, in the order of their ids. */
export function wantedVoters(situation: Situation, patience: Patience = PATIENCE): readonly string[] {
  return [...new View(situation, patience).wanted].sort(byBytes);
}

// --- how members stand

const WELL = 0;
const WEAK = 1;
const AWAY = 2; // a voter that may come back
const NONE = 3; // should not vote, whoever else there is
type Tier = typeof WELL | typeof WEAK | typeof AWAY;
type Rank = readonly (number | string)[];

/** A situation with what follows from it. */
class View {
  readonly nowMs: number;
  readonly leader: string;
  readonly servers: readonly Server[];
  readonly voters: readonly string[];
  readonly members: ReadonlyMap<string, Candidate>;
  readonly mayHandOver: boolean;
  readonly alive: ReadonlySet<string>;
  readonly tiers: ReadonlyMap<string, Tier>;
  readonly wanted: ReadonlySet<string>;
  private readonly patience: Patience;
  private readonly lives: ReadonlyMap<string, boolean>; // of members in the life that the configuration names: votes?

  constructor({ nowMs, leader, config, candidates, handedOverMs }: Situation, patience: Patience) {
    this.nowMs = nowMs;
    this.leader = leader;
    this.servers = config.servers;
    this.voters = config.voters;
    const ordered = [...candidates].sort((a, b) => byBytes(a.id, b.id));
    this.members = new Map(ordered.map((member) => [member.id, member]));
    this.patience = patience;
    this.mayHandOver = handedOverMs === null || nowMs - handedOverMs >= patience.againMs;
    const present = config.servers.filter(
      ({ id, incarnation }) => this.members.get(id)?.incarnation === incarnation,
    );
    this.lives = new Map(present.map(({ id, voter }) => [id, voter]));
    this.alive = new Set(this.voters.filter((peer) => this.ready(peer)));
    const tiers = new Map<string, Tier>();
    for (const member of ordered) {
      const tier = this.tier(member);
      if (tier !== null) tiers.set(member.id, tier);
    }
    this.tiers = tiers;
    this.wanted = this.whoShould();
  }

  votes(peer: string): boolean {
    return this.voters.includes(peer);
  }

  /** The leader, or a connected member in the life that the configuration names. */
  here(peer: string): boolean {
    return peer === this.leader || (this.lives.has(peer) && this.members.get(peer)?.sight.connected === true);
  }

  /** Can acknowledge the next entry. */
  ready(peer: string): boolean {
    return peer === this.leader || (this.here(peer) && this.members.get(peer)?.caughtUp === true);
  }

  /** How many more may be lost once `change` holds; below 0: it could not even be committed. */
  spare(change: Change): number {
    const voters = new Set(this.voters);
    if (change.kind === 'promote') voters.add(change.id);
    else voters.delete(change.id);
    const ready = [...voters].filter((peer) => this.ready(peer)).length;
    return ready - (Math.floor(voters.size / 2) + 1);
  }

  /** As sort wants it: who rather votes comes first. */
  readonly byRank = (a: string, b: string): number => {
    const [left, right] = [this.rank(a), this.rank(b)];
    for (const [at, value] of left.entries()) {
      const other = right[at];
      if (typeof value === 'number' && typeof other === 'number' && value !== other) return value - other;
    }
    return byBytes(a, b);
  };

  rank(peer: string): Rank {
    const member = this.members.get(peer);
    return [
      this.tiers.get(peer) ?? NONE,
      member?.headless === true ? 0 : 1,
      member?.durable === true ? 0 : 1,
      this.votes(peer) ? 0 : 1,
      peer === this.leader ? 0 : 1,
      member?.seniority ?? 0,
    ];
  }

  settledIn({ id, headless, sight }: Candidate): boolean {
    const long = headless ? this.patience.settleMs : this.patience.longMs;
    return id === this.leader || (sight.connected && this.nowMs - sight.connectedMs >= long);
  }

  /** Null: it should not vote, whoever else there is. */
  private tier(member: Candidate): Tier | null {
    const { id, sight, headless, durable } = member;
    const votes = id === this.leader ? true : this.lives.get(id);
    if (votes === undefined || member.leaving || !member.mayVote) return null;
    const weak = sight.flapping || !(headless || durable);
    if (!votes) {
      const calm = sight.ailingMs === null || this.nowMs - sight.ailingMs >= this.patience.calmMs;
      if (!member.caughtUp || !this.settledIn(member)) return null;
      return weak || sight.ailing || !calm ? WEAK : WELL;
    }
    const awayMs = this.here(id) ? 0 : this.nowMs - sight.connectedMs;
    if (!this.here(id) && !headless && this.loneProcessLeads) return null;
    if (awayMs >= this.patience.lostMs) return awayMs < this.patience.goneMs ? AWAY : null;
    const ailing = sight.ailing && this.nowMs - (sight.ailingMs ?? 0) >= this.patience.ailingMs;
    return weak || ailing ? WEAK : WELL;
  }

  private get loneProcessLeads(): boolean {
    const processes = this.voters.filter((peer) => this.members.get(peer)?.headless === true);
    return (
      processes.includes(this.leader) && !processes.some((peer) => peer !== this.leader && this.here(peer))
    );
  }

  private whoShould(): ReadonlySet<string> {
    const pool = [...this.tiers.keys()].sort(this.byRank);
    const well = pool.filter((peer) => this.tiers.get(peer) === WELL);
    const headless = well.filter((peer) => this.members.get(peer)?.headless === true);
    if (headless.length >= ENOUGH) return firstOdd(headless, MAX_VOTERS);
    if (well.length >= ENOUGH) return firstOdd(well, headless.length === ENOUGH - 1 ? ENOUGH : MAX_VOTERS);
    return pool.length > 0 ? firstOdd(pool, ENOUGH) : new Set(this.voters);
  }
}

function firstOdd(peers: readonly string[], most: number): ReadonlySet<string> {
  const count = Math.min(peers.length, most);
  return new Set(peers.slice(0, count % 2 === 1 ? count : count - 1));
}

// --- the rules, the most urgent first

/** Half of an even configuration is away: without one of those the other half is a majority. */
function shrink(view: View): Move | null {
  const { voters, members, alive } = view;
  if (voters.length !== 2 * alive.size) return null;
  const id = voters.findLast((peer) => !view.here(peer));
  if (id === undefined) return null;
  return {
    do: { kind: members.has(id) ? 'demote' : 'remove', id },
    why: `half of ${voters.length} voters is away: without ${id} the others are a majority`,
  };
}

/** The leader goes: to the best voter, and where there is none, the best learner votes first. */
function leave(view: View): Move | null {
  const { leader, members } = view;
  if (members.get(leader)?.leaving !== true) return null;
  const others = [...members.values()]
    .filter(({ id, leaving, mayVote }) => id !== leader && !leaving && mayVote && view.ready(id))
    .map(({ id }) => id)
    .sort(view.byRank);
  const to = others.find((peer) => view.votes(peer));
  if (to !== undefined) return { do: { kind: 'hand_over', to }, why: 'the leader leaves' };
  for (const id of others) {
    const promote: Change = { kind: 'promote', id };
    if (view.spare(promote) >= 0) return { do: promote, why: 'the leader leaves, and nobody else votes' };
  }
  return null;
}

interface Step {
  readonly do: Change;
  readonly why: string;
}

/** Who left goes, who came learns, and who lost its storage learns anew in its present life; voters first. */
function followMembers(view: View): Move | null {
  const { servers, members, leader } = view;
  const steps: Step[] = [];
  for (const voter of [true, false]) {
    for (const server of servers) {
      const step = server.voter === voter && server.id !== leader ? otherLife(view, server) : null;
      if (step !== null) steps.push(step);
    }
  }
  const known = new Set(servers.map(({ id }) => id));
  const came = [...members.values()].filter((member) => !known.has(member.id) && learns(member));
  came.sort(
    (a, b) => Number(b.headless) - Number(a.headless) || a.seniority - b.seniority || byBytes(a.id, b.id),
  );
  for (const { id, incarnation } of came) {
    steps.push({ do: { kind: 'add_learner', id, incarnation }, why: `${id} came` });
  }
  return steps.find((step) => view.spare(step.do) >= 0) ?? null;
}

function otherLife({ members }: View, { id, incarnation: named }: Server): Step | null {
  const member = members.get(id);
  if (member === undefined) return { do: { kind: 'remove', id }, why: `${id} is no member any more` };
  const { incarnation } = member;
  if (incarnation < named) return { do: { kind: 'remove', id }, why: `${id} came back in another life` };
  if (incarnation === named || !learns(member)) return null;
  return { do: { kind: 'add_learner', id, incarnation }, why: `${id} lost what it had stored` };
}

function learns({ sight, leaving }: Candidate): boolean {
  return sight.connected && !leaving;
}

/** One step from those who vote to those who should; of two steps the one that leaves more to spare. */
function approach(view: View): Move | null {
  const { voters, wanted, members, leader, alive } = view;
  const come = [...wanted].filter((peer) => !view.votes(peer)).sort(view.byRank);
  const go = voters.filter((peer) => members.has(peer) && peer !== leader && !wanted.has(peer));
  go.sort((a, b) => view.byRank(b, a));
  go.sort((a, b) => Number(alive.has(a)) - Number(alive.has(b)));
  const steps: Step[] = go.map((id) => ({ do: { kind: 'demote', id }, why: `${id} ${failing(view, id)}` }));
  if (voters.length < MAX_VOTERS) {
    for (const id of come) steps.push({ do: { kind: 'promote', id }, why: `${id} can vote` });
  }
  let best: Step | null = null;
  let bestSpare = -1;
  for (const step of steps) {
    const spare = view.spare(step.do);
    if (spare > bestSpare) [best, bestSpare] = [step, spare];
  }
  return best;
}

function failing(view: View, peer: string): string {
  if (!view.here(peer)) return 'is away';
  if (view.members.get(peer)?.leaving === true) return 'leaves';
  const tier = view.tiers.get(peer);
  if (tier === undefined) return 'does not vote';
  return tier === WEAK ? 'is hidden, low on battery or flapping' : 'is not needed to vote';
}

/** To the best voter, where it is better by more than a shade, or the leader should not vote. */
function handOver(view: View): Move | null {
  const { voters, wanted, members, leader } = view;
  if (!view.mayHandOver) return null;
  const [to] = voters
    .filter((peer) => {
      const member = members.get(peer);
      return (
        peer !== leader &&
        member !== undefined &&
        wanted.has(peer) &&
        view.ready(peer) &&
        view.settledIn(member)
      );
    })
    .sort(view.byRank);
  if (to === undefined) return null;
  if (!wanted.has(leader)) return { do: { kind: 'hand_over', to }, why: `${leader} should not vote` };
  const [tier = NONE, browser = 1] = view.rank(to);
  const [leadersTier = NONE, leadersBrowser = 1] = view.rank(leader);
  if (tier > leadersTier || (tier === leadersTier && browser >= leadersBrowser)) return null;
  const reason = members.get(to)?.headless === true ? 'has no window' : 'is well';
  return { do: { kind: 'hand_over', to }, why: `${to} ${reason}` };
}

// --- what is seen of members

/** Tells since when things are so. A new leader begins with a new one: patience begins anew with it. */
export class Watch {
  private readonly seen = new Map<string, Omit<Sight, 'flapping'>>();
  private readonly losses = new Map<string, readonly number[]>(); // the last FLAPS

  /** How `peer` is now; to be said of every member whenever that changes, and before each decision. */
  see(nowMs: number, peer: string, connected: boolean, ailing: boolean): void {
    const before = this.seen.get(peer);
    if (before === undefined) {
      this.seen.set(peer, { connected, connectedMs: nowMs, ailing, ailingMs: ailing ? nowMs : null });
      return;
    }
    if (before.connected && !connected) {
      this.losses.set(peer, [...(this.losses.get(peer) ?? []), nowMs].slice(-FLAPS));
    }
    this.seen.set(peer, {
      connected,
      connectedMs: connected === before.connected ? before.connectedMs : nowMs,
      ailing,
      ailingMs: ailing === before.ailing ? before.ailingMs : nowMs,
    });
  }

  /** Of a peer that was never seen: not connected, since now. */
  sight(nowMs: number, peer: string): Sight {
    const seen = this.seen.get(peer) ?? {
      connected: false,
      connectedMs: nowMs,
      ailing: false,
      ailingMs: null,
    };
    const recent = (this.losses.get(peer) ?? []).filter((at) => nowMs - at < FLAP_WINDOW_MS);
    return { ...seen, flapping: recent.length >= FLAPS };
  }

  /** Forgets those who left. */
  keep(known: (peer: string) => boolean): void {
    for (const peer of [...this.seen.keys()]) {
      if (known(peer)) continue;
      this.seen.delete(peer);
      this.losses.delete(peer);
    }
  }
}
