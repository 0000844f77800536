/*
 * Pictures and sound as values of models, by what the browser decodes: the axes and the type are those that the manifest
 * says. As shoal run does it: floats are pixel / 255, sides that the model leaves open are multiples of 32, sound is one
 * channel.
 */

import type { ValueArray } from '../../src/dataflow/value_codec';
import { BadCommand } from '../../src/errors';
import type { Value } from '../../src/planner/graph_manifest';
import type { InputForm } from '../app/view';
import { arrayOfList, withAxes } from './numbers';

const MULTIPLE = 32; // of sides that the model leaves open: what detectors take
const MOST_SIDE = 2048; // pixels of such a side
const RATE_HZ = 16_000; // of sound
const MOST_SOUND_S = 600;

interface PictureAxes {
  readonly channelsFirst: boolean;
  readonly channels: number;
  readonly height: number | string;
  readonly width: number | string;
}

/** Where a value has the axes of a picture; null where it has none. */
export function pictureAxes({ dtype, shape }: Value): PictureAxes | null {
  if (dtype !== 'float32' && dtype !== 'uint8') return null;
  const [a, b, c] = shape.slice(-3);
  if (shape.length < 3 || shape.length > 4 || a === undefined || b === undefined || c === undefined)
    return null;
  if (a === 1 || a === 3) return { channelsFirst: true, channels: a, height: b, width: c };
  if (c === 1 || c === 3) return { channelsFirst: false, channels: c, height: a, width: b };
  return null;
}

/** Samples along its last axis, alone or after axes of one. */
function isSound({ dtype, shape }: Value): boolean {
  const last = shape.at(-1);
  const isLong = typeof last === 'string' || (last !== undefined && last >= 256);
  const before = shape.slice(0, -1);
  return (
    dtype === 'float32' &&
    isLong &&
    before.length <= 2 &&
    before.every((size) => size === 1 || typeof size === 'string')
  );
}

/** In what forms a person can give it, the most fitting one first. */
export function formsOfMedia(value: Value): readonly InputForm[] {
  if (value.dtype === 'string') return ['words', 'json'];
  if (pictureAxes(value) !== null) return ['picture', 'json'];
  return isSound(value) ? ['sound', 'json'] : ['json'];
}

/** Raises BadCommand for a file that is no picture. */
export async function pictureArray(file: Blob, value: Value): Promise<ValueArray> {
  const axes = pictureAxes(value);
  if (axes === null)
    throw new BadCommand(`${value.name} has not the axes of a picture: give numbers as JSON`);
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new BadCommand(`${value.name}: a picture expected, such as PNG or JPEG`);
  });
  const width = sideOf(axes.width, bitmap.width);
  const height = sideOf(axes.height, bitmap.height);
  const context = new OffscreenCanvas(width, height).getContext('2d');
  if (context === null) throw new BadCommand('this browser draws no pictures: give numbers as JSON');
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data } = context.getImageData(0, 0, width, height);
  return arrayOfPixels(data, width, height, value, axes);
}

/** `pixels`: RGBA. Exported for tests. */
export function arrayOfPixels(
  pixels: ArrayLike<number>,
  width: number,
  height: number,
  value: Value,
  { channelsFirst, channels }: PictureAxes,
): ValueArray {
  const area = width * height;
  const made = value.dtype === 'uint8' ? new Uint8Array(area * channels) : new Float32Array(area * channels);
  const scale = value.dtype === 'uint8' ? 1 : 1 / 255;
  for (let at = 0; at < area; at += 1) {
    const [red, green, blue] = [pixels[4 * at] ?? 0, pixels[4 * at + 1] ?? 0, pixels[4 * at + 2] ?? 0];
    const parts =
      channels === 3 ? [red, green, blue] : [Math.round(0.299 * red + 0.587 * green + 0.114 * blue)];
    parts.forEach((part, channel) => {
      made[channelsFirst ? channel * area + at : at * channels + channel] = part * scale;
    });
  }
  const shape = channelsFirst ? [channels, height, width] : [height, width, channels];
  return { shape: withAxes(shape, value), data: new Uint8Array(made.buffer) };
}

/** Raises BadCommand for a file without sound. */
export async function soundArray(file: Blob, value: Value): Promise<ValueArray> {
  const context = new OfflineAudioContext(1, 1, RATE_HZ);
  const decoded = await context.decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new BadCommand(`${value.name}: sound expected, such as WAV or MP3`);
  });
  if (decoded.duration > MOST_SOUND_S)
    throw new BadCommand(`${value.name}: at most ${MOST_SOUND_S} s of sound expected`);
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, at) => decoded.getChannelData(at));
  const mixed = Float32Array.from(
    { length: decoded.length },
    (_, at) => channels.reduce((sum, channel) => sum + (channel[at] ?? 0), 0) / channels.length,
  );
  return { shape: withAxes([mixed.length], value), data: new Uint8Array(mixed.buffer) };
}

/** The lines of a text, for a model that takes words. Raises BadCommand for another one. */
export function linesArray(text: string, value: Value): ValueArray {
  const lines = text.split('\n');
  return arrayOfList(lines, withAxes([lines.length], value), value);
}

function sideOf(wanted: number | string, there: number): number {
  if (typeof wanted === 'number') return wanted;
  return Math.max(1, Math.round(Math.min(there, MOST_SIDE) / MULTIPLE)) * MULTIPLE;
}
