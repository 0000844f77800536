/* Private conversations of one mesh, kept in this browser's own storage, one entry for each. Checked when read. */

import { type Conversation, type Conversations, conversationsCodec } from '../../src/state/conversations';
import type { Shelf } from '../../src/conversation/local_conversations';

const DAMAGED =
  'A private conversation that this browser keeps cannot be read: it is left as it is, and not shown.';
const NO_ROOM =
  'This browser has no room left to keep private conversations: what is said now ends with this tab. Export it, or remove other conversations.';

/**
 * The shelf of the mesh with that id. `tell` is called with a sentence for the person when there is no room, or what
 * is kept cannot be read.
 */
export function privateShelf(mesh: string, tell: (text: string) => void): Shelf {
  const prefix = `shoal.private.${mesh}.`;
  const damaged = new Set<string>(); // those that were told of
  const keptIn = (key: string): Conversations => {
    const found = readable(key);
    if (found === null && !damaged.has(key)) {
      damaged.add(key);
      tell(DAMAGED);
    }
    return found ?? new Map();
  };
  return {
    read: () => new Map(keptKeys(prefix).flatMap((key) => [...keptIn(key)])),
    write: (id, conversation) => {
      try {
        if (conversation === null) localStorage.removeItem(prefix + id);
        else localStorage.setItem(prefix + id, textOf(id, conversation));
      } catch {
        tell(NO_ROOM);
      }
    },
    watch: (changed, signal) => {
      const look = ({ key }: StorageEvent): void => {
        if (key === null || key.startsWith(prefix)) changed();
      };
      addEventListener('storage', look, { signal });
    },
  };
}

const textOf = (id: string, conversation: Conversation): string =>
  JSON.stringify(conversationsCodec.encode(new Map([[id, conversation]])));

function keptKeys(prefix: string): string[] {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  } catch {
    return []; // storage refused: they last as long as the page
  }
}

/** What an entry holds; null where it cannot be read, and the entry stays for a page that can. */
function readable(key: string): Conversations | null {
  try {
    return conversationsCodec.decode(JSON.parse(localStorage.getItem(key) ?? '{}'), key);
  } catch {
    return null;
  }
}
