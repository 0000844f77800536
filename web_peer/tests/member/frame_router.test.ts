/* Which part takes a frame that comes. */

import { beforeEach, describe, expect, it } from 'vitest';

import { WrongChannel } from '../../src/errors';
import { FrameRouter } from '../../src/member/frame_router';
import type { Queue } from '../../src/stage/seat_waiting';
import type { StageEffect } from '../../src/session/effects';
import { bundled } from '../../src/wire/bundles';
import type { Frame } from '../../src/wire/generated/frames';

const SESSION = '01'.repeat(16); // of the mesh's own model
const OTHER = '02'.repeat(16); // of a further one
const WHERE: Frame = { kind: 'WHERE', session: SESSION, turn: 1, stage: 0 } as unknown as Frame;
const TOKEN = {
  ...{ kind: 'TOKEN', session: SESSION, turn: 1, position: 3, token: 7 },
} as unknown as Frame;
const PROBE: Frame = { kind: 'PROBE', nonce: 4, body: new Uint8Array() };

let took: string[] = [];
let connect: (peer: string) => void;
let congest: (peer: string, full: boolean) => void;
let lose: (peer: string, reason: string, polite: boolean) => void;
const asked = new Map<string, (peer: string, said: unknown) => unknown>();
let performed: (readonly StageEffect[])[] = [];

function router(): FrameRouter {
  const taker =
    (part: string) =>
    (...args: readonly unknown[]): void => {
      const frame = args.find((arg) => typeof arg === 'object') as Frame;
      took.push(`${part} ${frame.kind}`);
    };
  const loses = (part: string) => (peer: string) => took.push(`${part} loses ${peer}`);
  /** The parts that serve one model, as they tell what they take. */
  const serves = (whose: string) => ({
    decide: (_: number, __: string, frame: Frame) => {
      taker(`${whose}stages`)(frame);
      return [{ kind: 'freeSlot', run: { first: 0, stop: 1 }, session: SESSION }] as const;
    },
    stage: {
      congestion: loses(`${whose}stage congested,`),
      gone: loses(`${whose}stage`),
      lendCache: () => Promise.resolve({ have: 0, sha256: whose }),
      perform: (effects: readonly StageEffect[]) => performed.push(effects),
      queue: {
        look: () => took.push(`${whose}queue`),
        answer: () => Promise.resolve({ have: 0, sha256: whose }),
      } as unknown as Queue,
    },
    sessions: { back: loses(`${whose}sessions back,`), gone: loses(`${whose}sessions`) },
  });
  const further = serves('further ');
  return new FrameRouter({
    links: {
      on: ({ method }, handler) => {
        asked.set(method, handler as (peer: string, said: unknown) => unknown);
        return () => undefined;
      },
      requested: taker('links'),
      probed: taker('links'),
      sendOrLose: (peer, frame) => took.push(`${frame.kind} to ${peer}`),
      onConnected: (listener) => {
        connect = listener;
        return () => undefined;
      },
      onCongestion: (listener) => {
        congest = listener;
        return () => undefined;
      },
      onGone: (listener) => {
        lose = listener;
        return () => undefined;
      },
    },
    view: { received: taker('view'), unreachable: loses('view') },
    pieces: { requested: taker('pieces'), came: taker('pieces'), gone: loses('pieces') },
    own: serves(''),
    decoders: {
      ofSession: (session) => (session === OTHER ? further : null),
      [Symbol.iterator]: () => [{ parts: further }][Symbol.iterator](),
    },
    flow: { value: taker('flow'), go: taker('flow'), failed: taker('flow'), gone: loses('flow') },
    leadership: { gone: loses('leadership') },
  });
}

beforeEach(() => {
  took = [];
  performed = [];
});

it('the end of a connection concerns who answers before who plans', () => {
  router();
  lose('pa', 'closed', false);
  expect(took).toEqual(
    [
      ...['pieces', 'stage', 'further stage', 'flow', 'sessions', 'further sessions', 'view', 'leadership'],
    ].map((part) => `${part} loses pa`),
  );
});

it('what becomes of connections concerns the parts of every model', () => {
  router();
  connect('pa');
  congest('pa', true);
  expect(took).toEqual(
    ['sessions back,', 'further sessions back,', 'stage congested,', 'further stage congested,'].map(
      (part) => `${part} loses pa`,
    ),
  );
});

it.each(['wait', 'kv_copy'])(
  '%s is answered by the stages of the model whose session it names',
  async (method) => {
    router();
    const answer = async (session: string): Promise<unknown> => asked.get(method)?.('pa', { session });
    expect([await answer(SESSION), await answer(OTHER)]).toMatchObject([
      { sha256: '' },
      { sha256: 'further ' },
    ]);
  },
);

describe('a frame goes to', () => {
  it.each<[Frame['kind'], readonly string[]]>([
    ['STEP', ['stages STEP', 'queue']],
    ['TOKEN', ['stages TOKEN', 'queue']],
    ['FEED', ['stages FEED', 'queue']],
    ['OPEN', ['stages OPEN', 'queue']],
    ['WHERE', ['stages WHERE', 'queue']],
    ['CANCEL', ['stages CANCEL', 'queue']],
    ['RELEASE', ['stages RELEASE', 'queue']],
    ['REFUSE', ['stages REFUSE', 'queue']],
    ['HERE', ['stages HERE', 'queue']],
    ['REQUEST', ['links REQUEST']],
    ['RESPONSE', ['links RESPONSE']],
    ['PROBE', ['links PROBE']],
    ['PROBE_ACK', ['links PROBE_ACK']],
    ['TEAM_STEP', ['TEAM_END to peer']],
    ['TEAM_PART', []],
    ['TEAM_ROWS', []],
    ['TEAM_END', []],
    ['CONSENSUS', ['view CONSENSUS']],
    ['PIECE_REQUEST', ['pieces PIECE_REQUEST']],
    ['PIECE', ['pieces PIECE']],
    ['RUN_VALUE', ['flow RUN_VALUE']],
    ['RUN_GO', ['flow RUN_GO']],
    ['RUN_ITEM_FAILED', ['flow RUN_ITEM_FAILED']],
    ['HELLO', []],
    ['CREDIT', []],
    ['BYE', []],
  ])('%s: %j', (kind, parts) => {
    router().take('peer', { kind } as unknown as Frame);
    expect(took).toEqual(parts);
  });

  it.each(['STEP', 'TOKEN', 'OPEN', 'REFUSE', 'HERE'])('the parts of a further model: %s', (kind) => {
    router().take('peer', { kind, session: OTHER } as unknown as Frame);
    expect(took).toEqual([`further stages ${kind}`, 'queue', 'further queue']);
    expect(performed.map(({ length }) => length)).toEqual([0, 1]);
  });
});

describe('frames that came together', () => {
  it('are decided over before anything of it is done', () => {
    const [bundle] = bundled([WHERE, PROBE]);
    if (bundle?.kind !== 'BUNDLE') throw new Error('expected a bundle');
    router().take('peer', bundle);
    expect(took).toEqual(['stages WHERE', 'links PROBE', 'queue']);
    expect(performed.map((effects) => effects.length)).toEqual([1]);
  });

  it('may be of several models', () => {
    const [bundle] = bundled([WHERE, { ...WHERE, session: OTHER } as Frame]);
    if (bundle?.kind !== 'BUNDLE') throw new Error('expected a bundle');
    router().take('peer', bundle);
    expect(took).toEqual(['stages WHERE', 'further stages WHERE', 'queue', 'further queue']);
    expect(performed.map((effects) => effects.length)).toEqual([1, 1]);
  });

  it('are none but of sessions and probes', () => {
    const made = router();
    const inside = (frames: readonly Frame[]): void => {
      (made as unknown as { sessionFrames(peer: string, frames: readonly Frame[]): void }).sessionFrames(
        'peer',
        frames,
      );
    };
    expect(() => inside([TOKEN, { kind: 'PIECE' } as unknown as Frame])).toThrow(WrongChannel);
    expect(performed).toEqual([]);
  });
});
