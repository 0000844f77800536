/* Questions between two peers: what a refusal says beside its words. */

import { describe, expect, it, vi } from 'vitest';

import { BadCommand, BeginAnew, MeshError, NotLeader, type PeerError } from '../../src/errors';
import { MAX_BODY_BYTES, MAX_REFUSAL_BYTES } from '../../src/limits';
import type { Admitted } from '../../src/transport/request_table';
import { Calls } from '../../src/transport/rpc';
import type { Response } from '../../src/wire/generated/frames';
import * as generated from '../../src/wire/generated/requests';
import type { Body } from '../../src/wire/json_codec';
import { nothing, type RequestKind } from '../../src/wire/request_kind';

const KINDS = Object.values<unknown>({ ...generated }).filter(
  (each): each is RequestKind<never, unknown> => each instanceof Object && 'method' in each,
);
const COMES: generated.JoinRequest = {
  ...{ name: 'ann', compute: true, protocol: 7, incarnation: 0 },
  ...{ fresh: false, epoch: 0, headless: false, durable: false },
};

/** Lets everybody ask everything, in as many bytes; `answer(peer, method, body)` answers. */
function admitting(
  answer: (peer: string, method: string, body: Body) => Promise<Body>,
  most = MAX_BODY_BYTES,
): (peer: string, method: string) => Admitted {
  return (peer, method) => ({
    maxBodyBytes: most,
    maxAnswerBytes: most,
    answer: (body) => answer(peer, method, body),
  });
}

const nobody = (): Promise<Body> => Promise.reject(new Error('nobody asks here'));

/** Spells a body of so many bytes. */
function padded(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new TextEncoder().encode(`{"x":"${'y'.repeat(size - 8)}"}`));
}

/** As long, and no JSON, if anybody looked. */
function open(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(size).fill(0x5b);
}

/** What an asker hears where the other side refuses with `error`, whose answer is changed on its way. */
async function refusal(
  error: PeerError,
  changed: (body: string) => string = (body) => body,
): Promise<unknown> {
  const answering = new Calls(
    (_, frame) => {
      if (frame.kind !== 'RESPONSE') throw new Error('expected an answer');
      const body = new TextEncoder().encode(changed(new TextDecoder().decode(frame.body)));
      asking.responded('b', { ...frame, body });
    },
    admitting(() => Promise.reject(error)),
  );
  const asking: Calls = new Calls((_, frame) => {
    if (frame.kind === 'REQUEST') answering.requested('a', frame);
  }, admitting(nobody));
  return asking.call('b', generated.JOIN, COMES).then(
    () => null,
    (heard: unknown) => heard,
  );
}

it('a refusal names who leads, or above which incarnation a life begins', async () => {
  expect(await refusal(new NotLeader('x', 'ann'))).toMatchObject({ message: 'x', leader: 'ann' });
  const anew = await refusal(new BeginAnew('y', 7));
  expect(anew).toBeInstanceOf(BeginAnew);
  expect(anew).toMatchObject({ message: 'y', above: 7 });
  expect(await refusal(new MeshError('z'))).toMatchObject({ message: 'z' });
});

it.each(['', '{}', '[]', '{"above":-1}', '{"above":1.5}', '{"above":"7"}', '{"above":9007199254740991}'])(
  'one that names it wrongly names none: %s',
  async (body) => {
    expect(await refusal(new BeginAnew('y', 7), () => body)).toMatchObject({ above: 0 });
  },
);

const LARGE = new TextEncoder().encode(JSON.stringify({ x: 'a'.repeat(128 << 10) }));

function answering(): { readonly calls: Calls; readonly read: string[] } {
  const read: string[] = [];
  const calls = new Calls(
    () => undefined,
    admitting((peer, method) => {
      read.push(peer + method);
      return Promise.resolve({});
    }),
  );
  return { calls, read };
}

it('large bodies are read one at a time, and each peer has its turn', async () => {
  vi.useFakeTimers();
  const { calls, read } = answering();
  for (const [id, peer] of ['a', 'a', 'a', 'a', 'a', 'b', 'b'].entries()) {
    calls.requested(peer, { kind: 'REQUEST', id, method: '', body: LARGE });
  }
  await vi.advanceTimersByTimeAsync(20_000);
  expect(read.join('')).toBe('ababaaa'); // one of each waits
  vi.useRealTimers();
});

it('a refusal that is too long names nothing', async () => {
  const long = `{"above":7${' '.repeat(MAX_REFUSAL_BYTES)}}`;
  expect(await refusal(new BeginAnew('y', 7), () => long)).toMatchObject({ above: 0 });
});

/** What a request of "a" gets. */
function answeredTo(
  admit: (peer: string, method: string) => Admitted,
  method: string,
  body: Uint8Array<ArrayBuffer>,
): Promise<Response> {
  return new Promise((resolve) => {
    const calls = new Calls((_, frame) => {
      if (frame.kind === 'RESPONSE') resolve(frame);
    }, admit);
    calls.requested('a', { kind: 'REQUEST', id: 1, method, body });
  });
}

describe.each(KINDS)('of one byte more than $method may have', (kind) => {
  const { method, maxBodyBytes, maxAnswerBytes } = kind;

  it('a body is never read', async () => {
    const read: unknown[] = [];
    const answer = (body: Body): Promise<Body> => {
      read.push(String(body['x']).length);
      return Promise.resolve({});
    };
    const admit = (): Admitted => ({ maxBodyBytes, maxAnswerBytes, answer });
    expect(maxBodyBytes).toBeLessThanOrEqual(MAX_BODY_BYTES);
    expect(await answeredTo(admit, method, padded(maxBodyBytes))).toMatchObject({ status: 0 });
    for (const body of [padded(maxBodyBytes + 1), open(maxBodyBytes + 1)]) {
      const { status, message } = await answeredTo(admit, method, body);
      expect(status).toBe(1);
      expect(message).toContain(
        `${method}: expected at most ${maxBodyBytes} bytes of JSON, got ${maxBodyBytes + 1}`,
      );
    }
    expect(read).toEqual([maxBodyBytes - 8]);
  });

  it('an answer is never read', async () => {
    const bare = { ...kind, codec: nothing, answer: nothing } as const;
    expect(maxAnswerBytes).toBeLessThanOrEqual(MAX_BODY_BYTES);
    for (const body of [padded(maxAnswerBytes), padded(maxAnswerBytes + 1), open(maxAnswerBytes + 1)]) {
      const asking: Calls = new Calls((peer, frame) => {
        if (frame.kind !== 'REQUEST') throw new Error('expected a request');
        asking.responded(peer, { kind: 'RESPONSE', id: frame.id, status: 0, message: '', body });
      }, admitting(nobody));
      const answered = asking.call('b', bare, null);
      if (body.length <= maxAnswerBytes) await expect(answered).resolves.toBeNull();
      else await expect(answered).rejects.toThrow(`at most ${maxAnswerBytes} bytes of JSON`);
    }
  });
});

it('what is too long is not sent, and its sender is told', async () => {
  const sent: unknown[] = [];
  const calls = new Calls((_, frame) => sent.push(frame), admitting(nobody));
  const name = 'x'.repeat(generated.JOIN.maxBodyBytes);
  await expect(calls.call('b', generated.JOIN, { ...COMES, name })).rejects.toThrow(BadCommand);
  expect(sent).toEqual([]);
  const answer = (): Promise<Body> => Promise.resolve({ leader: 'x'.repeat(100) });
  const { status, message } = await answeredTo(admitting(answer, 64), 'leader', padded(10));
  expect(status).toBe(1);
  expect(message).toContain('the answer to leader: expected at most 64 bytes');
});

it('who may not ask is refused before the body is counted or read', async () => {
  const admit = (): Admitted => {
    throw new BadCommand('odd: expected a member');
  };
  for (const body of [padded(10), open(MAX_BODY_BYTES)]) {
    expect(await answeredTo(admit, 'odd', body)).toMatchObject({
      status: 1,
      message: 'odd: expected a member',
    });
  }
});

it('what is small waits for no large body', async () => {
  vi.useFakeTimers();
  const { calls, read } = answering();
  for (const [id, body] of [LARGE, LARGE, new TextEncoder().encode('{}')].entries()) {
    calls.requested('a', { kind: 'REQUEST', id, method: String(id), body });
  }
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  expect(read.sort()).toEqual(['a0', 'a2']);
  await vi.advanceTimersByTimeAsync(2000);
  expect(read).toHaveLength(3);
  vi.useRealTimers();
});
