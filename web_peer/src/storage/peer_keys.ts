/*
 * Decides who this tab is: in each mesh a key that IndexedDB keeps and no script can read out, or one that nobody
 * keeps. Edge. A peer that comes back is the same peer, takes up no further place of a counted invite, and may come
 * when the invite has expired or is used up (its membership says so).
 */

import { type DBSchema, type IDBPDatabase, openDB } from 'idb';

import type { Grant } from '../signaling/invites';
import { type Base64, type Identity, identityOf, type KeyPair, newKeyPair } from '../signaling/keys';

const DATABASE = 'shoal-identity';
const VERSION = 1;
const MAX_MEMBERSHIPS = 64; // invites that one key came with, the latest kept
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
    return await kept(await opened(), mesh);
  } catch {
    notice('this browser keeps nothing for this page: on the next visit it comes as a new peer');
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

async function kept(database: IDBPDatabase<Schema>, mesh: string): Promise<KeptIdentity> {
  let known = (await database.get('peers', mesh)) ?? (await firstKept(database, mesh));
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

/** A new key, or the one that another tab of this profile kept in the same moment. */
async function firstKept(database: IDBPDatabase<Schema>, mesh: string): Promise<Kept> {
  const made: Kept = { mesh, pair: await newKeyPair(), memberships: [] };
  const transaction = database.transaction('peers', 'readwrite');
  const first = await transaction.store.get(mesh);
  if (first === undefined) await transaction.store.put(made);
  await transaction.done;
  return first ?? made;
}
