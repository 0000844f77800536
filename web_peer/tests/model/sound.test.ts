/* Frames of recordings, and where they are cut into windows. */

import * as ort from 'onnxruntime-web/wasm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { CannotServe } from '../../src/errors';
import { cutsOf, framesOf, windowOf } from '../../src/model/sound';
import { Fields } from '../../src/planner/checked_fields';
import { HOP, RATE, type Speech, speechOf } from '../../src/planner/speech';
import { fromHex } from '../../src/wire/hex';
import { vectors } from '../vectors';

interface Vectors {
  readonly made: readonly [{ readonly file: string; readonly vocab: number; readonly context: number }];
  readonly recordings: readonly {
    readonly name: string;
    readonly samples: string;
    readonly count: number;
    readonly windows: readonly (readonly number[])[];
  }[];
  readonly rules: readonly [{ readonly speech: object }];
}

const SPEECH = { mels: 2, frames: 3000 } as Speech;
const WINDOW = 400;

/** Of each frame its first sample, and ten less. */
const firsts = (sound: Float32Array): Promise<Float32Array> => {
  const count = 1 + (sound.length - WINDOW) / HOP;
  const made = new Float32Array(2 * count);
  for (let at = 0; at < count; at += 1) {
    made[at] = sound[at * HOP] ?? 0;
    made[count + at] = (sound[at * HOP] ?? 0) - 10;
  }
  return Promise.resolve(made);
};

describe('frames', () => {
  it('begin half a window before their sample, mirrored at the ends, and are relative to the loudest', async () => {
    const samples = Float32Array.from({ length: 31 * RATE }, (_, at) => at / RATE / 10);
    const { count, data } = await framesOf(samples, SPEECH, firsts);
    expect(count).toBe(3100);
    const value = (sample: number): number => (sample / RATE / 10 + 4) / 4;
    expect(data[0]).toBeCloseTo(value(200), 5); // 200 samples before the first one
    expect(data[2]).toBeCloseTo(value(2 * HOP - 200), 5);
    expect(data[3050]).toBeCloseTo(value(3050 * HOP - 200), 4); // of the second part that is computed
    const loudest = (3099 * HOP - 200) / RATE / 10;
    expect(data[3100]).toBeCloseTo((loudest - 8 + 4) / 4, 4); // never more than 8 below it
  });

  it('of a short recording are those of a whole window', async () => {
    const frames = await framesOf(new Float32Array(5), SPEECH, firsts);
    expect(frames.count).toBe(3000);
    expect(windowOf(frames, 2999, 3000, 4)).toHaveLength(8);
    expect(windowOf(frames, 2999, 3000, 4)[1]).toBe(0);
  });

  it('are refused of a spectrogram that makes others', async () => {
    const wrong = (): Promise<Float32Array> => Promise.resolve(new Float32Array(7));
    await expect(framesOf(new Float32Array(5), SPEECH, wrong)).rejects.toThrow(CannotServe);
  });
});

describe('frames by a spectrogram, and their windows', () => {
  const { made, recordings, rules } = vectors('speech') as Vectors;
  const [{ file, vocab, context }] = made;
  const speech = speechOf(new Fields(rules[0].speech, 'speech'), vocab, context);
  let session: ort.InferenceSession;

  beforeAll(async () => {
    ort.env.wasm.numThreads = 1;
    session = await ort.InferenceSession.create(fromHex(file));
  });

  afterAll(() => session.release());

  it.each(recordings)('are those of Python to the bit: $name', async ({ samples, count, windows }) => {
    const whole = new Int16Array(fromHex(samples).buffer);
    const frames = await framesOf(
      Float32Array.from(whole, (each) => each / 32768),
      speech,
      async (sound) => {
        const { frames: found } = await session.run({ sound: new ort.Tensor(sound, [1, sound.length]) });
        return found?.data as Float32Array;
      },
    );
    expect(frames.count).toBe(count);
    windows.forEach((expected, at) => {
      const seek = at * speech.frames;
      expect([...windowOf(frames, seek, count, speech.frames)]).toEqual(expected);
    });
  });
});

describe('windows', () => {
  it('are one where the recording fits', () => {
    expect(cutsOf(new Float32Array(RATE), SPEECH)).toEqual([[0, 100]]);
    expect(cutsOf(new Float32Array(0), SPEECH)).toEqual([[0, 1]]);
    expect(cutsOf(new Float32Array(30 * RATE), SPEECH)).toEqual([[0, 3000]]);
  });

  it('are cut where it is quietest in their last seconds', () => {
    const samples = Float32Array.from({ length: 40 * RATE }, (_, at) => (at % 2 === 0 ? 0.5 : -0.5));
    samples.fill(0, 27 * RATE, 28 * RATE);
    samples.fill(0, 3 * RATE, 4 * RATE);
    const [first, second] = cutsOf(samples, SPEECH);
    expect(first?.[0]).toBe(0);
    expect(first?.[1]).toBeGreaterThanOrEqual(2700);
    expect(first?.[1]).toBeLessThanOrEqual(2800);
    expect(second).toEqual([first?.[1], 4000]);
  });
});
