/* SHA-256 at once: the browser's own is asynchronous, and absent without a secure context. */

import { sha256 as hashed } from '@noble/hashes/sha2.js';

import { toHex } from './hex';

/** The 32 bytes. */
export function sha256(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return hashed(bytes);
}

/** In hex. */
export function sha256Hex(text: string): string {
  return toHex(sha256(new TextEncoder().encode(text)));
}
