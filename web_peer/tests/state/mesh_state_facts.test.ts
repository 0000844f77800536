/* What people say, may and owe, and what keeps a mesh going: both languages build the same states of the same logs. */

import { describe, expect, it } from 'vitest';

import { BadCommand } from '../../src/errors';
import { byBytes } from '../../src/wire/utf8_order';
import { MAX_MESSAGE_BYTES } from '../../src/state/generated/commands';
import { messageOf, messagesOf, thread } from '../../src/state/conversations';
import {
  apply,
  applyEntry,
  decodeState,
  EMPTY_STATE,
  encodeState,
  type MeshState,
  refusal,
  stateDigest,
} from '../../src/state/mesh_state';
import { checkCommand, type Command, decodeCommand, encodeCommand } from '../../src/state/member_commands';
import { vectors } from '../vectors';

interface Vectors {
  readonly wire: { why: string; what: 'command' | 'state'; body: string; error: string }[];
  readonly logs: {
    name: string;
    term: number;
    ops: { entry: string; times: number; refusal: string; refused: number; digest: string }[];
    state: string;
  }[];
}

const VECTORS = vectors('mesh_facts') as Vectors;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (encoded: Uint8Array): string => new TextDecoder().decode(encoded);
const eight = (number: number): string => String(number).padStart(8, '0');

describe('logs', () => {
  it.each(VECTORS.logs)('$name', ({ term, ops, state: last }) => {
    let state: MeshState = { ...EMPTY_STATE, term };
    for (const { entry, times, refusal: wanted, refused, digest } of ops) {
      const reasons = [];
      for (let number = 0; number < times; number++) {
        const body = bytes(
          entry.replaceAll('%', eight(number)).replaceAll('^', eight(Math.max(0, number - 1))),
        );
        reasons.push(why(state, body));
        state = applyEntry(state, body);
      }
      expect(reasons.at(-1)).toBe(wanted);
      expect(reasons.filter((reason) => reason !== '')).toHaveLength(refused);
      expect(stateDigest(state), entry).toBe(digest);
    }
    const snapshot = encodeState(state);
    const restored = decodeState(snapshot);
    expect(stateDigest(restored)).toBe(stateDigest(state));
    expect(text(encodeState(restored))).toBe(text(snapshot));
    if (last === '') return;
    expect(text(snapshot)).toBe(last);
    expect(restored).toEqual(state);
  });
});

describe('wire', () => {
  it.each(VECTORS.wire)('$what: $why', ({ what, body, error }) => {
    const read = (): unknown => (what === 'command' ? decodeCommand(bytes(body)) : decodeState(bytes(body)));
    if (error === 'none') read();
    else expect(read).toThrow(BadCommand);
  });

  it('bytes that are no UTF-8 are no command', () => {
    for (const broken of [[0xff], [0x7b, 0x22, 0xc3, 0x22, 0x7d], [0x7b, 0, 0x7d, 0]]) {
      expect(() => decodeCommand(Uint8Array.from(broken))).toThrow(BadCommand);
    }
  });

  it('a command of a newer version goes on as it came', () => {
    const body = ' {"kind":"Later", "more":[{"é":null}]} ';
    expect(text(encodeCommand(decodeCommand(bytes(body))))).toBe(body);
  });
});

describe('a conversation', () => {
  const started: Command = {
    ...{ kind: 'ConversationStarted', conversation: 'c', title: '', model: '', system: '' },
    ...{ sampling: [], whenMs: 1, peer: 'a', name: 'Ada', colour: '#3366cc' },
  };
  const added = (id: string, parent: string, words = ''): Command => ({
    ...{ kind: 'MessageAdded', conversation: 'c', id, parent, author: 'a', form: 'to-model', text: words },
    ...{ whenMs: 1, session: '', model: '', sampling: [], maxTokens: 0 },
  });
  const of = (state: MeshState) =>
    state.conversations.get('c')?.messages ?? { chunks: [], count: 0, textBytes: 0 };

  it('has branches where a question was edited', () => {
    const state = [started, added('a', ''), added('b', 'a'), added('c', 'b'), added('d', 'a')].reduce(
      apply,
      EMPTY_STATE,
    );
    const ids = (found: readonly { id: string }[]): string => found.map(({ id }) => id).join('');
    expect(ids(thread(of(state), 'c'))).toBe('abc');
    expect(ids(thread(of(state), 'd'))).toBe('ad');
    expect(thread(of(state), 'x')).toEqual([]);
  });

  it('shares what did not change with the state before', () => {
    let state = apply(EMPTY_STATE, started);
    for (let number = 0; number < 1000; number++) state = apply(state, added(`m${number}`, ''));
    const after = apply(state, added('last', 'm0'));
    expect(of(after).chunks.filter((chunk, at) => chunk !== of(state).chunks[at])).toHaveLength(1);
    expect(messageOf(of(state), 'last')).toBeUndefined();
    expect(messagesOf(of(after))).toHaveLength(1001);
    expect(after.members).toBe(state.members);
  });

  it('refuses a message that is too long, and says so', () => {
    const long = added('a', '', 'x'.repeat(MAX_MESSAGE_BYTES + 1));
    expect(() => checkCommand(long)).toThrow('at most 65536 bytes');
    checkCommand(added('a', '', 'x'.repeat(MAX_MESSAGE_BYTES)));
  });

  it('of more messages than there may be is no snapshot', () => {
    const one = [started, added('a', '')].reduce(apply, EMPTY_STATE);
    const body = JSON.parse(text(encodeState(one))) as {
      conversations: { c: { messages: { id: string }[] } };
    };
    const [message] = body.conversations.c.messages;
    const many = (count: number): Uint8Array => {
      body.conversations.c.messages = Array.from({ length: count }, (_, at) => ({
        ...message,
        id: `m${at}`,
      }));
      return bytes(JSON.stringify(body));
    };
    expect(of(decodeState(many(16384))).count).toBe(16384);
    expect(() => decodeState(many(16385))).toThrow(BadCommand);
  });
});

it('texts are in the order of their code points', () => {
  const sorted = ['', '10', '9', 'a', 'ab', 'b', '\ud7ff', '\ue000', '\uffff', '\u{10000}', '\u{10ffff}'];
  expect(sorted.toReversed().sort(byBytes)).toEqual(sorted);
});

function why(state: MeshState, body: Uint8Array): string {
  try {
    return refusal(state, decodeCommand(body));
  } catch (error) {
    if (error instanceof BadCommand) return 'BadCommand';
    throw error;
  }
}
