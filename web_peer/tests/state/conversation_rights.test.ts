/* Who may say what in a conversation: the same as Python decided. */

import { describe, expect, it } from 'vitest';

import { conversationsCodec } from '../../src/state/conversations';
import type { ConversationCommand, Member, Role } from '../../src/state/generated/commands';
import { decodeCommand } from '../../src/state/member_commands';
import { EMPTY_STATE, type MeshState } from '../../src/state/mesh_state';
import { mayConverse } from '../../src/state/conversation_rights';
import { vectors } from '../vectors';

interface Vectors {
  readonly states: {
    readonly members: string[];
    readonly roles: Record<string, Role>;
    readonly conversations: unknown;
    readonly cases: { peer: string; says: [string, string][] }[];
  }[];
}

describe.each((vectors('speaking') as Vectors).states)('with $members', (row) => {
  const state: MeshState = {
    ...EMPTY_STATE,
    members: new Map(row.members.map((peer) => [peer, { peer } as Member])),
    people: { ...EMPTY_STATE.people, roles: new Map(Object.entries(row.roles)) },
    conversations: conversationsCodec.decode(row.conversations, 'c'),
  };
  it.each(row.cases)('$peer says', ({ peer, says }) => {
    for (const [text, why] of says) {
      const command = decodeCommand(new TextEncoder().encode(text)) as ConversationCommand;
      expect({ text, why: mayConverse(state, peer, command) }).toEqual({ text, why });
    }
  });
});
