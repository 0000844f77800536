/* Frames against the vectors, every truncation of them, and random changes of their bytes. */

import { decode as unpack, encode as pack } from '@msgpack/msgpack';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { FrameError } from '../../src/errors';
import { fromHex, toHex } from '../../src/wire/hex';
import { CHANNEL_IDS, type Channel, type Frame } from '../../src/wire/generated/frames';
import { channelOf, decode, encode, sessionsOf } from '../../src/wire/frame_codec';
import { decodeHeader, type Value } from '../../src/wire/frame_header';
import { Packer } from '../../src/wire/msgpack';
import type { Dtype } from '../../src/wire/tensors';
import { camel, vectors } from '../vectors';

interface Vectors {
  readonly codec: readonly {
    kind: string;
    channel: number;
    fields: Record<string, unknown>;
    hex: string;
  }[];
  readonly reject: readonly { why: string; channel: number; hex: string; error: string }[];
}

const VECTORS = vectors('frames') as Vectors;

function channelNamed(id: number): Channel {
  return id === CHANNEL_IDS.control ? 'control' : 'data';
}

function frameOf(kind: string, fields: Readonly<Record<string, unknown>>): Frame {
  const made: Record<string, unknown> = { kind };
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'tensor') {
      const { dtype, shape, data } = value as { dtype: number; shape: number[]; data: string };
      const named: Dtype = dtype === 1 ? 'float32' : 'int32';
      made['tensor'] = { dtype: named, shape, data: fromHex(data) };
    } else if (name === 'body') made['body'] = fromHex(value as string);
    else if (name === 'history') made['history'] = Int32Array.from(value as number[]);
    else made[camel(name)] = value;
  }
  return made as unknown as Frame;
}

const WITH_PAYLOAD = 'REQUEST RESPONSE CONSENSUS PROBE BUNDLE PIECE OPEN TOKEN RUN_VALUE'.split(' ');

describe('codec', () => {
  it.each(VECTORS.codec)('$kind $hex', ({ kind, channel, fields, hex }) => {
    const frame = frameOf(kind, fields);
    expect(toHex(encode(frame))).toBe(hex);
    expect(CHANNEL_IDS[channelOf(frame)]).toBe(channel);
    expect(decode(fromHex(hex), channelNamed(channel))).toEqual(frame);
  });

  it.each(VECTORS.codec)('no truncation of $kind passes', ({ hex, channel, kind }) => {
    const bytes = fromHex(hex);
    for (let length = 0; length < bytes.length; length++) {
      if (WITH_PAYLOAD.includes(kind)) {
        outcome(bytes.subarray(0, length), channelNamed(channel)); // a shorter payload may be a frame of its own
      } else {
        expect(outcome(bytes.subarray(0, length), channelNamed(channel))).not.toBe('none');
      }
    }
  });
});

describe('refusals', () => {
  it.each(VECTORS.reject)('$why', ({ hex, channel, error }) => {
    expect(outcome(fromHex(hex), channelNamed(channel))).toBe(error);
  });

  it('any change of bytes gives a frame or a named error', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...VECTORS.codec),
        fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        ({ hex, channel }, changes) => {
          const bytes = fromHex(hex);
          for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
          outcome(bytes, channelNamed(channel));
        },
      ),
      { numRuns: 2000 },
    );
  });
});

describe('header', () => {
  const value: fc.Arbitrary<Value> = fc.letrec<{ value: Value }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.maxSafeInteger(),
      fc.integer({ min: -40, max: 300 }),
      fc.integer({ min: -(2 ** 33), max: 2 ** 33 }),
      fc.string({ unit: 'binary', maxLength: 80 }),
      fc.uint8Array({ maxLength: 300 }),
      fc.array(tie('value'), { maxLength: 20 }),
    ),
  })).value;

  it('agrees with a msgpack library in both directions', () => {
    const writer = new Packer();
    fc.assert(
      fc.property(fc.array(value, { minLength: 1, maxLength: 20 }), (values) => {
        const bytes = writer.packed(values).slice();
        expect(toHex(bytes)).toBe(toHex(pack(values)));
        expect(decodeHeader(bytes)).toEqual(unpack(bytes));
      }),
    );
  });
});

it.each(VECTORS.codec.filter(({ kind }) => kind !== 'BUNDLE'))(
  '$kind belongs to the session that it names',
  (row) => {
    const session = row.fields['session'];
    const belongs = sessionsOf(decode(fromHex(row.hex)));
    expect(belongs).toEqual([typeof session === 'string' ? session : '']);
  },
);

it('a bundle belongs to the sessions of its frames', () => {
  const frames = VECTORS.codec.filter(({ channel, kind }) => channel === 2 && kind !== 'BUNDLE');
  const parts = frames.map(({ hex }) => fromHex(hex));
  const body = Uint8Array.from(parts.flatMap((part) => [...part]));
  const found = sessionsOf({ kind: 'BUNDLE', sizes: parts.map((part) => part.length), body });
  expect(found).toEqual(['', '00'.repeat(16), '000102030405060708090a0b0c0d0e0f']);
});

function outcome(bytes: Uint8Array, channel: Channel): string {
  try {
    decode(bytes, channel);
    return 'none';
  } catch (error) {
    if (error instanceof FrameError) return error.name;
    throw error;
  }
}
