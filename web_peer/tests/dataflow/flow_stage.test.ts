/* What stages of runs decide is what Python's decide, call by call. */

import { describe, expect, test } from 'vitest';

import { type FlowRoute, flowRoute } from '../../src/dataflow/flow_route';
import { type FlowEffect, FlowStages } from '../../src/dataflow/flow_stage';
import { bytesOfStrings, fromBytes, stringsOf, toBytes } from '../../src/dataflow/value_codec';
import { fromHex, toHex } from '../../src/wire/hex';
import {
  arrayOf,
  arraysOf,
  type Call,
  flow,
  manifestOf,
  pairsOf,
  stagesOf,
  type Triple,
  valueOf,
} from './flow_vectors';

const { routes, schedules, values } = flow;

function shown(effect: FlowEffect): unknown {
  if (effect.kind === 'sendValue') return { ...effect, array: valueOf(effect.array) };
  if (effect.kind !== 'compute') return effect;
  return { ...effect, inputs: pairsOf(effect.inputs) };
}

function outcome<T>(work: () => T): T | string {
  try {
    return work();
  } catch (error) {
    return (error as Error).message;
  }
}

test('routes are those of Python, or refused alike', () => {
  const sorted = <T>(map: ReadonlyMap<number, T>): unknown => [...map].sort(([a], [b]) => a - b);
  const found = routes.map(({ name, stages }) =>
    outcome(() => {
      const { needs, gives, takers, makers } = flowRoute(manifestOf(name), stagesOf(stages), 'origin');
      return { needs, gives, takers: sorted(takers), makers: sorted(makers) };
    }),
  );
  expect(found).toEqual(
    routes.map(({ says, needs, gives, takers, makers }) => says ?? { needs, gives, takers, makers }),
  );
});

describe.each(schedules)('$name, seed $seed, as $me', ({ name, me, most_bytes: mostBytes, calls }) => {
  test('decides the same', () => {
    const manifest = manifestOf(name);
    const stages = new FlowStages(me, mostBytes);
    const route = (triples: readonly Triple[], origin: string): FlowRoute =>
      flowRoute(manifest, stagesOf(triples), origin);
    const made = ({ call, said }: Call): FlowEffect[] => {
      const text = (at: number): string => said[at] as string;
      const number = (at: number): number => said[at] as number;
      switch (call) {
        case 'open':
          stages.open(text(0), number(1), route(said[2] as Triple[], text(3)));
          return [];
        case 'go':
          return stages.go(text(0), text(1), number(2), number(3));
        case 'value':
          return stages.value(text(0), text(1), number(2), number(3), number(4), arrayOf(number(5)));
        case 'computed':
          return stages.computed(text(0), number(1), arraysOf(said[2] as [number, number][]));
        case 'failed':
          return stages.failed(text(0), number(1), number(2), number(3), text(4));
        case 'close':
          return stages.close(text(0), text(1));
        case 'gone':
          stages.gone(number(0), text(1));
          return [];
        case 'back':
          stages.back(text(0));
          return [];
        case 'tick':
          return stages.tick(number(0));
        default:
          throw new Error(`no call ${call}`);
      }
    };
    for (const call of calls) {
      const found = outcome(() => made(call).map(shown));
      expect({ ...call, effects: found, kept: stages.keptBytes }).toEqual(call);
    }
  });
});

test('values come back from bytes, and what is none is refused', () => {
  const found = values.map(({ dtype, sizes, shape, data }) => {
    const value = { name: 'v', dtype, shape: sizes, bytes: [] };
    const made = outcome(() => toHex(toBytes(fromBytes(fromHex(data), shape, value))));
    return made === data;
  });
  expect(found).toEqual(values.map(({ taken }) => taken));
});

test('strings come back', () => {
  const words = ['', 'é', '\0 zero', '日本語'];
  expect(stringsOf(bytesOfStrings(words), [2, 2], 'v')).toEqual(words);
});
