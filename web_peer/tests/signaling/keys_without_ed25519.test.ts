/* A browser whose WebCrypto lacks Ed25519: invites and grants still hold, and the tab's own key is P-256. */

import { afterAll, beforeAll, expect, it, vi } from 'vitest';

import { fromHex, toHex } from '../../src/wire/hex';
import { vectors } from '../vectors';

const VECTORS = vectors('signaling') as { readonly keys: readonly { seed: string; public: string }[] };
const importKey = crypto.subtle.importKey.bind(crypto.subtle);

beforeAll(() => {
  vi.resetModules();
  const lacking = ((...given: Parameters<SubtleCrypto['importKey']>) => {
    const [, , algorithm] = given;
    if (typeof algorithm === 'object' && algorithm.name === 'Ed25519') {
      return Promise.reject(new DOMException('Unrecognized name', 'NotSupportedError'));
    }
    return importKey(...given);
  }) as SubtleCrypto['importKey'];
  vi.spyOn(crypto.subtle, 'importKey').mockImplementation(lacking);
});

afterAll(() => {
  vi.restoreAllMocks();
});

it('verifies Ed25519 in JavaScript', async () => {
  const { identityFromSeed, publicKey } = await import('../../src/signaling/keys');
  const seed = new Uint8Array(fromHex(VECTORS.keys[0]?.seed ?? ''));
  const identity = await identityFromSeed(seed);
  const { fromText } = await import('../../src/signaling/keys');
  expect(toHex(fromText(identity.encoded))).toBe(VECTORS.keys[0]?.public);
  const message = new Uint8Array([1, 2, 3]);
  const signature = await identity.sign(message);
  const key = await publicKey(identity.encoded);
  expect(await key.verifies(signature, message)).toBe(true);
  expect(await key.verifies(signature, new Uint8Array([1, 2, 4]))).toBe(false);
  const none = await publicKey(`Af${identity.encoded.slice(2)}`);
  expect(await none.verifies(signature, message)).toBe(false);
});

it('has a P-256 key of its own', async () => {
  const { fromText, identityOf, newKeyPair, publicKey, TAG_P256 } = await import('../../src/signaling/keys');
  const pair = await newKeyPair();
  expect(fromText(pair.encoded)[0]).toBe(TAG_P256);
  expect(pair.privateKey.extractable).toBe(false);
  const identity = await identityOf(pair);
  const message = new Uint8Array([5]);
  const key = await publicKey(identity.encoded);
  expect(await key.verifies(await identity.sign(message), message)).toBe(true);
});
