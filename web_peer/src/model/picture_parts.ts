/*
 * Decides which pictures of a conversation are taken: their bytes, their number, their size (twin of
 * peer/model/picture_parts.py). Pure.
 */

import { BadPicture } from '../errors';

export const MAX_BYTES = 20 << 20; // of one file
export const MAX_PIXELS = 16_000_000;
export const MAX_RATIO = 50; // of its sides: the shorter one is resized to some hundreds
export const MAX_PICTURES = 16; // of one conversation

/** Raises BadPicture for a file that is larger than may be read. */
export function checkBytes(count: number): void {
  if (count > MAX_BYTES) {
    throw new BadPicture(
      `a picture of at most ${MAX_BYTES >> 20} MiB expected, got ${count} bytes: take a smaller one`,
    );
  }
}

/** Raises BadPicture for a picture of more pixels than may be, or one that is all length. */
export function checkSize(width: number, height: number): void {
  if (width < 1 || height < 1 || width * height > MAX_PIXELS) {
    throw new BadPicture(
      `a picture of at most ${MAX_PIXELS / 1_000_000} million pixels expected, got ${width} x ${height}: take a ` +
        'smaller one',
    );
  }
  if (Math.max(width, height) > MAX_RATIO * Math.min(width, height)) {
    throw new BadPicture(
      `a picture whose longer side is at most ${MAX_RATIO} times the shorter expected, got ${width} x ${height}`,
    );
  }
}

/** Raises BadPicture for more than one conversation may have. */
export function checkCount(pictures: readonly unknown[]): void {
  if (pictures.length > MAX_PICTURES) {
    throw new BadPicture(
      `at most ${MAX_PICTURES} pictures in one conversation expected, got ${pictures.length}`,
    );
  }
}

/** Why a tab does not ask the model `name` with pictures: each would have another number of positions. */
export function keptForm(name: string): string {
  return (
    `${name} takes pictures in their own form, with which a tab cannot ask: ask in words alone, or from a process ` +
    '(shoal generate LINK QUESTION --image FILE)'
  );
}
