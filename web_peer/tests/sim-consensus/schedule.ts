/*
 * Decides, from a seed alone, what one simulated run is made of: the servers, their pace, and what happens when.
 *
 * A schedule is a story or two, each a short list of actions that together lead to a situation which is rare by chance
 * (a leader cut off with an entry of its own, a snapshot under way when the leader changes), and some actions at
 * random. Actions name servers by role; who that is comes out when the action happens. Stories know nothing of defects.
 */

import { type Settings, SETTINGS } from '../../src/consensus/events';
import { type Chance, Chance as Dice } from '../sim/random';

export type Kind =
  | 'propose'
  | 'read'
  | 'crash'
  | 'crash_at_write'
  | 'restart_all'
  | 'wipe'
  | 'isolate'
  | 'cut'
  | 'cut_to'
  | 'cut_from'
  | 'cut_but_one'
  | 'bridge'
  | 'stall'
  | 'pause'
  | 'jump'
  | 'slow_disk'
  | 'compact'
  | 'transfer'
  | 'unreachable'
  | 'add'
  | 'promote'
  | 'demote'
  | 'remove';

export type Who = 'leader' | 'old_leader' | 'follower' | 'voter' | 'learner' | 'outside' | 'any' | 'last'; // whom the last action before it meant

/** At `atMs`, `kind` happens to `who` (and `other`), for `lastsMs`; `number` chooses among several. */
export interface Action {
  readonly atMs: number;
  readonly kind: Kind;
  readonly who: Who;
  readonly other: Who;
  readonly lastsMs: number;
  readonly number: number;
}

/** Times in milliseconds, chances from 0 to 1. */
export interface Pace {
  readonly delayMs: number;
  readonly jitterMs: number;
  readonly loss: number;
  readonly duplicates: number;
  readonly late: number; // chance of a message to come very late
  readonly lateMs: number;
  readonly diskMs: number;
  readonly applyMs: number;
}

export interface Schedule {
  readonly seed: number;
  readonly voters: readonly string[]; // at first
  readonly learners: readonly string[]; // at first
  readonly spares: readonly string[]; // servers that no configuration names yet
  readonly settings: Settings;
  readonly pace: Pace;
  readonly actions: readonly Action[];
  readonly endsMs: number; // then everything heals
  readonly wire: boolean; // every message goes through its bytes
}

type Story = (chance: Chance, at: number) => Action[];
const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];

function act(chance: Chance, atMs: number, kind: Kind, who: Who, lastsMs = 0, other: Who = 'any'): Action {
  return { atMs: Math.max(0, Math.round(atMs)), kind, who, other, lastsMs, number: chance.whole(0, 999) };
}

function some(chance: Chance, at: number, kind: Kind, who: Who, most: number): Action[] {
  return Array.from({ length: chance.whole(1, most) }, (_, turn) => act(chance, at + 15 * turn, kind, who));
}

/** A leader is cut off with entries of its own; the others go on without it, then it comes back. */
const deposed: Story = (chance, at) => {
  const lasts = chance.pick([2500, 4500]);
  const actions = [
    ...some(chance, at - 200, 'propose', 'leader', 2),
    act(chance, at, 'isolate', 'leader', lasts),
    ...some(chance, at + 5, 'propose', 'old_leader', 3),
    act(chance, at + chance.whole(1800, lasts), 'propose', 'leader'),
  ];
  if (chance.next() < 0.5)
    actions.push(act(chance, at + chance.pick([10, lasts - 600]), 'read', 'old_leader'));
  if (chance.next() < 0.3) actions.push(act(chance, at + lasts - 300, 'compact', 'leader'));
  if (chance.next() < 0.4) {
    actions.push(act(chance, at + lasts + chance.pick([20, 100, 400]), 'crash', 'any', 500));
  }
  return actions;
};

/** Leader after leader is lost soon after it was elected, each with an entry that few have. */
const dethroned: Story = (chance, at) =>
  Array.from({ length: chance.whole(2, 3) }, (_, turn) => at + turn * 2600).flatMap((begin) => [
    act(chance, begin, 'cut_but_one', 'leader', 2200),
    ...some(chance, begin + 5, 'propose', 'leader', 2),
    act(chance, begin + chance.pick([100, 300]), 'crash', 'old_leader', chance.pick([900, 2500])),
  ]);

/** An election under way when voters crash with what they have not written, and come back at once. */
const lateVoters: Story = (chance, at) =>
  Array.from({ length: chance.whole(1, 2) }, (_, turn) => at + turn * 2000).flatMap((begin) => [
    act(chance, begin, 'crash', 'leader', chance.pick([1500, 4000])),
    act(chance, begin, 'slow_disk', 'voter', 1500),
    act(chance, begin + 5, 'unreachable', 'voter', 0, 'old_leader'),
    act(chance, begin + 6, 'unreachable', 'voter', 0, 'old_leader'),
    act(chance, begin + 10, 'crash_at_write', 'voter', chance.pick([5, 50])),
    act(chance, begin + 10, 'crash_at_write', 'voter', chance.pick([5, 50])),
  ]);

/** All servers lose power together, with entries that are not everywhere yet. */
const everyoneRestarts: Story = (chance, at) => {
  const actions = some(chance, at - 60, 'propose', 'leader', 3);
  if (chance.next() < 0.5) actions.push(act(chance, at - 300, 'compact', 'any'));
  if (chance.next() < 0.5) actions.push(act(chance, at - 2500, 'isolate', 'leader', 2400));
  actions.push(act(chance, at, 'restart_all', 'any', chance.pick([10, 200, 1000])));
  if (chance.next() < 0.5) actions.push(act(chance, at + 300, 'isolate', 'follower', 2500));
  return actions;
};

/** A follower misses so much that it needs the snapshot; something happens while that is on its way. */
const leftBehind: Story = (chance, at) => {
  const lasts = chance.pick([1200, 2500]);
  const actions = [
    act(chance, at, chance.pick(['isolate', 'isolate', 'crash', 'pause']), 'follower', lasts),
    ...some(chance, at + 100, 'propose', 'leader', 6),
    act(chance, at + lasts - 300, 'compact', 'leader'),
  ];
  let meanwhile = at + lasts + chance.pick([20, 60, 150, 400]);
  const what: Kind[] = [
    'crash',
    'crash_at_write',
    'isolate',
    'compact',
    'propose',
    'transfer',
    'pause',
    'stall',
  ];
  for (let left = chance.pick([1, 1, 2]); left > 0; left--) {
    const whom = chance.pick<Who>(['leader', 'last', 'follower']);
    actions.push(act(chance, meanwhile, chance.pick(what), whom, chance.pick([100, 500, 2500]), 'follower'));
    meanwhile += chance.pick([5, 80, 400]);
  }
  return actions;
};

function change(chance: Chance, at: number, kinds: readonly Kind[], other: Who = 'leader'): Action {
  const kind = chance.pick(kinds);
  const who =
    kind === 'add' ? 'outside' : kind === 'promote' ? 'learner' : chance.pick<Who>(['follower', 'leader']);
  return act(chance, at, kind, who, 0, other);
}

/** The members change, one after the other and too fast, while the leader is lost. */
const changes: Story = (chance, at) => {
  const actions: Action[] = [];
  let when = at;
  for (let left = chance.whole(2, 5); left > 0; left--) {
    actions.push(change(chance, when, ['add', 'add', 'promote', 'promote', 'promote', 'remove', 'demote']));
    if (chance.next() < 0.3) {
      actions.push(
        act(chance, when + chance.pick([0, 5, 30]), chance.pick(['isolate', 'crash']), 'leader', 2500),
      );
    }
    if (chance.next() < 0.2) actions.push(act(chance, when + 1, 'propose', 'leader'));
    when += chance.pick([1, 30, 300, 1500]);
  }
  return actions;
};

/** A leader that is cut off changes the members, and so does the next one. */
const cutOffChange: Story = (chance, at) => {
  const lasts = chance.pick([3000, 4500]);
  const actions: Action[] = chance.next() < 0.6 ? [act(chance, at - 900, 'add', 'outside', 0, 'leader')] : [];
  actions.push(act(chance, at, chance.pick(['isolate', 'cut_but_one', 'cut_but_one']), 'leader', lasts));
  actions.push(change(chance, at + 5, ['promote', 'remove', 'remove', 'demote', 'add'], 'old_leader'));
  actions.push(...some(chance, at + 20, 'propose', 'old_leader', 2));
  for (let left = 2; left > 0; left--) {
    const wait = chance.whole(1500, 2900);
    actions.push(change(chance, at + wait, ['promote', 'remove', 'remove', 'add']));
    actions.push(act(chance, at + wait + 60, 'propose', 'leader'));
  }
  if (chance.next() < 0.4) {
    actions.push(act(chance, at + chance.whole(800, 2900), 'crash', 'leader', chance.pick([100, 2500])));
  }
  return actions;
};

/** A leader is removed, alone or while something else goes on. */
const leaderLeaves: Story = (chance, at) => {
  const actions = [
    ...some(chance, at - 20, 'propose', 'leader', 2),
    act(chance, at, 'remove', 'leader', 0, 'leader'),
  ];
  if (chance.next() < 0.4) actions.push(act(chance, at + chance.pick([0, 5, 30]), 'isolate', 'leader', 2500));
  return [...actions, ...some(chance, at + 3, chance.pick(['propose', 'read']), 'leader', 2)];
};

/** A server loses its storage and is taken in again under its old id, while messages of its first life are late. */
const secondLife: Story = (chance, at) => {
  const actions = some(chance, at - 400, 'propose', 'leader', 3);
  actions.push(act(chance, at - 300, 'stall', 'follower', chance.pick([100, 1500, 4000])));
  actions.push(act(chance, at - 200, 'propose', 'leader'));
  actions.push(act(chance, at - 30, 'wipe', 'last'));
  if (chance.next() < 0.5) actions.push(act(chance, at, 'remove', 'last', 0, 'leader'));
  const again = at + chance.pick([300, 700, 1500]);
  actions.push(act(chance, again, 'add', 'last', 0, 'leader'));
  actions.push(act(chance, again + 20, 'propose', 'leader'));
  actions.push(act(chance, again + chance.pick([200, 700]), 'promote', 'last', 0, 'leader'));
  return actions;
};

/** Reads at a leader that may be none any more, or has only just become one. */
const reads: Story = (chance, at) => {
  const kind = chance.pick<Kind>(['pause', 'isolate', 'cut_from', 'cut_to', 'transfer', 'crash', 'stall']);
  const lasts = chance.pick([1000, 3500]);
  const actions = [
    ...some(chance, at - 300, 'propose', 'leader', 2),
    act(chance, at - 5, 'read', 'leader'),
    act(chance, at, kind, 'leader', lasts, 'follower'),
  ];
  for (let left = chance.whole(1, 3); left > 0; left--) {
    actions.push(act(chance, at + chance.whole(0, lasts + 200), 'read', 'old_leader'));
  }
  for (const wait of [lasts / 2, lasts - 200, lasts - 50]) {
    actions.push(
      act(chance, at + wait, 'propose', 'leader'),
      act(chance, at + wait + 40, 'read', 'old_leader'),
    );
  }
  return actions;
};

/** Leadership is handed over, and one of the two ends is lost meanwhile. */
const handover: Story = (chance, at) => {
  const actions = [act(chance, at, 'transfer', 'leader', 0, 'follower')];
  if (chance.next() < 0.7) {
    const when = at + chance.pick([-300, -5, 1, 5, 20]);
    const kind = chance.pick<Kind>(['isolate', 'crash', 'pause']);
    actions.push(act(chance, when, kind, chance.pick(['last', 'leader']), chance.pick([600, 2500])));
  }
  actions.push(...some(chance, at + 2, chance.pick(['propose', 'read', 'transfer']), 'old_leader', 2));
  actions.push(act(chance, at + chance.whole(2000, 3000), 'propose', 'leader'));
  return actions.sort((a, b) => a.atMs - b.atMs);
};

/** Servers that see each other only through some others. */
const bridges: Story = (chance, at) => {
  const lasts = chance.pick([3000, 6000]);
  const kind = chance.pick<Kind>(['bridge', 'cut_to', 'cut_from', 'cut_but_one']);
  return [
    act(chance, at, kind, chance.pick(['leader', 'follower']), lasts, 'follower'),
    act(chance, at + chance.whole(0, lasts), 'propose', 'any'),
    act(chance, at + chance.whole(0, lasts), 'propose', 'leader'),
  ];
};

/** Processes that stop for a while and clocks that jump. */
const pauses: Story = (chance, at) => {
  const actions: Action[] = [];
  let when = at;
  for (let left = chance.whole(1, 3); left > 0; left--) {
    const who = chance.pick<Who>(['leader', 'follower', 'voter']);
    actions.push(
      act(chance, when, chance.pick(['pause', 'pause', 'jump']), who, chance.pick([600, 2000, 4000])),
    );
    actions.push(act(chance, when + chance.whole(0, 3000), 'propose', 'leader'));
    actions.push(act(chance, when + chance.whole(0, 3000), 'read', 'any'));
    when += chance.whole(200, 2000);
  }
  return actions;
};

/** A follower's entries are written over by another leader's while acknowledgements are late. */
const rewritten: Story = (chance, at) => [
  act(chance, at, 'cut_but_one', 'leader', 2600),
  ...some(chance, at + 3, 'propose', 'old_leader', 3),
  act(chance, at + 2, 'slow_disk', 'follower', chance.pick([300, 3000])),
  act(chance, at + 100, 'stall', 'follower', chance.pick([2500, 4000])),
  act(chance, at + chance.pick([110, 300]), 'isolate', 'old_leader', 2600),
  act(chance, at + chance.whole(1500, 4000), 'propose', 'leader'),
  act(chance, at + chance.whole(1500, 4000), 'propose', 'leader'),
];

/** A quick writer, slow disks and snapshots at any moment. */
const wideLog: Story = (chance, at) => {
  const actions: Action[] = [];
  let when = at;
  for (let left = chance.whole(2, 4); left > 0; left--) {
    actions.push(...some(chance, when, 'propose', 'leader', 4));
    actions.push(act(chance, when + chance.whole(0, 200), 'compact', 'any'));
    const kind = chance.pick<Kind>(['slow_disk', 'crash', 'crash_at_write', 'crash_at_write', 'isolate']);
    actions.push(act(chance, when + chance.whole(0, 60), kind, 'any', chance.pick([30, 300, 1500])));
    when += chance.whole(50, 1200);
  }
  return actions;
};

const STORIES: readonly Story[] = [
  ...[deposed, deposed, dethroned, lateVoters, everyoneRestarts, leftBehind, leftBehind, changes, changes],
  ...[cutOffChange, cutOffChange, leaderLeaves, secondLife, secondLife, reads, reads, handover, bridges],
  ...[pauses, rewritten, rewritten, wideLog],
];
const ANYONE: readonly Who[] = [
  ...(['leader', 'leader', 'follower', 'follower', 'voter', 'any', 'learner', 'outside'] as const),
];
const ANYTHING: readonly Kind[] = [
  ...(['propose', 'propose', 'read', 'read', 'crash', 'crash_at_write', 'isolate', 'cut', 'bridge'] as const),
  ...(['stall', 'pause', 'slow_disk', 'jump', 'compact', 'compact', 'transfer', 'unreachable'] as const),
  ...(['add', 'promote', 'demote', 'remove', 'restart_all'] as const),
];

/** The same for the same seed, whatever the machine. */
export function makeSchedule(seed: number): Schedule {
  const chance = new Dice(seed);
  const voters = chance.pick([1, 2, 3, 3, 3, 3, 3, 3, 4, 5]);
  const learners = chance.pick([0, 0, 0, 1]);
  const spares = chance.pick([0, 1, 1]);
  const settings: Settings = {
    ...SETTINGS,
    heartbeatMs: 500,
    electionMaxMs: chance.pick([3000, 3000, 1700]),
    maxAppendBytes: chance.pick([24, 200, 65536]),
    snapshotChunkBytes: chance.pick([4, 6, 32768]),
    maxInflight: chance.pick([1, 2, 4]),
    keepTail: chance.pick([0, 0, 1, 3]),
  };
  const rough = chance.next();
  const pace: Pace = {
    delayMs: chance.pick([1, 10, 40]),
    jitterMs: chance.pick([0, 5, 40, 300]),
    loss: rough < 0.5 ? 0 : chance.pick([0.02, 0.1]),
    duplicates: rough < 0.3 ? 0 : chance.pick([0.02, 0.1]),
    late: rough < 0.4 ? 0 : chance.pick([0.02, 0.1]),
    lateMs: chance.pick([400, 2500, 5000]),
    diskMs: chance.pick([0, 1, 10, 200]),
    applyMs: chance.pick([0, 0, 0, 300]),
  };
  const begin = chance.whole(3200, 4000); // there is a leader
  const actions = chance.pick(STORIES)(chance, begin);
  let ends = Math.max(...actions.map(({ atMs, lastsMs }) => atMs + lastsMs)) + chance.whole(50, 400);
  for (let left = chance.pick([0, 0, 1, 2, 4]); left > 0; left--) {
    const lasts = chance.pick([200, 900, 2000]);
    const when = chance.whole(1000, ends);
    actions.push(act(chance, when, chance.pick(ANYTHING), chance.pick(ANYONE), lasts, chance.pick(ANYONE)));
  }
  actions.sort((a, b) => a.atMs - b.atMs);
  ends = Math.max(ends, (actions.at(-1)?.atMs ?? 0) + 1);
  return {
    seed,
    voters: NAMES.slice(0, voters),
    learners: NAMES.slice(voters, voters + learners),
    spares: NAMES.slice(voters + learners, voters + learners + spares),
    settings,
    pace,
    actions,
    endsMs: ends,
    wire: chance.next() < 0.02,
  };
}
