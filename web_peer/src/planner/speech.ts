/*
 * How a model writes what is said: which encoder reads sound, its spectrogram, and the tokens that steer it (twin of
 * planner/model/speech.py). Pure.
 *
 * A decoder of that kind begins each conversation with `rows` rows that the encoder made of `frames` frames; its tokens
 * stand behind them.
 */

import { CannotServe } from '../errors';
import type { BlobRef } from './blob_ref';
import { decodeBlob, type Fields, SHA256 } from './checked_fields';

export const RATE = 16_000; // samples of sound a second
export const HOP = 160; // samples from one frame to the next
const MAX_LANGUAGES = 1024;
const MAX_CODE_CHARS = 32;
const MAX_SUPPRESSED = 4096;
const MAX_FRAMES = 1 << 16;
const MAX_MELS = 1024;
const MAX_SPECTROGRAM_BYTES = 64 << 20;

/**
 * `encoder`: id of the model that makes float32 `encoded` (1, rows, hidden) of float32 `mel` (1, mels, frames).
 * `spectrogram`: an ONNX file that makes `frames` of `sound`: float32 (1, mels, n) of (1, 400 + 160 (n - 1)), the
 * decimal logarithms of power. Numbers of tokens: `start` begins a prompt; `languages` by code; `transcribe`,
 * `translate` null where the model knows one language; `noTimestamps`: the next token is time 0, each one after it
 * `tickMs` more. `suppressed` never come, `beginSuppressed` not first; `maxInitial`: the latest first time.
 */
export interface Speech {
  readonly encoder: string;
  readonly spectrogram: BlobRef;
  readonly rows: number;
  readonly mels: number;
  readonly frames: number;
  readonly start: number;
  readonly languages: ReadonlyMap<string, number>;
  readonly transcribe: number | null;
  readonly translate: number | null;
  readonly noTimestamps: number;
  readonly suppressed: readonly number[];
  readonly beginSuppressed: readonly number[];
  readonly maxInitial: number | null;
  readonly tickMs: number;
}

/** Reads the JSON form in a manifest of that vocabulary and context. Raises CannotServe. */
export function speechOf(fields: Fields, vocab: number, context: number): Speech {
  const encoder = fields.text('encoder', 64);
  if (!SHA256.test(encoder)) {
    throw new CannotServe(`${fields.place}.encoder: 64 lower-case hex digits expected`);
  }
  const spectrogram = decodeBlob(fields.fields('spectrogram'));
  if (spectrogram.bytes > MAX_SPECTROGRAM_BYTES) {
    throw new CannotServe(`${fields.place}.spectrogram: at most ${MAX_SPECTROGRAM_BYTES} bytes expected`);
  }
  const codes = fields.fields('languages');
  const names = codes.names(MAX_LANGUAGES, MAX_CODE_CHARS);
  const token = (name: string): number | null => (fields.isNull(name) ? null : fields.count(name, vocab - 1));
  return {
    encoder,
    spectrogram,
    rows: fields.count('rows', context - 1, 1),
    mels: fields.count('mels', MAX_MELS, 1),
    frames: fields.count('frames', MAX_FRAMES, 1),
    start: fields.count('start', vocab - 1),
    languages: new Map(names.map((name) => [name, codes.count(name, vocab - 1)])),
    transcribe: token('transcribe'),
    translate: token('translate'),
    noTimestamps: fields.count('no_timestamps', vocab - 2),
    suppressed: fields.counts('suppressed', MAX_SUPPRESSED, vocab - 1),
    beginSuppressed: fields.counts('begin_suppressed', MAX_SUPPRESSED, vocab - 1),
    maxInitial: fields.isNull('max_initial') ? null : fields.count('max_initial', vocab - 1),
    tickMs: fields.count('tick_ms', 1000, 1),
  };
}
