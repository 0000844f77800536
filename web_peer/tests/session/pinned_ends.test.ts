/* An asker that keeps its ends: its traces, step by step as Python took them, and states that come twice. */

import { describe, expect, it } from 'vitest';

import type { Refuse, Step, Token } from '../../src/wire/generated/frames';
import { HandedBack } from '../../src/session/returned_states';
import { type Drawing, type Ends, notUsable, stateIn } from '../../src/session/pinned_ends';
import { samplingOf, samplingToWire } from '../../src/session/sampling';
import { OriginSession } from '../../src/session/origin';
import { tensorOf } from '../../src/wire/tensors';
import { effect, perform, type SessionTrace, stateOf } from './session_traces';
import { frameOf, type Row, shown } from '../traces';
import { vectors } from '../vectors';

const { traces } = vectors('pinned') as { readonly traces: readonly SessionTrace[] };
const WIDTH = 2;

class Toy implements Ends {
  readonly width = WIDTH;
  readonly asked: { readonly drawing: Drawing; readonly tell: (token: Token | null) => void }[] = [];

  embed(tokens: Int32Array): ReturnType<Ends['embed']> {
    return tensorOf(Float32Array.from([...tokens].flatMap((token) => [token, 1])), [tokens.length, WIDTH]);
  }

  draw(drawing: Drawing, _: Float32Array, tell: (token: Token | null) => void): void {
    this.asked.push({ drawing, tell });
  }
}

describe('traces', () => {
  it.each(traces)('$name', ({ session, me, ops }) => {
    const core = new OriginSession(session, me);
    core.ends = new Toy();
    ops.forEach((op, at) => {
      if (op.do === 'back') {
        const frame = frameOf(op['frame'] as Row) as Step;
        const state = stateIn(frame, WIDTH);
        const told = toldOf(core.drawing(op['sender'] as string, frame));
        expect({ at, told, state: shown(state), not: shown(notUsable(frame)) }).toEqual({
          ...{ at, told: op['told'], state: op['state'], not: op['not_usable'] },
        });
      }
      const gives = op.do === 'back' ? [] : perform(core, op).map(effect);
      const after = stateOf(core);
      expect({ at, op: op.do, gives, after }).toEqual({ at, op: op.do, gives: op.gives, after: op.after });
    });
  });
});

function toldOf(found: Token | Drawing | null): unknown {
  if (found === null) return null;
  if (found.kind === 'TOKEN') return { token: shown(found) };
  const { sampling, position, history, generated } = found.pick;
  const draw = [samplingToWire(sampling), position, [...history], generated];
  return { draw, end_tokens: found.endTokens, is_last: found.isLast };
}

describe('states that are handed back', () => {
  const begun = (): { core: OriginSession; ends: Toy } => {
    const core = new OriginSession('01'.repeat(16), 'asker');
    const ends = new Toy();
    core.ends = ends;
    const ask = { prompt: [1, 2], maxTokens: 9, sampling: samplingOf({}), endTokens: [] };
    core.begin(0, { plan: 1, peers: ['p0'], shadows: [] }, ask);
    return { core, ends };
  };
  const state = (values: Float32Array): Step => ({
    ...{ kind: 'STEP', session: '01'.repeat(16), turn: 1, stage: 1, position: 1, count: 1, last: 1 },
    tensor: tensorOf(values, [1, values.length]),
  });

  it('are drawn from once', () => {
    const { core, ends } = begun();
    const back = new HandedBack(() => undefined);
    const heard: (Token | Refuse)[] = [];
    for (let times = 0; times < 3; times += 1) {
      back.take(core, 'p0', state(Float32Array.of(1, 2)), (frame) => heard.push(frame));
    }
    expect(ends.asked).toHaveLength(1);
    ends.asked[0]?.tell(null);
    expect(heard.map(({ kind }) => kind)).toEqual(['REFUSE']);
  });

  it.each([[Float32Array.of(1)], [Float32Array.of(1, NaN)], [Float32Array.of(1, 2, 3)]])(
    'are a fault of the last stage where they are none: %s',
    (values) => {
      const { core, ends } = begun();
      const heard: (Token | Refuse)[] = [];
      new HandedBack(() => undefined).take(core, 'p0', state(values), (frame) => heard.push(frame));
      expect(ends.asked).toEqual([]);
      expect(heard).toEqual([notUsable(state(values))]);
    },
  );
});
