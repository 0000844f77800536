/*
 * Decides what a key, an id and a valid signature are (docs/protocol.md; twin of signaling/keys.py).
 *
 * Keys, signatures and nonces are held as canonical base64url text: text compares by value and can be the key of a
 * Map. Ed25519 comes from WebCrypto where the browser has it, else from JavaScript; a peer's own key is made by
 * WebCrypto, not extractable, in P-256 where it has no Ed25519.
 */

import { getPublicKeyAsync, signAsync, verifyAsync } from '@noble/ed25519';

import { base32 } from '../wire/hex';
import { signalingError } from './errors';

export const TAG_ED25519 = 1;
export const TAG_P256 = 2;
export const ED25519_BYTES = 1 + 32;
export const P256_BYTES = 1 + 65;
export const SIGNATURE_BYTES = 64;
export const SEED_BYTES = 32;
const ID_BYTES = 20;
const ID_PATTERN = /^[a-z2-7]{32}$/;
const P256 = { name: 'ECDSA', namedCurve: 'P-256' } as const;
const P256_SIGNATURE = { name: 'ECDSA', hash: 'SHA-256' } as const;

/** base64url without padding, in its one canonical spelling. */
export type Base64 = string;
type Bytes = Uint8Array<ArrayBuffer>;

/** A checked public key. `encoded` is the tagged form that travels and that ids are made of. */
export interface PublicKey {
  readonly encoded: Base64;
  readonly id: string;
  verifies(signature: Base64, message: Bytes): Promise<boolean>;
}

/** A key pair; the private half stays inside. */
export interface Identity {
  readonly encoded: Base64;
  readonly id: string;
  sign(message: Bytes): Promise<Base64>;
}

/** What IndexedDB keeps of an identity: a private key that no script can read. */
export interface KeyPair {
  readonly encoded: Base64;
  readonly privateKey: CryptoKey;
}

/** WebCrypto. Raises NoWebCrypto: pages that came over plain HTTP from another machine do not have it. */
export function subtle(): SubtleCrypto {
  const found = (globalThis.crypto as Crypto | undefined)?.subtle;
  if (found === undefined) {
    throw signalingError(
      'NoWebCrypto',
      'this page needs a secure connection: open the link with https:// (the founder starts `shoal serve` with ' +
        '--cert and --key), or on the founder’s machine under http://localhost',
    );
  }
  return found;
}

/** The Ed25519 key pair of a 32-byte secret, such as an invite's. */
export async function identityFromSeed(seed: Bytes): Promise<Identity> {
  if (seed.length !== SEED_BYTES) {
    throw signalingError('BadKey', `a key seed has ${SEED_BYTES} bytes, this one has ${seed.length}`);
  }
  subtle();
  const encoded = toText(concat([Uint8Array.of(TAG_ED25519), await getPublicKeyAsync(seed)]));
  return {
    encoded,
    id: await keyId(encoded),
    sign: async (message) => toText(await signAsync(message, seed)),
  };
}

/** A fresh key pair whose private half cannot be read out. */
export async function newKeyPair(): Promise<KeyPair> {
  const usages: KeyUsage[] = ['sign', 'verify'];
  if (await hasEd25519()) {
    const made = (await subtle().generateKey({ name: 'Ed25519' }, false, usages)) as CryptoKeyPair;
    return { encoded: await exported(TAG_ED25519, made.publicKey), privateKey: made.privateKey };
  }
  const made = await subtle().generateKey(P256, false, usages);
  return { encoded: await exported(TAG_P256, made.publicKey), privateKey: made.privateKey };
}

/** The identity with these keys. */
export async function identityOf(pair: KeyPair): Promise<Identity> {
  const algorithm = pair.privateKey.algorithm.name === 'ECDSA' ? P256_SIGNATURE : { name: 'Ed25519' };
  return {
    encoded: pair.encoded,
    id: await keyId(pair.encoded),
    sign: async (message) => toText(new Uint8Array(await subtle().sign(algorithm, pair.privateKey, message))),
  };
}

/** Decodes a tagged public key; BadKey when it is none. */
export async function publicKey(encoded: Base64): Promise<PublicKey> {
  const raw = fromText(encoded);
  const tag = raw[0];
  const id = await keyId(encoded);
  if (tag === TAG_ED25519 && raw.length === ED25519_BYTES) {
    return { encoded, id, verifies: await ed25519Verifier(raw.slice(1)) };
  }
  if (tag === TAG_P256 && raw.length === P256_BYTES) {
    const key = await subtle()
      .importKey('raw', raw.slice(1), P256, false, ['verify'])
      .catch(() => {
        throw signalingError('BadKey', `a public key of type ${TAG_P256} is not a point of its curve`);
      });
    const verifies = async (signature: Base64, message: Bytes): Promise<boolean> => {
      const bytes = fromText(signature);
      return bytes.length === SIGNATURE_BYTES && (await subtle().verify(P256_SIGNATURE, key, bytes, message));
    };
    return { encoded, id, verifies };
  }
  throw signalingError(
    'BadKey',
    `a public key is tag 1 with 32 bytes or tag 2 with 65 bytes, not tag ${tag ?? -1} with ${raw.length - 1}`,
  );
}

async function ed25519Verifier(raw: Bytes): Promise<PublicKey['verifies']> {
  if (await hasEd25519()) {
    const key = await subtle()
      .importKey('raw', raw, { name: 'Ed25519' }, false, ['verify'])
      .catch(() => {
        throw signalingError('BadKey', `a public key of type ${TAG_ED25519} is not a point of its curve`);
      });
    return async (signature, message) => {
      const bytes = fromText(signature);
      return (
        bytes.length === SIGNATURE_BYTES && (await subtle().verify({ name: 'Ed25519' }, key, bytes, message))
      );
    };
  }
  return async (signature, message) => {
    const bytes = fromText(signature);
    if (bytes.length !== SIGNATURE_BYTES) return false;
    return verifyAsync(bytes, message, raw).catch(() => false); // raises for a key that is no point
  };
}

let probed: Promise<boolean> | null = null;

/** Whether WebCrypto knows Ed25519; asked once. */
function hasEd25519(): Promise<boolean> {
  probed ??= subtle()
    .importKey('raw', new Uint8Array(32), { name: 'Ed25519' }, false, ['verify'])
    .then(() => true)
    .catch((error: unknown) => !(error instanceof Error && error.name === 'NotSupportedError'));
  return probed;
}

async function exported(tag: number, key: CryptoKey): Promise<Base64> {
  return toText(concat([Uint8Array.of(tag), new Uint8Array(await subtle().exportKey('raw', key))]));
}

/** Mesh or peer id of a tagged public key: base32 of the first 20 bytes of its SHA-256. */
export async function keyId(encoded: Base64): Promise<string> {
  return base32((await sha256(fromText(encoded))).subarray(0, ID_BYTES));
}

/** Whether the text has the form of an id. */
export function isId(text: string): boolean {
  return ID_PATTERN.test(text);
}

/** The SHA-256 of the bytes. */
export async function sha256(bytes: Bytes): Promise<Bytes> {
  return new Uint8Array(await subtle().digest('SHA-256', bytes));
}

/** A part of a transcript: text, an integer, or bytes as `{ raw }`. */
export type Part = string | number | Bytes;

/** The bytes that get signed: purpose and parts, each with its length in front, so no two lists collide. */
export function transcript(purpose: string, ...parts: readonly Part[]): Bytes {
  const pieces: Bytes[] = [];
  for (const part of [`shoal/1 ${purpose}`, ...parts]) {
    const raw = bytesOf(part);
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, raw.length);
    pieces.push(length, raw);
  }
  return concat(pieces);
}

function bytesOf(part: Part): Bytes {
  if (typeof part === 'string') return utf8(part);
  if (typeof part !== 'number') return part;
  const raw = new Uint8Array(8);
  new DataView(raw.buffer).setBigUint64(0, BigInt(part));
  return raw;
}

/** The bytes of the text. */
export function utf8(text: string): Bytes {
  return new Uint8Array(new TextEncoder().encode(text));
}

/** All pieces in one array. */
export function concat(pieces: readonly Uint8Array[]): Bytes {
  const made = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    made.set(piece, at);
    at += piece.length;
  }
  return made;
}

/** The bytes in base64 of URLs, without padding. */
export function toText(bytes: Uint8Array): Base64 {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** Undoes `toText`. Raises a RangeError unless `text` is exactly what `toText` writes. */
export function fromText(text: Base64): Bytes {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) throw new RangeError('not base64url');
  const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
  if (toText(bytes) !== text) throw new RangeError('not canonical base64url');
  return bytes;
}
