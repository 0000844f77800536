/* Answers to requests: what is read of them, and which are refused, as in Python. */

import { describe, expect, it } from 'vitest';

import { BadCommand } from '../../src/errors';
import {
  CHECK,
  JOIN,
  KV_COPY,
  KV_DIGEST,
  LEADER,
  MEASURE,
  MEASURE_LINK,
  RELAY,
  RUN_FOLDER,
  STATUS,
  WAIT,
  WITNESS,
} from '../../src/wire/generated/requests';
import { type Body, checksum, dump } from '../../src/wire/json_codec';
import { readAnswer, type RequestKind } from '../../src/wire/request_kind';
import { vectors } from '../vectors';

interface Answer {
  readonly method: string;
  readonly body: Body;
  readonly read: string;
  readonly odd: Readonly<Record<string, readonly (string | null)[]>>;
  readonly missing: Readonly<Record<string, string | null>>;
}

const { odd: ODD, answers: ANSWERS } = vectors('answers') as {
  readonly odd: readonly unknown[];
  readonly answers: readonly Answer[];
};
const KINDS: readonly RequestKind<unknown, unknown>[] = [
  ...[CHECK, JOIN, KV_COPY, KV_DIGEST, LEADER, MEASURE],
  ...[MEASURE_LINK, RELAY, RUN_FOLDER, STATUS, WAIT, WITNESS],
];

function read(method: string, body: Body): string | null {
  const kind = KINDS.find((each) => each.method === method);
  if (kind === undefined) throw new Error(`expected a request ${method}`);
  try {
    return checksum(dump(kind.answer.encode(readAnswer(kind, body))));
  } catch (error) {
    if (error instanceof BadCommand) return null;
    throw error;
  }
}

describe.each(ANSWERS)('an answer to $method', ({ method, body, read: whole, odd, missing }) => {
  it('is read, what a newer peer adds is passed over', () => {
    expect(read(method, { ...body, newer: 1 })).toBe(whole);
  });

  it.each(Object.entries(odd))('with an odd %s is taken or refused', (name, found) => {
    expect(ODD.map((each) => read(method, { ...body, [name]: each }))).toEqual(found);
  });

  it.each(Object.entries(missing))('without %s is taken or refused', (name, found) => {
    expect(read(method, Object.fromEntries(Object.entries(body).filter(([each]) => each !== name)))).toBe(
      found,
    );
  });
});
