/* Which frames must stay in order, and which travel together in a bundle: as in Python. */

import { describe, expect, it } from 'vitest';

import { FrameError } from '../../src/errors';
import { bundled, framesOf } from '../../src/wire/bundles';
import type { Bundle, Frame } from '../../src/wire/generated/frames';
import { decode, encode, sessionsOf } from '../../src/wire/frame_codec';
import { toHex } from '../../src/wire/hex';
import { tensorOf } from '../../src/wire/tensors';
import { bytesOf, vectors } from '../vectors';

interface Vectors {
  readonly orders: readonly { hex: string; sessions: string[] }[];
  readonly bundled: readonly { name: string; frames: string[]; sent: string[] }[];
  readonly sizes: readonly { name: string; rows: number[]; sent: number[] }[];
  readonly bundles: readonly { sizes: number[]; body: string; frames: string[] | string }[];
}

const VECTORS = vectors('wire_rules') as Vectors;
const SESSION = '000102030405060708090a0b0c0d0e0f';
const TOKEN: Frame = { kind: 'TOKEN', session: SESSION, turn: 1, position: 1, token: 7, finish: 0 };

function step(rows: number): Frame {
  const tensor = tensorOf(new Float32Array(rows * 576).fill(1), [rows, 576]);
  return { kind: 'STEP', session: SESSION, turn: 1, stage: 1, position: 0, count: rows, last: 0, tensor };
}

it.each(VECTORS.orders)('the order of $hex', ({ hex, sessions }) => {
  expect(sessionsOf(decode(bytesOf(hex)))).toEqual(sessions);
});

describe('frames that travel together', () => {
  it.each(VECTORS.bundled)('$name', ({ frames, sent }) => {
    const made = bundled(frames.map((hex) => decode(bytesOf(hex))));
    expect(made.map((frame) => toHex(encode(frame)))).toEqual(sent);
  });

  it.each(VECTORS.sizes)('$name', ({ rows, sent }) => {
    const made = bundled(rows.map((count) => (count > 0 ? step(count) : TOKEN)));
    expect(made.map((frame) => encode(frame).length)).toEqual(sent);
  });
});

it.each(VECTORS.bundles)('what is in $body', ({ sizes, body, frames }) => {
  expect(opened({ kind: 'BUNDLE', sizes, body: bytesOf(body) })).toEqual(frames);
});

function opened(bundle: Bundle): string[] | string {
  try {
    return framesOf(bundle).map((frame) => toHex(encode(frame)));
  } catch (error) {
    if (error instanceof FrameError) return error.name;
    throw error;
  }
}
