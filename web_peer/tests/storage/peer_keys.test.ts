/* Who a tab is: a key that the browser keeps, tried before it is used; what is damaged stays, and is said. */

import 'fake-indexeddb/auto';

import { IDBFactory } from 'fake-indexeddb';
import { type IDBPDatabase, openDB } from 'idb';
import { beforeEach, expect, test, vi } from 'vitest';

import { keptIdentity, type KeptIdentity } from '../../src/storage/peer_keys';
import type { Grant } from '../../src/signaling/invites';
import { fromText, identityFromSeed, newKeyPair, transcript } from '../../src/signaling/keys';

const SEED = new Uint8Array(32);
let told: string[] = [];
let mesh = '';
const open = (): Promise<KeptIdentity> => keptIdentity(mesh, (text) => told.push(text));

interface Record_ {
  mesh: string;
  pair: { encoded: string; privateKey: CryptoKey };
  memberships: { key: string; signature: string }[];
}

/** A membership of the peer with that key, which the mesh key signed for an invite of that number. */
async function membership(key: string, number: number): Promise<Grant> {
  const founder = await identityFromSeed(SEED);
  const via = (await identityFromSeed(SEED.map(() => number))).encoded;
  const grant = { meshKey: founder.encoded, key, role: 'peer', expiresUnix: 0, uses: 0, via } as const;
  const { role, expiresUnix, uses } = grant;
  const keys = [founder.encoded, key].map(fromText);
  const said = transcript('grant', ...keys, role, expiresUnix, uses, fromText(via));
  return { ...grant, signature: await founder.sign(said) };
}

/** A tab that came with two invites; its record, and the database. */
async function came(): Promise<[KeptIdentity, IDBPDatabase, Record_]> {
  const own = await open();
  for (const number of [1, 2]) own.keep(await membership(own.identity.encoded, number));
  const database = await openDB('shoal-identity');
  await vi.waitFor(async () => {
    expect(((await database.get('peers', mesh)) as Record_).memberships).toHaveLength(2);
  });
  return [own, database, (await database.get('peers', mesh)) as Record_];
}

beforeEach(async () => {
  vi.stubGlobal('indexedDB', new IDBFactory());
  told = [];
  mesh = (await identityFromSeed(SEED)).id;
});

test('who comes back is the same peer, with its invites', async () => {
  const [own, database, { memberships }] = await came();
  const again = await open();
  expect(again.identity.id).toBe(own.identity.id);
  expect(memberships.map(({ key }) => key)).toEqual([own.identity.encoded, own.identity.encoded]);
  expect(told).toEqual([]);
  database.close();
});

const flipped = (text: string, at: number): string =>
  text.slice(0, at) + (text[at] === 'A' ? 'B' : 'A') + text.slice(at + 1);

test('a key that is damaged anywhere is set aside, and said', async () => {
  const [own, database, right] = await came();
  const other = await newKeyPair();
  const { encoded, privateKey } = right.pair;
  const damages: unknown[] = [
    ...[...encoded].map((_, at) => ({ encoded: flipped(encoded, at), privateKey })),
    ...[...encoded].map((_, at) => ({ encoded: encoded.slice(0, at), privateKey })),
    { encoded: encoded + encoded, privateKey },
    { encoded, privateKey: other.privateKey },
    { encoded },
    { encoded, privateKey: 'text' },
    null,
    undefined,
    7,
  ];
  for (const pair of damages) {
    told = [];
    await database.clear('peers');
    const damaged = { ...right, pair };
    await database.put('peers', damaged);
    const { identity } = await open();
    expect(identity.id).not.toBe(own.identity.id);
    expect(told).toEqual([expect.stringMatching(/key .* is damaged: it is kept aside/)]);
    const all = (await database.getAll('peers')) as Record_[];
    expect(all).toHaveLength(2);
    const aside = all.find((record) => record.mesh !== mesh);
    expect(aside).toMatchObject({ mesh: expect.stringContaining(`${mesh}.aside-`) as string });
    expect(aside?.pair).toEqual(pair);
    expect((await open()).identity.id).toBe(identity.id);
    expect(told).toHaveLength(1);
  }
  database.close();
});

test('a membership that is damaged anywhere costs only itself', async () => {
  const [own, database, right] = await came();
  const [first, second] = right.memberships;
  if (first === undefined || second === undefined) throw new Error('expected two');
  const { signature } = first;
  const damages: unknown[] = [
    ...[...signature].slice(0, -1).map((_, at) => ({ ...first, signature: flipped(signature, at) })),
    { ...first, signature: '' },
    { ...first, key: (await newKeyPair()).encoded },
    null,
    {},
    'text',
  ];
  for (const damaged of damages) {
    told = [];
    await database.clear('peers');
    await database.put('peers', { ...right, memberships: [damaged, second] });
    const again = await open();
    expect(again.identity.id).toBe(own.identity.id);
    expect(told).toEqual([expect.stringMatching(/invites is damaged: it is kept aside/)]);
    expect(((await database.get('peers', mesh)) as Record_).memberships).toEqual([second]);
  }
  database.close();
});
