/*
 * Which data frames travel together: what one step made for one peer goes as one BUNDLE and is handled at once.
 *
 * Pure. A batch of sessions thus reaches the next stage whole, and costs one message instead of many.
 */

import { WrongField } from '../errors';
import type { Bundle, Frame } from './generated/frames';
import { channelOf, decode, encode } from './frame_codec';
import { MAX_BUNDLE_FRAMES } from '../limits';

export const BUNDLE_BYTES = 256 * 1024; // larger frames gain nothing from company

/** The same frames in the same order, with neighbours of the data channel put into bundles where that pays. */
export function bundled(frames: readonly Frame[]): Frame[] {
  if (frames.length < 2) return [...frames];
  const made: Frame[] = [];
  let group: { readonly frame: Frame; readonly bytes: Uint8Array }[] = [];
  let size = 0;
  const finish = (): void => {
    const [first] = group;
    if (group.length === 1 && first !== undefined) made.push(first.frame);
    else if (group.length > 1) {
      const sizes = group.map((each) => each.bytes.length);
      made.push({
        kind: 'BUNDLE',
        sizes,
        body: joined(
          group.map((each) => each.bytes),
          size,
        ),
      });
    }
    group = [];
    size = 0;
  };
  for (const frame of frames) {
    if (channelOf(frame) !== 'data' || frame.kind === 'BUNDLE') {
      finish();
      made.push(frame);
      continue;
    }
    const bytes = encode(frame);
    if (size + bytes.length > BUNDLE_BYTES || group.length === MAX_BUNDLE_FRAMES) finish();
    group.push({ frame, bytes });
    size += bytes.length;
  }
  finish();
  return made;
}

/** The frames inside. Raises a FrameError when sizes and bytes do not agree, or a part breaks its own rules. */
export function framesOf(bundle: Bundle): Frame[] {
  const total = bundle.sizes.reduce((sum, size) => sum + size, 0);
  if (total !== bundle.body.length) {
    throw new WrongField(`BUNDLE: expected ${total} bytes after the header, got ${bundle.body.length}`);
  }
  let start = 0;
  return bundle.sizes.map((size) => {
    const frame = decode(bundle.body.subarray(start, start + size), 'data');
    if (frame.kind === 'BUNDLE') throw new WrongField('BUNDLE: expected frames other than bundles inside');
    start += size;
    return frame;
  });
}

function joined(parts: readonly Uint8Array[], size: number): Uint8Array {
  const made = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}
