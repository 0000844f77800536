/*
 * Decides which rows are so short or long, for the border between units that they cross, that a check is due (twin of
 * peer/audit/norm_envelopes.py). Pure.
 *
 * Lengths were recorded when the model was imported. They are no evidence: a row outside is checked at once, nothing
 * else.
 */

import { MOST_ENVELOPE_BYTES } from '../planner/manifest';
import { crc32 } from '../wire/crc32';

const FORMAT = 'shoal-envelopes-1';
const MOST_BORDERS = 4096;
const MILLI_LIMIT = 300_000; // of the logarithm to base 2: beyond any float32
const WIDER_MILLI = 1000; // half of the shortest row that was seen, and twice the longest

type Border = readonly [low: number, high: number];

/** The ranges of norms that were recorded behind each unit of a model. */
export class Envelopes {
  /**
   * For the border behind each unit but the head: logarithms to base 2 of least and greatest length, in thousandths.
   */
  readonly borders: readonly Border[];

  constructor(borders: readonly Border[]) {
    this.borders = borders;
  }

  /** The first of `rows`, inputs of unit `firstUnit` one behind the other, whose length is none that such rows have. */
  odd(firstUnit: number, rows: Float32Array, width: number): number | null {
    const border = this.borders[firstUnit - 1];
    if (border === undefined) return null;
    const least = 2 ** ((border[0] - WIDER_MILLI) / 1000);
    const most = 2 ** ((border[1] + WIDER_MILLI) / 1000);
    for (let first = 0; first < rows.length; first += width) {
      let sum = 0;
      for (let at = first; at < first + width; at += 1) sum += (rows[at] ?? 0) ** 2;
      const length = Math.sqrt(sum);
      if (length < least || length > most) return first / width;
    }
    return null;
  }
}

/** What a file for a model of so many units says; null where it makes no sense, as if there were none. */
export function decodeEnvelopes(encoded: Uint8Array, units: number): Envelopes | null {
  if (encoded.length > MOST_ENVELOPE_BYTES || units > MOST_BORDERS) return null;
  let said: unknown;
  try {
    said = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(encoded));
  } catch {
    return null;
  }
  if (typeof said !== 'object' || said === null || !('format' in said) || !('borders' in said)) return null;
  const { format, borders } = said;
  if (format !== FORMAT || !Array.isArray(borders) || borders.length !== units - 1) return null;
  if (!borders.every(isBorder)) return null;
  const sum = 'crc32' in said ? said.crc32 : undefined; // files of earlier versions have none
  if (sum !== undefined && sum !== crc32(new TextEncoder().encode(JSON.stringify(borders)))) return null;
  return new Envelopes(borders);
}

function isBorder(pair: unknown): pair is Border {
  if (!Array.isArray(pair) || pair.length !== 2 || !pair.every(Number.isInteger)) return false;
  const [low, high] = pair as [number, number];
  return -MILLI_LIMIT <= low && low <= high && high <= MILLI_LIMIT;
}
