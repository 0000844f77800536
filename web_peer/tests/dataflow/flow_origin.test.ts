/* What origins of runs decide is what Python's decide, call by call. */

import { describe, expect, test } from 'vitest';

import { FlowOrigin, type OriginFlowEffect } from '../../src/dataflow/flow_origin';
import { flowRoute } from '../../src/dataflow/flow_route';
import type { ValueArray } from '../../src/dataflow/value_codec';
import { arrayOf, arraysOf, flow, manifestOf, pairsOf, stagesOf, type Triple, valueOf } from './flow_vectors';

function shown(effect: OriginFlowEffect): unknown {
  if (effect.kind === 'sendValue') return { ...effect, array: valueOf(effect.array) };
  return effect.kind === 'itemDone' ? { ...effect, outputs: pairsOf(effect.outputs) } : effect;
}

describe.each(flow.origins)('$name, seed $seed', ({ name, calls }) => {
  test('decides the same', () => {
    const manifest = manifestOf(name);
    const [made, ...later] = calls;
    if (made === undefined) throw new Error('an origin that nobody made');
    const routeOf = (said: readonly unknown[]) =>
      flowRoute(manifest, stagesOf(said[0] as Triple[]), said[1] as string);
    const origin = new FlowOrigin(made.said[0] as string, routeOf(made.said.slice(1)));
    const effectsOf = (call: string, said: readonly unknown[]): OriginFlowEffect[] => {
      const text = (at: number): string => said[at] as string;
      const number = (at: number): number => said[at] as number;
      switch (call) {
        case 'submit':
          return origin.submit(arraysOf(said[0] as [number, number][]))[1];
        case 'reroute':
          origin.reroute(routeOf(said));
          return [];
        case 'opened':
          return origin.opened();
        case 'value':
          return origin.value(text(0), number(1), number(2), number(3), arrayOf(number(4)));
        case 'failed':
          return origin.failed(text(0), number(1), number(2), text(3));
        case 'drop':
          return origin.drop(number(0));
        default:
          throw new Error(`no call ${call}`);
      }
    };
    for (const call of later) {
      const effects = effectsOf(call.call, call.said).map(shown);
      expect({ ...call, effects, under_way: origin.underWay, below: origin.below }).toEqual(call);
    }
  });
});

test('an output is wanted once, from who makes it, in this epoch', () => {
  const route = flowRoute(
    manifestOf('towers'),
    stagesOf([[0, manifestOf('towers').units.length, 'p']]),
    'me',
  );
  const origin = new FlowOrigin('00', route);
  const [item] = origin.submit(new Map<number, ValueArray>());
  const [output = 0] = route.outputs;
  expect(origin.takes('p', 1, item, output)).toBe(true);
  expect(origin.takes('q', 1, item, output)).toBe(false);
  expect(origin.takes('p', 2, item, output)).toBe(false);
  expect(origin.takes('p', 1, item + 1, output)).toBe(false);
});
