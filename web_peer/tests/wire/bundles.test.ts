/* Frames that travel together: same frames, same order, and what a broken bundle is told. */

import { describe, expect, it } from 'vitest';

import { BUNDLE_BYTES, bundled, framesOf } from '../../src/wire/bundles';
import { FrameError } from '../../src/errors';
import { toHex } from '../../src/wire/hex';
import type { Bundle, Frame, Step } from '../../src/wire/generated/frames';
import { decode, encode } from '../../src/wire/frame_codec';
import { MAX_BUNDLE_FRAMES } from '../../src/limits';
import { tensorOf } from '../../src/wire/tensors';

const SESSION = '73'.repeat(16);
const TOKEN: Frame = { kind: 'TOKEN', session: SESSION, turn: 1, position: 7, token: 42, finish: 0 };
const RELEASE: Frame = { kind: 'RELEASE', session: SESSION };
const PING: Frame = { kind: 'PING', nonce: 1 };

function step(tokens: number, width = 576): Step {
  const tensor = tensorOf(new Float32Array(tokens * width).fill(1), [tokens, width]);
  return { kind: 'STEP', session: SESSION, turn: 1, stage: 1, position: 0, count: tokens, last: 0, tensor };
}

function opened(frames: readonly Frame[]): Frame[] {
  return frames.flatMap((frame) => {
    const arrived = decode(encode(frame));
    return arrived.kind === 'BUNDLE' ? framesOf(arrived) : [arrived];
  });
}

describe('bundling keeps frames and order', () => {
  const cases: [string, Frame[], number][] = [
    ['nothing', [], 0],
    ['one', [TOKEN], 1],
    ['three', [TOKEN, TOKEN, RELEASE], 1],
    ['the control channel has an order of its own', [TOKEN, PING, TOKEN, TOKEN], 3],
    ['a batch', Array.from({ length: 8 }, () => step(1)), 1],
    ['two of them fill a bundle', Array.from({ length: 3 }, () => step(50)), 2],
    ['a large frame goes alone', [step(200), TOKEN], 2],
    ['too many', Array.from({ length: MAX_BUNDLE_FRAMES + 1 }, () => TOKEN), 2],
  ];
  it.each(cases)('%s', (_, frames, messages) => {
    const sent = bundled(frames);
    expect(sent).toHaveLength(messages);
    expect(opened(sent).map((frame) => toHex(encode(frame)))).toEqual(
      frames.map((frame) => toHex(encode(frame))),
    );
    for (const frame of sent) {
      if (frame.kind === 'BUNDLE') expect(encode(frame).length).toBeLessThanOrEqual(BUNDLE_BYTES + 1024);
    }
  });
});

describe('a broken bundle is a named error', () => {
  const inner = encode(TOKEN);
  const ping = encode(PING);
  const empty = encode({ kind: 'BUNDLE', sizes: [], body: new Uint8Array(0) });
  const cases: [string, number[], Uint8Array][] = [
    ['a size too large', [inner.length + 1], inner],
    ['bytes to spare', [inner.length], Uint8Array.from([...inner, 120])],
    ['a part cut in two', [inner.length - 1, 1], inner],
    ['no frame', [3], new TextEncoder().encode('abc')],
    ['a control frame', [ping.length], ping],
    ['a bundle', [empty.length], empty],
  ];
  it.each(cases)('%s', (_, sizes, body) => {
    const bundle: Bundle = { kind: 'BUNDLE', sizes, body };
    expect(() => framesOf(bundle)).toThrow(FrameError);
  });
});
