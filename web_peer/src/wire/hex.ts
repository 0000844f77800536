/* Decides how bytes are spelt as lower-case hex, and back, and as base32. Pure. */

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

/** Two lower-case digits for each byte. */
export function toHex(bytes: Uint8Array): string {
  let made = '';
  for (const byte of bytes) made += HEX[byte] ?? '';
  return made;
}

/** The bytes of text that is known to be hex. */
export function fromHex(hex: string): Uint8Array {
  const bytes = new Uint8Array(hex.length / 2);
  for (let at = 0; at < bytes.length; at++) bytes[at] = Number.parseInt(hex.slice(at * 2, at * 2 + 2), 16);
  return bytes;
}

/** Lower case, without padding. */
export function base32(bytes: Uint8Array): string {
  let bits = 0;
  let held = 0;
  let made = '';
  for (const byte of bytes) {
    held = (held << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      made += BASE32[(held >> bits) & 31] ?? '';
    }
    held &= 31;
  }
  return made;
}
