/*
 * Links into one conversation as a tab makes and uses them (entry_links.ts, conversation_entry.ts). Edge: secrets are
 * drawn here.
 */

import { type EntryLink, entryLink, keyOf, used } from './entry_links';
import { SEED_BYTES } from '../signaling/keys';
import type { Conversation } from '../state/conversations';
import type { Given } from '../state/generated/commands';
import type { Self, Talking } from './conversation_client';

/** A new link into the conversation: `meshLink`, and what leads there; and the key by which the log knows it soon. */
export async function offer(
  talking: Talking,
  meshLink: string,
  conversation: string,
  role: Given,
): Promise<{ readonly key: string; readonly link: string }> {
  const link = { conversation, seed: crypto.getRandomValues(new Uint8Array(SEED_BYTES)) };
  const key = await keyOf(link);
  talking.say({ kind: 'EntryOffered', conversation, key, role, by: talking.me, whenMs: Date.now() });
  return { key, link: entryLink(meshLink, link) };
}

/** Takes part with what the link gives. */
export async function comeIn(talking: Talking, mesh: string, link: EntryLink, self: Self): Promise<void> {
  talking.say(await used(link, mesh, { peer: talking.me, ...self }));
}

/** Whether `peer` may come in by itself. */
export function mayComeIn({ entry }: Conversation, peer: string): boolean {
  return !entry.byInvite && !entry.barred.includes(peer);
}
