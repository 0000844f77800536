/* Who may propose what, who may ask, what older voters keep out of the log, whose answer a session is: as in Python. */

import { describe, expect, it } from 'vitest';

import { countedMilli, mayAsk } from '../../src/state/fairness';
import { askerOf, messagesOf, NO_MESSAGES, thread } from '../../src/state/conversations';
import { apply, EMPTY_STATE } from '../../src/state/mesh_state';
import { decodeCommand, type Command } from '../../src/state/member_commands';
import { maySay } from '../../src/state/proposal_rights';
import { levelOf } from '../../src/state/protection';
import { markOf } from '../../src/state/decoders';
import { neededBy, neededToLead, tooNew } from '../../src/state/version_negotiation';
import { vectors } from '../vectors';

interface Vectors {
  readonly states: readonly {
    name: string;
    commands: string[];
    may_say: [string, string, string][];
    may_ask: Record<string, string>;
    counted_milli: Record<string, number>;
    needed_to_lead: number;
    marks: Record<string, string>;
    asker_of: Record<string, string | null>;
    thread: Record<string, string[]>;
  }[];
  readonly versions: readonly {
    command: string;
    needed: number;
    voters: string[];
    speaks: Record<string, number>;
    why: string;
  }[];
  readonly levels: readonly { command: string; level: string | null }[];
}

const VECTORS = vectors('state_rules') as Vectors;
const command = (text: string): Command => decodeCommand(new TextEncoder().encode(text));
const each = <T, R>(table: Record<string, T>, of: (key: string) => R): Record<string, R> =>
  Object.fromEntries(Object.keys(table).map((key) => [key, of(key)]));

describe.each(VECTORS.states)('$name', (row) => {
  const state = row.commands.map(command).reduce(apply, EMPTY_STATE);
  const messages = state.conversations.get('c')?.messages ?? NO_MESSAGES;

  it('who may propose what', () => {
    for (const [peer, text, why] of row.may_say) {
      expect({ peer, text, why: maySay(state, peer, command(text)) }).toEqual({ peer, text, why });
    }
  });

  it('who may ask, and how much it counts', () => {
    const { fairness, ledger } = state;
    expect(each(row.may_ask, (peer) => mayAsk(fairness, ledger, peer))).toEqual(row.may_ask);
    const counted = each(row.counted_milli, (peer) => countedMilli(fairness, ledger, peer));
    expect(counted).toEqual(row.counted_milli);
  });

  it('which version it takes to lead', () => {
    expect(neededToLead(state)).toBe(row.needed_to_lead);
    for (const [name, mark] of Object.entries(row.marks)) {
      expect(markOf(name, state.decoders.get(name)?.model ?? '')).toBe(mark);
    }
  });

  it('whose answer a session is, and what leads to a message', () => {
    expect(each(row.asker_of, (session) => askerOf(state.conversations, session))).toEqual(row.asker_of);
    const threads = each(row.thread, (leaf) => thread(messages, leaf).map(({ id }) => id));
    expect(threads).toEqual(row.thread);
    expect(messagesOf(messages).length).toBe(
      row.commands.filter((text) => text.includes('MessageAdded')).length,
    );
  });
});

it.each(VECTORS.versions)('$voters: $why', ({ command: text, needed, voters, speaks, why }) => {
  expect(neededBy(command(text))).toBe(needed);
  expect(tooNew(command(text), voters, (peer) => speaks[peer] ?? 0)).toBe(why);
});

it.each(VECTORS.levels)('the level $level', ({ command: text, level }) => {
  const chosen = command(text);
  expect(chosen.kind === 'ProtectionChosen' && levelOf(chosen.protection)).toBe(level);
});
