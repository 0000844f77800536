/*
 * Whose turn it is, what the model reads, who adopts and what is shown: the conversations that both languages replay.
 */

import { describe, expect, it } from 'vitest';

import { conversationsCodec, messageOf, messagesOf } from '../../src/state/conversations';
import { sha256Hex } from '../../src/wire/sha256';
import {
  adopters,
  leafOf,
  mayAsk,
  nextTurn,
  promptOf,
  rank,
  running,
  shown,
  waiting,
  waitsFor,
} from '../../src/conversation/turn_order';
import { vectors } from '../vectors';

interface Case {
  readonly conversations: unknown;
  readonly present: readonly string[];
  readonly may_ask: readonly string[];
  readonly running: string | null;
  readonly waiting: readonly string[];
  readonly next_turn: readonly [string, string] | null;
  readonly adopters: Readonly<Record<string, readonly string[]>>;
  readonly prompts: Readonly<Record<string, readonly (readonly [string, string])[]>>;
  readonly chosen: Readonly<Record<string, string>>;
  readonly shown: readonly unknown[];
  readonly leaf: string;
  readonly waits_for: Readonly<Record<string, readonly string[]>>;
}
const VECTORS = vectors('turns') as {
  readonly ranks: readonly { readonly id: string; readonly peers: string[]; readonly gives: string[] }[];
  readonly cases: readonly Case[];
};

describe('turns', () => {
  it.each(VECTORS.ranks)('ranks for $id', ({ id, peers, gives }) => {
    expect(rank(id, peers)).toEqual(gives);
  });

  it.each(VECTORS.cases.map((each, number) => ({ each, number })))('conversation $number', ({ each }) => {
    const conversation = conversationsCodec.decode(each.conversations, 'vector').get('c');
    if (conversation === undefined) throw new Error('no conversation');
    const { messages } = conversation;
    const present = new Set(each.present);
    const found = (id: string): NonNullable<ReturnType<typeof messageOf>> => {
      const message = messageOf(messages, id);
      if (message === undefined) throw new Error(`no message ${id}`);
      return message;
    };
    expect(['ann', 'bob', 'cho', 'dee'].filter((peer) => mayAsk(conversation, peer))).toEqual(each.may_ask);
    expect(running(conversation)?.id ?? null).toBe(each.running);
    expect(waiting(conversation).map(({ id }) => id)).toEqual(each.waiting);
    const turn = nextTurn(conversation, present);
    expect(turn === null ? null : [turn.question.id, turn.asker]).toEqual(each.next_turn);
    for (const [id, gives] of Object.entries(each.adopters)) {
      expect(adopters(conversation, found(id), present)).toEqual(gives);
    }
    for (const [id, gives] of Object.entries(each.prompts)) {
      expect(promptOf(conversation, id).map(({ role, content }) => [role, content])).toEqual(gives);
    }
    for (const [id, gives] of Object.entries(each.waits_for)) {
      expect(waitsFor(conversation, found(id))).toEqual(gives);
    }
    const turns = shown(messages, new Map(Object.entries(each.chosen)));
    expect(
      turns.map(({ message, branches, answer, answers }) => [
        message.id,
        branches,
        answer?.id ?? null,
        answers,
      ]),
    ).toEqual(each.shown);
    expect(leafOf(turns)).toBe(each.leaf);
    expect(messagesOf(messages).length).toBeGreaterThanOrEqual(turns.length);
  });

  it('hash as everybody does', () => {
    expect(sha256Hex('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
    expect(sha256Hex('a'.repeat(119)).length).toBe(64);
  });
});
