/*
 * Decides how a link that leads into one conversation is written, and what proves that somebody holds it (twin of
 * peer/conversation/entry_links.py).
 *
 * The link of the mesh, then `&in=`, the conversation's id, a dot and 32 secret bytes: the seed of the key by which the
 * log knows this invite. Whoever uses it signs mesh, conversation and peer id with that key.
 */

import { fromText, identityFromSeed, publicKey, SEED_BYTES, toText, transcript } from '../signaling/keys';
import type { ParticipantInvited } from '../state/generated/commands';

const MARK = '&in=';
const ENTRY = /^([0-9A-Za-z_.:-]{1,64})\.([0-9A-Za-z_-]{43})$/;

/** What stands behind the mesh's link. `seed` is a secret. */
export interface EntryLink {
  readonly conversation: string;
  readonly seed: Uint8Array<ArrayBuffer>;
}

/** The whole link. It is a secret, as the mesh's is. */
export function entryLink(meshLink: string, { conversation, seed }: EntryLink): string {
  return `${meshLink}${MARK}${conversation}.${toText(seed)}`;
}

/** What leads into a conversation, by the words behind `&in=`; null where it is not whole. */
export function entryOf(words: string): EntryLink | null {
  const found = ENTRY.exec(words);
  const [, conversation = '', secret = ''] = found ?? [];
  try {
    const seed = fromText(secret);
    return found !== null && seed.length === SEED_BYTES ? { conversation, seed } : null;
  } catch {
    return null; // not in its canonical spelling
  }
}

const signedEntry = (mesh: string, conversation: string, peer: string): Uint8Array<ArrayBuffer> =>
  transcript('entry', mesh, conversation, peer);

/** The public key by which the log knows the invite. */
export async function keyOf({ seed }: EntryLink): Promise<string> {
  return (await identityFromSeed(seed)).encoded;
}

/** The command by which `peer` comes in with that link. */
export async function used(
  { conversation, seed }: EntryLink,
  mesh: string,
  self: { readonly peer: string; readonly name: string; readonly colour: string },
): Promise<ParticipantInvited> {
  const identity = await identityFromSeed(seed);
  const proof = await identity.sign(signedEntry(mesh, conversation, self.peer));
  return { kind: 'ParticipantInvited', conversation, key: identity.encoded, ...self, proof };
}

/** Whether who says the command holds the invite's secret. */
export async function isProven(mesh: string, command: ParticipantInvited): Promise<boolean> {
  try {
    const key = await publicKey(command.key);
    return await key.verifies(command.proof, signedEntry(mesh, command.conversation, command.peer));
  } catch {
    return false; // a key that is none
  }
}
