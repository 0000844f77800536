/* Decides, from a seed alone, what one simulated run is made of: the mesh, who asks what, and what goes wrong when. */

import type { SessionId } from '../../src/wire/generated/frames';
import type { PlanRecord, PlanStage } from '../../src/state/generated/commands';
import { GREEDY, type Sampling, samplingOf } from '../../src/session/sampling';
import { Chance } from './random';
import { UNITS, VOCAB } from './toy';

/** One question: `keep` tokens of the conversation so far (null: all; below 0: all but so many), then `fresh`. */
export interface Turn {
  readonly keep: number | null;
  readonly fresh: readonly number[];
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly endTokens: readonly number[];
  readonly stopAfter: number | null; // the asker stops the answer at this many tokens
  readonly pauseS: number;
}

/** One session and its questions. */
export interface Talk {
  readonly session: SessionId;
  readonly asker: string;
  readonly turns: readonly Turn[];
  readonly stays: boolean; // the asker never lets the session go
}

const FAULTS = {
  crash: 6,
  crashRestart: 4,
  freeze: 4,
  drop: 5,
  slow: 2,
  spike: 2,
  leave: 1,
  replan: 4,
  full: 2,
  vanish: 1,
  stranger: 3,
} as const;
export type FaultKind = keyof typeof FAULTS;
const KINDS = Object.entries(FAULTS).flatMap(([kind, count]) =>
  Array<FaultKind>(count).fill(kind as FaultKind),
);

/** At `atS`: `kind` happens to `peer` (and its link to `other`), for `lastsS`. */
export interface Fault {
  readonly atS: number;
  readonly kind: FaultKind;
  readonly peer: string;
  readonly other: string;
  readonly lastsS: number;
}

/** Times in seconds, chances from 0 to 1. */
export interface Pace {
  readonly linkS: number;
  readonly jitterS: number;
  readonly tokenS: number;
  readonly duplicates: number; // of a frame to come twice
  readonly encoded: boolean; // every frame goes through its bytes
  readonly noticeS: number; // at most so long until an end of a connection hears that it is lost
  readonly logS: number; // at most so long until the coordinator knows of a loss
  readonly hintS: number; // at most so long until signaling says so to everyone (0: it never does)
  readonly patienceS: number; // that an asker has with an answer to WHERE
  readonly spareLoss: number; // chance that frames to a shadow are dropped
}

export interface Schedule {
  readonly seed: number;
  readonly peers: readonly string[]; // that compute
  readonly askers: readonly string[];
  readonly plan: PlanRecord;
  readonly slots: number;
  readonly logBytes: number;
  readonly standbysDo: 'nothing' | 'shadow' | 'keep';
  readonly hopeful: boolean; // askers wait for a plan that holds what was lost
  readonly talks: readonly Talk[];
  readonly faults: readonly Fault[];
  readonly pace: Pace;
}

/** The same for the same seed, whatever the machine. */
export function makeSchedule(seed: number): Schedule {
  const chance = new Chance(seed);
  const stages = chance.pick([1, 2, 2, 3, 3, 3]);
  const borders = chance.some([1, 2, 3, 4, 5], stages - 1);
  const cuts = [0, ...borders, UNITS];
  const primaries = Array.from({ length: stages }, (_, at) => `p${at}`);
  const spares = chance.pick([0, 0, 1, 1, 2]);
  const standbys = chance.pick([0, 1, 1, 1, 2]);
  const extra = Array.from({ length: standbys > 0 ? chance.whole(1, stages) : 0 }, (_, at) => `s${at}`);
  const planStages = primaries.map((primary, at): PlanStage => {
    const pool = [...primaries, ...extra]
      .filter((peer) => peer !== primary)
      .map((peer) => ({ peer, key: (peer.startsWith('s') ? 0 : 1) + chance.next() }))
      .sort((a, b) => a.key - b.key)
      .map(({ peer }) => peer);
    const count = chance.next() < 0.9 ? standbys : 0;
    return {
      first: cuts[at] ?? 0,
      stop: cuts[at + 1] ?? UNITS,
      primary,
      standbys: pool.slice(0, count),
      weightBytes: 0,
      kvBytes: 0,
      overheadBytes: 0,
    };
  });
  const peers = [...primaries, ...extra, ...Array.from({ length: spares }, (_, at) => `x${at}`)];
  const askers = ['asker', 'other'].slice(0, chance.pick([1, 1, 2]));
  if (chance.next() < 0.3) askers.push(chance.pick(peers));
  const talks = Array.from({ length: chance.pick([1, 1, 2, 2, 3]) }, (_, at) =>
    talkOf(chance, at, chance.pick(askers)),
  );
  const pace: Pace = {
    linkS: chance.pick([0.0005, 0.002, 0.005, 0.02]),
    jitterS: chance.pick([0, 0.002, 0.01]),
    tokenS: chance.pick([0.001, 0.004, 0.01]),
    duplicates: chance.pick([0, 0, 0.02, 0.1]),
    encoded: chance.next() < 0.03,
    noticeS: chance.pick([0, 0.05, 0.5, 4]),
    logS: chance.pick([0.1, 0.5, 2]),
    hintS: chance.pick([0, 0.05]),
    patienceS: chance.pick([0.08, 0.25]),
    spareLoss: chance.pick([0, 0, 0.1, 0.5]),
  };
  const busyS = 0.3 + 12 * stages * (pace.linkS + pace.jitterS / 2 + pace.tokenS);
  const faults = Array.from({ length: chance.pick([0, 1, 1, 1, 2, 2, 3, 4]) }, () =>
    faultOf(chance, peers, askers, busyS),
  );
  return {
    seed,
    peers,
    askers,
    plan: {
      version: 1,
      stages: planStages,
      predictedTokenUs: 0,
      predictedRateMilli: 0,
      why: [],
      choices: [],
    },
    slots: chance.pick([2, 4, 4, 4]),
    logBytes: chance.pick([64, 256, 1 << 20, 1 << 20]),
    standbysDo: chance.pick(['nothing', 'shadow', 'shadow', 'keep']),
    hopeful: chance.next() < 0.7,
    talks,
    faults: faults.sort((a, b) => a.atS - b.atS),
    pace,
  };
}

/** The same questions, and nothing goes wrong. */
export function calm(schedule: Schedule): Schedule {
  return { ...schedule, faults: [], pace: { ...schedule.pace, duplicates: 0 } };
}

function talkOf(chance: Chance, index: number, asker: string): Talk {
  const turns = Array.from({ length: chance.pick([1, 1, 1, 2, 2, 3]) }, (_, number): Turn => {
    const edited = number > 0 && chance.next() < 0.3;
    const maxTokens = chance.whole(2, 10);
    const fresh = chance.pick([1, 2, 4, 5, 9, 14, 33, 40, 70]);
    return {
      keep: edited ? chance.pick([-fresh, chance.whole(0, 6)]) : null,
      fresh: Array.from({ length: fresh }, () => chance.whole(0, VOCAB - 1)),
      maxTokens,
      sampling: samplingFrom(chance),
      endTokens: chance.pick([[], [], [3], [3, 8]]),
      stopAfter: chance.next() < 0.2 ? chance.whole(1, maxTokens) : null,
      pauseS: chance.pick([0, 0.02, 0.5]),
    };
  });
  return {
    session: String(index + 1)
      .padStart(2, '0')
      .repeat(16),
    asker,
    turns,
    stays: chance.next() < 0.05,
  };
}

function samplingFrom(chance: Chance): Sampling {
  const seed = chance.whole(0, 2 ** 40);
  switch (chance.whole(0, 3)) {
    case 0:
      return GREEDY;
    case 1:
      return samplingOf({ temperature: 1, seed });
    default:
      return samplingOf({
        temperature: chance.pick([0, 0.8]),
        repetitionPenalty: 1.3,
        frequencyPenalty: 0.4,
        seed,
      });
  }
}

function faultOf(chance: Chance, peers: readonly string[], askers: readonly string[], busyS: number): Fault {
  const kind = chance.pick(KINDS);
  const peer = chance.pick(kind === 'vanish' ? askers : peers);
  const other = chance.pick([...new Set([...peers, ...askers])].filter((one) => one !== peer));
  const lasts: Partial<Record<FaultKind, readonly number[]>> = {
    freeze: [0.1, 0.5, 3],
    slow: [1],
    spike: [0.1, 1],
  };
  return {
    atS: chance.next() * busyS,
    kind,
    peer,
    other,
    lastsS: chance.pick(lasts[kind] ?? [0.05, 0.4, 2]),
  };
}
