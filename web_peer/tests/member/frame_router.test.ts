/* Which part takes a frame that comes. */

import { beforeEach, describe, expect, it } from 'vitest';

import { WrongChannel } from '../../src/errors';
import { FrameRouter } from '../../src/member/frame_router';
import { StageCore } from '../../src/session/stage';
import type { StageEffect } from '../../src/session/effects';
import { bundled } from '../../src/wire/bundles';
import type { Frame } from '../../src/wire/generated/frames';

const SESSION = '01'.repeat(16);
const WHERE: Frame = { kind: 'WHERE', session: SESSION, turn: 1, stage: 0 } as unknown as Frame;
const TOKEN = {
  ...{ kind: 'TOKEN', session: SESSION, turn: 1, position: 3, token: 7 },
} as unknown as Frame;
const PROBE: Frame = { kind: 'PROBE', nonce: 4, body: new Uint8Array() };

let took: string[] = [];
let lose: (peer: string, reason: string, polite: boolean) => void;
let performed: (readonly StageEffect[])[] = [];

function router(): FrameRouter {
  const taker =
    (part: string) =>
    (...args: readonly unknown[]): void => {
      const frame = args.find((arg) => typeof arg === 'object') as Frame;
      took.push(`${part} ${frame.kind}`);
    };
  const loses = (part: string) => (peer: string) => took.push(`${part} loses ${peer}`);
  const core = new StageCore('me');
  const watched = ['step', 'token', 'feed', 'open', 'where', 'cancel', 'release'] as const;
  for (const name of watched) {
    core[name] = (...args: readonly unknown[]) => {
      taker('stage')(...args);
      return [{ kind: 'freeSlot', run: { first: 0, stop: 1 }, session: SESSION }];
    };
  }
  return new FrameRouter({
    links: {
      requested: taker('links'),
      probed: taker('links'),
      onGone: (listener) => {
        lose = listener;
        return () => undefined;
      },
    },
    view: { received: taker('view'), unreachable: loses('view') },
    model: { pieces: { requested: taker('pieces'), came: taker('pieces'), gone: loses('pieces') } as never },
    stage: {
      core,
      queue: { look: () => took.push('queue') } as never,
      perform: (effects) => performed.push(effects),
      gone: loses('stage'),
    },
    flow: { value: taker('flow'), go: taker('flow'), failed: taker('flow'), gone: loses('flow') },
    sessions: { frame: taker('sessions'), handedBack: taker('handed back'), gone: loses('sessions') },
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
    ['pieces', 'stage', 'flow', 'sessions', 'view', 'leadership'].map((part) => `${part} loses pa`),
  );
});

describe('a frame goes to', () => {
  it.each<[Frame['kind'], readonly string[]]>([
    ['STEP', ['stage STEP', 'handed back STEP', 'queue']],
    ['TOKEN', ['stage TOKEN', 'sessions TOKEN', 'queue']],
    ['OPEN', ['stage OPEN', 'queue']],
    ['WHERE', ['stage WHERE', 'queue']],
    ['CANCEL', ['stage CANCEL', 'queue']],
    ['RELEASE', ['stage RELEASE', 'queue']],
    ['REFUSE', ['sessions REFUSE', 'queue']],
    ['HERE', ['sessions HERE', 'queue']],
    ['REQUEST', ['links REQUEST']],
    ['RESPONSE', ['links RESPONSE']],
    ['PROBE', ['links PROBE']],
    ['PROBE_ACK', ['links PROBE_ACK']],
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

  it.each([
    [0, ['stage FEED', 'sessions FEED', 'queue']], // of an asker
    [1, ['stage FEED', 'queue']],
  ])('FEED of stage %d: %j', (stage, parts) => {
    router().take('peer', { kind: 'FEED', stage } as unknown as Frame);
    expect(took).toEqual(parts);
  });
});

describe('frames that came together', () => {
  it('are decided over before anything of it is done', () => {
    const [bundle] = bundled([WHERE, PROBE]);
    if (bundle?.kind !== 'BUNDLE') throw new Error('expected a bundle');
    router().take('peer', bundle);
    expect(took).toEqual(['stage WHERE', 'links PROBE', 'queue']);
    expect(performed.map((effects) => effects.length)).toEqual([1]);
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
