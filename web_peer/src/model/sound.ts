/*
 * Sound as numbers: one channel of 16 kHz, and the frames of a model's own spectrogram (twin of peer/model/sound.py).
 * Pure: what runs the spectrogram is handed in.
 */

import { CannotServe } from '../errors';
import { HOP, RATE, type Speech } from '../planner/speech';

const WINDOW = 400; // samples of a frame
const CHUNK = 3000; // frames that are made at a time
const BELOW = 8; // decimal logarithms under the loudest that count
const QUIET_SAMPLES = RATE / 5; // of which the quietest is looked for, to cut there
const BEFORE_END_S = 5; // of a window, in which that is

/** What the model's own spectrogram makes of float32 (1, samples): float32 (1, mels, frames), its numbers alone. */
export type Spectrogram = (sound: Float32Array) => Promise<Float32Array>;

/** Frames of sound, float32 (mels, count), one for each 160 samples. */
export interface Frames {
  readonly mels: number;
  readonly count: number;
  readonly data: Float32Array;
}

/**
 * The frames of `samples`, from -1 to 1, relative to the loudest of the recording. One that is shorter than a window is
 * filled up with silence. Raises CannotServe where the spectrogram makes something else.
 */
export async function framesOf(
  samples: Float32Array,
  { frames, mels }: Speech,
  spectrogram: Spectrogram,
): Promise<Frames> {
  const sound = new Float32Array(Math.max(samples.length, frames * HOP));
  sound.set(samples);
  const count = Math.floor(sound.length / HOP);
  const around = reflected(sound, WINDOW / 2);
  const data = new Float32Array(mels * count);
  let loudest = -Infinity;
  for (let first = 0; first < count; first += CHUNK) {
    const stop = Math.min(first + CHUNK, count);
    const made = await spectrogram(around.slice(first * HOP, (stop - 1) * HOP + WINDOW));
    const width = stop - first;
    if (made.length !== mels * width) {
      throw new CannotServe(
        `a spectrogram of ${mels} bands expected, got ${made.length} numbers of ${width}`,
      );
    }
    for (let band = 0; band < mels; band += 1) {
      data.set(made.subarray(band * width, (band + 1) * width), band * count + first);
    }
    loudest = made.reduce((most, each) => Math.max(most, each), loudest);
  }
  const least = Math.fround(loudest - BELOW);
  return { mels, count, data: data.map((each) => Math.fround(Math.fround(Math.max(each, least) + 4) / 4)) };
}

/** float32 (1, mels, length): the frames from `seek` to `stop`, filled up with 0. */
export function windowOf(
  { mels, count, data }: Frames,
  seek: number,
  stop: number,
  length: number,
): Float32Array {
  const made = new Float32Array(mels * length);
  for (let band = 0; band < mels; band += 1) {
    made.set(data.subarray(band * count + seek, band * count + Math.min(stop, seek + length)), band * length);
  }
  return made;
}

/**
 * Where windows of a recording begin and end, in frames: each as long as may be, cut where it is quietest in its last
 * seconds, so that no word is cut in two.
 */
export function cutsOf(
  samples: Float32Array,
  { frames }: Pick<Speech, 'frames'>,
): readonly (readonly [number, number])[] {
  const total = Math.max(1, Math.ceil(samples.length / HOP));
  const found: (readonly [number, number])[] = [];
  for (let seek = 0; seek < total;) {
    const full = seek + frames;
    const stop =
      full >= total ? total : quietest(samples, full, Math.min(frames, (BEFORE_END_S * RATE) / HOP));
    found.push([seek, stop]);
    seek = stop;
  }
  return found;
}

/** The frame in the middle of the quietest part of the `within` frames before `stop`; at least the one after them. */
function quietest(samples: Float32Array, stop: number, within: number): number {
  let best = stop;
  let least = Infinity;
  const first = (stop - within) * HOP;
  for (let at = first; at + QUIET_SAMPLES <= stop * HOP; at += HOP) {
    let power = 0;
    for (let sample = at; sample < at + QUIET_SAMPLES; sample += 4) power += (samples[sample] ?? 0) ** 2;
    if (power < least) {
      least = power;
      best = Math.floor((at + QUIET_SAMPLES / 2) / HOP);
    }
  }
  return best;
}

/** With `border` samples at both ends that mirror those inside, the first and the last not twice. */
function reflected(sound: Float32Array, border: number): Float32Array {
  const made = new Float32Array(sound.length + 2 * border);
  made.set(sound, border);
  for (let at = 1; at <= border; at += 1) {
    made[border - at] = sound[at] ?? 0;
    made[border + sound.length - 1 + at] = sound[sound.length - 1 - at] ?? 0;
  }
  return made;
}
