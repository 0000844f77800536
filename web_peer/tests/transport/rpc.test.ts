/* Questions between two peers: what a refusal says beside its words. */

import { expect, it, vi } from 'vitest';

import { BeginAnew, MeshError, NotLeader, type PeerError } from '../../src/errors';
import { Calls } from '../../src/transport/rpc';

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
    () => Promise.reject(error),
  );
  const asking: Calls = new Calls(
    (_, frame) => {
      if (frame.kind === 'REQUEST') answering.requested('a', frame);
    },
    () => Promise.resolve({}),
  );
  return asking.call('b', 'join', {}).then(
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
    (peer, method) => {
      read.push(peer + method);
      return Promise.resolve({});
    },
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
