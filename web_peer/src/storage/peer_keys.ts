/*
 * Decides who this tab is: in each mesh a key that IndexedDB keeps and no script can read out, or one that nobody
 * keeps. Edge. A peer that comes back is the same peer, takes up no further place of a counted invite, and may come
 * when the invite has expired or is used up (its membership says so). What is kept is tried before it is used; what is
 * damaged stays beside it under another name.
 */

import { type DBSchema, type IDBPDatabase, openDB } from 'idb';

import { textOf } from '../errors';
import { type Grant, verifyGrant } from '../signaling/invites';
import {
  type Base64,
  type Identity,
  identityOf,
  type KeyPair,
  newKeyPair,
  publicKey,
} from '../signaling/keys';

const DATABASE = 'shoal-identity';
const VERSION = 1;
const MAX_MEMBERSHIPS = 64; // invites that one key came with, the latest kept
const TRIAL_BYTES = 16;
const OPEN_WITHIN_MS = 3000; // a database that another tab blocks must not keep this one from joining

interface Kept {
  readonly mesh: string;
  readonly pair: KeyPair;
  readonly memberships: readonly Grant[];
}

interface Schema extends DBSchema {
  peers: { key: string; value: Kept };
}

/** A key, what lets it come back, and how to keep another membership. */
export interface KeptIdentity {
  readonly identity: Identity;
  readonly voucher: Identity | null; // whose place it takes, where it is a viewer of the same person
  membership(inviteKey: Base64): Grant | null;
  keep(membership: Grant): void;
}

/** A fresh key that nobody keeps. */
export async function thrownAway(): Promise<KeptIdentity> {
  return {
    identity: await identityOf(await newKeyPair()),
    voucher: null,
    membership: () => null,
    keep: () => undefined,
  };
}

/**
 * For a tab that only asks beside the one that lends, in `mesh`: a key that nobody keeps, for which this profile's own
 * one vouches. It takes no further place of a counted invite.
 */
export async function viewerIdentity(mesh: string, notice: (text: string) => void): Promise<KeptIdentity> {
  const own = await keptIdentity(mesh, notice);
  return { ...own, identity: (await thrownAway()).identity, voucher: own.identity };
}

/** This profile's identity in `mesh`; one that nobody keeps where the browser refuses to (`notice` says so). */
export async function keptIdentity(mesh: string, notice: (text: string) => void): Promise<KeptIdentity> {
  try {
    return await kept(await opened(), mesh, notice);
  } catch (error) {
    notice(
      `this browser keeps nothing for this page (${textOf(error)}): on the next visit it comes as a new peer`,
    );
    return thrownAway();
  }
}

async function opened(): Promise<IDBPDatabase<Schema>> {
  const opening = openDB<Schema>(DATABASE, VERSION, {
    upgrade: (database) => {
      database.createObjectStore('peers', { keyPath: 'mesh' });
    },
  });
  const late = new Promise<never>((_, reject) =>
    setTimeout(() => reject(new Error('IndexedDB does not open')), OPEN_WITHIN_MS),
  );
  return Promise.race([opening, late]);
}

async function kept(
  database: IDBPDatabase<Schema>,
  mesh: string,
  notice: (text: string) => void,
): Promise<KeptIdentity> {
  let known = (await readable(database, mesh, notice)) ?? (await firstKept(database, mesh));
  return {
    identity: await identityOf(known.pair),
    voucher: null,
    membership: (inviteKey) => known.memberships.findLast(({ via }) => via === inviteKey) ?? null,
    keep: (membership) => {
      const others = known.memberships.filter(({ via }) => via !== membership.via);
      known = { ...known, memberships: [...others, membership].slice(-MAX_MEMBERSHIPS) };
      database.put('peers', known).catch(() => undefined); // then the next visit is one of a stranger
    },
  };
}

/** What is kept and works. Damage is set aside whole and said; null: nothing is left. */
async function readable(
  database: IDBPDatabase<Schema>,
  mesh: string,
  notice: (text: string) => void,
): Promise<Kept | null> {
  const found = await database.get('peers', mesh);
  if (found === undefined) return null;
  const works = await pairWorks(found.pair);
  const said: unknown = found.memberships;
  const memberships: Grant[] = [];
  for (const grant of Array.isArray(said) && works ? (said as Grant[]) : []) {
    if (await isOf(grant, mesh, found.pair)) memberships.push(grant);
  }
  if (works && Array.isArray(said) && memberships.length === said.length) return found;
  const mended = works ? { mesh, pair: found.pair, memberships } : null;
  const moving = database.transaction('peers', 'readwrite');
  await moving.store.put({ ...found, mesh: `${mesh}.aside-${Date.now()}` });
  await (mended === null ? moving.store.delete(mesh) : moving.store.put(mended));
  await moving.done;
  notice(
    works
      ? 'what this browser kept of its invites is damaged: it is kept aside, and those that hold are used'
      : 'the key that this browser kept for this mesh is damaged: it is kept aside, and this tab comes as a new peer',
  );
  return mended;
}

/** Whether what the private half signs is verified by the public one. */
async function pairWorks(pair: KeyPair): Promise<boolean> {
  try {
    const message = crypto.getRandomValues(new Uint8Array(TRIAL_BYTES));
    const signature = await (await identityOf(pair)).sign(message);
    return await (await publicKey(pair.encoded)).verifies(signature, message);
  } catch {
    return false; // of another type, or of no curve
  }
}

async function isOf(grant: Grant, mesh: string, pair: KeyPair): Promise<boolean> {
  try {
    await verifyGrant(grant, mesh);
    return grant.key === pair.encoded;
  } catch {
    return false;
  }
}

/** A new key, or the one that another tab of this profile kept in the same moment. */
async function firstKept(database: IDBPDatabase<Schema>, mesh: string): Promise<Kept> {
  const made: Kept = { mesh, pair: await newKeyPair(), memberships: [] };
  const transaction = database.transaction('peers', 'readwrite');
  const first = await transaction.store.get(mesh);
  if (first === undefined) await transaction.store.put(made);
  await transaction.done;
  return first ?? made;
}
