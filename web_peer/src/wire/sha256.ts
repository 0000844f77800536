/* SHA-256 (FIPS 180-4) at once: the browser's own is asynchronous, and absent without a secure context. */

import { toHex } from './hex';

// The first 32 bits of the fractional parts of the square roots of 8 primes and the cube roots of 64.
const PRIMES = primes(64);
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));

function primes(count: number): number[] {
  const found: number[] = [];
  for (let next = 2; found.length < count; next += 1) {
    if (found.every((prime) => next % prime !== 0)) found.push(next);
  }
  return found;
}

/** As the bits of a signed word: engines multiply and add doubles where a number does not fit one. */
function fraction(root: number): number {
  return Math.floor((root - Math.floor(root)) * 2 ** 32) | 0;
}

const state = new Int32Array(8);
const words = new Int32Array(64);
const rest = new Uint8Array(128); // the end of what is hashed, with its length

/** The 32 bytes. */
export function sha256(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  state.set(START);
  const whole = bytes.length - (bytes.length % 64);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < whole; at += 64) block(view, at);
  const left = bytes.length - whole;
  rest.fill(0);
  rest.set(bytes.subarray(whole));
  rest[left] = 0x80;
  const stop = left < 56 ? 64 : 128;
  const tail = new DataView(rest.buffer);
  tail.setUint32(stop - 8, Math.floor(bytes.length / 2 ** 29));
  tail.setUint32(stop - 4, bytes.length * 8);
  for (let at = 0; at < stop; at += 64) block(tail, at);
  const made = new DataView(new ArrayBuffer(32));
  state.forEach((word, at) => made.setInt32(at * 4, word));
  return new Uint8Array(made.buffer);
}

/** In hex. */
export function sha256Hex(text: string): string {
  return toHex(sha256(new TextEncoder().encode(text)));
}

function block(view: DataView, start: number): void {
  for (let at = 0; at < 16; at += 1) words[at] = view.getInt32(start + at * 4);
  for (let at = 16; at < 64; at += 1) {
    const two = words[at - 2] as number;
    const fifteen = words[at - 15] as number;
    const low = ((fifteen >>> 7) | (fifteen << 25)) ^ ((fifteen >>> 18) | (fifteen << 14)) ^ (fifteen >>> 3);
    const high = ((two >>> 17) | (two << 15)) ^ ((two >>> 19) | (two << 13)) ^ (two >>> 10);
    words[at] = ((((words[at - 16] as number) + low) | 0) + (((words[at - 7] as number) + high) | 0)) | 0;
  }
  let a = state[0] as number;
  let b = state[1] as number;
  let c = state[2] as number;
  let d = state[3] as number;
  let e = state[4] as number;
  let f = state[5] as number;
  let g = state[6] as number;
  let h = state[7] as number;
  for (let at = 0; at < 64; at += 1) {
    const one = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const added = ((ROUNDS[at] as number) + (words[at] as number)) | 0;
    const first = (((((h + one) | 0) + ((e & f) ^ (~e & g))) | 0) + added) | 0;
    const zero = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const second = (zero + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  state[0] = (state[0] as number) + a;
  state[1] = (state[1] as number) + b;
  state[2] = (state[2] as number) + c;
  state[3] = (state[3] as number) + d;
  state[4] = (state[4] as number) + e;
  state[5] = (state[5] as number) + f;
  state[6] = (state[6] as number) + g;
  state[7] = (state[7] as number) + h;
}
