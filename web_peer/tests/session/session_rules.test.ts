/* Routes over a plan, what a seat can show of its rows, which seats and turns that are over are remembered: as in Python. */

import { describe, expect, it } from 'vitest';

import { ActivationLog } from '../../src/session/activation_log';
import { spanOf } from '../../src/session/evidence';
import { BadSampling } from '../../src/errors';
import { allowedOnly, maskWords, toWire } from '../../src/session/ask';
import { samplingOrFault, steeringOf } from '../../src/session/open_checks';
import {
  alikeUpTo,
  cutAt,
  type GivenRows,
  idsOf,
  rowsAt,
  shiftAt,
  shifted,
  shiftedIds,
} from '../../src/session/position_spans';
import { tellsIds } from '../../src/session/pinned_ends';
import { ANY, choose, holders, placed, standbyExpected, unserved } from '../../src/session/routes';
import { samplingOf, samplingToWire } from '../../src/session/sampling';
import { FOR_GOOD, Late, Over, Seat } from '../../src/session/seat';
import { apply, EMPTY_STATE } from '../../src/state/mesh_state';
import { decodeCommand } from '../../src/state/member_commands';
import type { PlanRecord } from '../../src/state/generated/commands';
import type { Open } from '../../src/wire/generated/frames';
import { floats, integers, tensorOf } from '../../src/wire/tensors';
import { camel, vectors } from '../vectors';

type Span = readonly [number, number, number]; // first position, rows, the number in them

interface Vectors {
  readonly routes: readonly {
    name: string;
    commands: string[];
    holders: string[][];
    unserved: { gone: string[]; stages: number[] }[];
    standby_expected: boolean;
    choices: {
      gone: string[];
      avoid: string[];
      backwards: number;
      standbys: number;
      shadows: number;
      loading: number;
      route: { plan: number; peers: string[]; shadows: [number, string][] } | null;
    }[];
  }[];
  readonly masks: readonly {
    vocab: number;
    allowed: number[];
    words: number[];
    sampling: number[];
    history: number[];
  }[];
  readonly placed: readonly { known: boolean; peers: string[]; placed: [number, number, string][] }[];
  readonly spans: readonly {
    limit: number;
    ops: { at: number; rows: number[]; count: number; spans: [number, number, number[] | null][] }[];
  }[];
  readonly tells: readonly { frame: Record<string, unknown>; tells: boolean }[];
  readonly given: readonly {
    spans: Span[];
    steps: [number, number][];
    cut: [number, number][];
    shifts: number[];
    ids: number[][];
    moved: number[][];
    found: (number[] | null)[];
    kept: [Span[], number, number][];
  }[];
  readonly late: readonly {
    name: string;
    seats: [number, number, number][];
    kept: [number, number, number][];
  }[];
  readonly over: readonly {
    asker: string;
    session: number;
    turn: number | null;
    late: [string, number, number, boolean][];
  }[];
}

const VECTORS = vectors('session_rules') as Vectors;
const MIB = 2 ** 20;
const idOf = (number: number): string => number.toString(16).padStart(2, '0').repeat(16);

function stateOf(commands: readonly string[]): typeof EMPTY_STATE {
  return commands.map((text) => decodeCommand(new TextEncoder().encode(text))).reduce(apply, EMPTY_STATE);
}

function openOf(fields: Readonly<Record<string, unknown>>): Open {
  const named = Object.entries(fields).map(([name, value]) => [camel(name), value]);
  return { ...(Object.fromEntries(named) as Open), history: new Int32Array(0) };
}

function opening(number: number, turn: number, origin: string): Open {
  const [{ frame }] = VECTORS.tells as [Vectors['tells'][number]];
  return { ...openOf(frame), session: idOf(number), turn, origin };
}

function planOf(row: Vectors['routes'][number]): PlanRecord {
  const { plan } = stateOf(row.commands);
  if (plan === null) throw new Error('the vectors hold a plan');
  return plan;
}

describe.each(VECTORS.routes)('routes: $name', (row) => {
  const state = stateOf(row.commands);
  const plan = planOf(row);

  it('who can serve each stage', () => {
    expect(plan.stages.map((stage) => holders(state, stage))).toEqual(row.holders);
  });

  it.each(row.unserved)('which stages nobody can serve without $gone', ({ gone, stages }) => {
    expect(unserved(state, plan, new Set(gone)).map(({ first }) => first)).toEqual(stages);
  });

  it('whether a standby still loads what nobody serves', () => {
    expect(standbyExpected(state, plan)).toBe(row.standby_expected);
  });

  it('which peers a session uses', () => {
    for (const { gone, avoid, backwards, standbys, shadows, loading, route } of row.choices) {
      const found = choose(state, plan, {
        ...ANY,
        gone: new Set(gone),
        avoid: new Set(avoid),
        order: (peers) => (backwards === 1 ? [...peers].reverse() : peers),
        standbys: standbys === 1,
        shadows: shadows === 1,
        loading: loading === 1,
      });
      const said = found && { ...found, shadows: found.shadows.map(({ stage, peer }) => [stage, peer]) };
      expect(said).toEqual(route);
    }
  });
});

it.each(VECTORS.placed)('units of a route over $peers', ({ known, peers, placed: wanted }) => {
  const [first] = VECTORS.routes as [Vectors['routes'][number]];
  const text = wanted.map(([from, to, peer]) => `${from}-${to}@${peer}`).join(' ');
  expect(placed(known ? planOf(first) : undefined, peers)).toBe(text);
});

it.each(VECTORS.spans)('rows of a log of at most $limit bytes', ({ limit, ops }) => {
  const log = new ActivationLog(limit);
  for (const { at, rows, count, spans } of ops) {
    log.append(at, tensorOf(Float32Array.from(rows), [count, 2]));
    for (const [first, stop, wanted] of spans) {
      const found = spanOf(log, first, stop);
      const values = found && [...new Float32Array(found.buffer)];
      expect({ first, stop, values }).toEqual({ first, stop, values: wanted });
    }
  }
});

it.each(VECTORS.tells)('whether inputs tell token ids: $tells', ({ frame, tells }) => {
  expect(tellsIds(openOf(frame))).toBe(tells);
});

function rowsOf(spans: readonly Span[]): GivenRows[] {
  return spans.map(([first, count, value]) => {
    const tensor = tensorOf(new Float32Array(2 * count).fill(value), [count, 2]);
    return { first, tensor, lost: count - 1 };
  });
}

it.each(VECTORS.given)('rows in a prompt: $spans', ({ spans, steps, cut, found, kept, ...also }) => {
  const here = rowsOf(spans);
  const made = cutAt(
    steps.map(([position, stop]) => ({ position, stop })),
    here,
  );
  expect(made.map(({ position, stop }) => [position, stop])).toEqual(cut);
  const shifts = made.map(({ position }) => shiftAt(here, position));
  expect(shifts.map((shift) => shift + 0)).toEqual(also.shifts);
  const ids = shifts.map((shift) => shiftedIds([7, 5], shift));
  expect(ids.map((tensor) => [...integers(tensor)])).toEqual(also.ids);
  expect(ids.map(idsOf)).toEqual(shifts.map((shift) => ({ ids: Int32Array.of(7, 5), shift })));
  const rows = Float32Array.from({ length: 12 }, (_, at) => at);
  expect(shifts.map((shift) => [...shifted(rows, 6, shift)])).toEqual(also.moved);
  const seen = made.map(({ position, stop }) => rowsAt(here, position, stop));
  expect(seen.map((tensor) => tensor && [...floats(tensor)])).toEqual(found);
  for (const [other, keep, wanted] of kept) expect(alikeUpTo(keep, here, rowsOf(other))).toBe(wanted);
});

it.each(VECTORS.late)('seats that are over: $name', ({ seats, kept }) => {
  const late = new Late();
  for (const [number, computed, mib] of seats) {
    const log = new ActivationLog(2 ** 30);
    for (let row = 0; row < mib; row++) log.append(row, tensorOf(new Float32Array(MIB / 4), [1, MIB / 4]));
    const settings = samplingOf({});
    const seat = new Seat(opening(number, 1, 'o'), { first: 0, stop: 3 }, settings, log, 0);
    seat.received = computed + 2;
    seat.submitted = seat.computed = computed;
    late.keep(String(number), seat);
  }
  const there = [...new Set(seats.map(([number]) => number))].flatMap((number) => {
    const seat = late.get(String(number));
    return seat === undefined ? [] : [[number, seat.log.bytes, seat.received]];
  });
  expect(there.sort(([a = 0], [b = 0]) => a - b)).toEqual(kept);
});

it('which OPENs come too late', () => {
  const over = new Over();
  for (const { asker, session, turn, late } of VECTORS.over) {
    over.note(asker, idOf(session), turn ?? FOR_GOOD);
    for (const [origin, number, at, isLate] of late) {
      const found = over.has(opening(number, at, origin));
      expect([origin, number, at, found]).toEqual([origin, number, at, isLate]);
    }
  }
});

it.each(VECTORS.masks)('a mask of $vocab tokens', ({ vocab, allowed, words, sampling, history }) => {
  expect(maskWords(vocab, (token) => allowed.includes(token))).toEqual(words);
  const settings = sampling.slice(0, 8);
  expect(toWire(settings, words, [5, 6])).toEqual({ sampling, history });
  const opening = { sampling, history: Int32Array.from(history) };
  expect(steeringOf(opening)).toEqual({ history: [5, 6], allowed: words });
  expect(samplingOrFault(opening, true)).not.toBeInstanceOf(BadSampling);
  const logits = Float32Array.from({ length: vocab + 3 }, (_, token) => token);
  const may = [...allowedOnly(logits, words)].flatMap((each, token) => (each === -Infinity ? [] : [token]));
  expect(may).toEqual(words.length === 0 ? [...logits] : allowed);
});

it.each([
  [[1, 0, 0], 0],
  [[0, 1, 0], 2],
  [[0, 0, 3], 2],
  [[0, 0], 2],
])('steering of %j with %i words is refused by a tab that draws', (more, words) => {
  const opening = { sampling: [...samplingToWire(samplingOf({})), ...more], history: new Int32Array(words) };
  expect(samplingOrFault(opening, true)).toBeInstanceOf(BadSampling);
  expect(samplingOrFault(opening, false)).not.toBeInstanceOf(BadSampling);
});
