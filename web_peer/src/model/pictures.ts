/*
 * Picture files as colours, by what the browser decodes (twin of peer/model/pictures.py, where a process of its own
 * does). Edge.
 */

import { BadPicture } from '../errors';
import { checkBytes, checkSize } from './picture_parts';

export const FORMATS = ['PNG', 'JPEG', 'WEBP', 'GIF', 'BMP'] as const;

/** A picture file, and its SHA-256 in hex. */
export interface PictureFile {
  readonly sha256: string;
  readonly file: Blob;
}

/** Colours, uint8 (height, width, 3). */
export interface Colours {
  readonly shape: readonly [height: number, width: number, colours: 3];
  readonly data: Uint8Array;
}

/**
 * The colours of a picture file, the way up that it says; of a film its first frame. Colour profiles are left out, and
 * what shines through lies on black. Raises BadPicture.
 */
export async function readPicture(file: Blob): Promise<Colours> {
  checkBytes(file.size);
  const bitmap = await opened(file);
  try {
    const { width, height } = bitmap;
    checkSize(width, height);
    const context = new OffscreenCanvas(width, height).getContext('2d', {
      alpha: false,
      willReadFrequently: true, // in memory, not on a GPU that may round
    });
    if (context === null) throw new BadPicture('this browser draws no pictures: ask from a terminal');
    context.drawImage(bitmap, 0, 0);
    return { shape: [height, width, 3], data: withoutAlpha(context.getImageData(0, 0, width, height).data) };
  } finally {
    bitmap.close();
  }
}

/** Width and height of a picture file. Raises BadPicture for what is none that may be asked with. */
export async function sizeOf(file: Blob): Promise<{ readonly width: number; readonly height: number }> {
  checkBytes(file.size);
  const bitmap = await opened(file);
  const { width, height } = bitmap;
  bitmap.close();
  checkSize(width, height);
  return { width, height };
}

/** RGB of RGBA. */
export function withoutAlpha(pixels: ArrayLike<number>): Uint8Array {
  const made = new Uint8Array((pixels.length / 4) * 3);
  for (let from = 0, to = 0; from < pixels.length; from += 4, to += 3) {
    made[to] = pixels[from] ?? 0;
    made[to + 1] = pixels[from + 1] ?? 0;
    made[to + 2] = pixels[from + 2] ?? 0;
  }
  return made;
}

async function opened(file: Blob): Promise<ImageBitmap> {
  try {
    return await createImageBitmap(file, {
      imageOrientation: 'from-image',
      colorSpaceConversion: 'none',
    });
  } catch {
    throw new BadPicture(`a picture (${FORMATS.join(', ')}) expected, and this cannot be read`);
  }
}
