/* The table of requests: one handler each, sent by those who may. */

import { describe, expect, it } from 'vitest';

import { BadCommand } from '../../src/errors';
import { Requests } from '../../src/transport/request_table';

/** Ann is a member and Bob leads; Cho is connected, and neither. */
function table(): Requests {
  const isOne = (peer: string, who: string): boolean =>
    who === 'leader' ? peer === 'bob' : ['ann', 'bob'].includes(peer);
  const requests = new Requests(isOne);
  for (const who of ['anyone', 'members', 'leader'] as const) requests.on(who, (peer) => ({ peer }), who);
  return requests;
}

describe('a request', () => {
  it.each([
    ['anyone', ['ann', 'bob', 'cho']],
    ['members', ['ann', 'bob']],
    ['leader', ['bob']],
  ])('of %s is answered for %s', async (method, may) => {
    for (const peer of ['ann', 'bob', 'cho']) {
      const answer = table().answer(peer, method, {});
      if (may.includes(peer)) await expect(answer).resolves.toEqual({ peer });
      else await expect(answer).rejects.toThrow(BadCommand);
    }
  });

  it('that nobody handles is refused, also one that was handled before', async () => {
    const requests = table();
    await expect(requests.answer('ann', 'other', {})).rejects.toThrow('unknown request other');
    const end = requests.on('other', () => ({}), 'anyone');
    await expect(requests.answer('ann', 'other', {})).resolves.toEqual({});
    end();
    await expect(requests.answer('ann', 'other', {})).rejects.toThrow(BadCommand);
  });

  it('has one handler', () => {
    expect(() => table().on('anyone', () => ({}), 'members')).toThrow('has a handler already');
  });

  it('is decoded before its handler sees it, and after who sent it is looked at', async () => {
    const seen: unknown[] = [];
    const decode = (body: object): number => {
      if (!('at' in body)) throw new BadCommand('expected at');
      return Number(body.at);
    };
    const requests = table();
    const handler = (_: string, at: number): object => ({ at: seen.push(at) });
    requests.on('at', (peer, at) => ({ ...handler(peer, at) }), 'members', decode);
    await expect(requests.answer('cho', 'at', {})).rejects.toThrow('a member');
    await expect(requests.answer('ann', 'at', {})).rejects.toThrow('expected at');
    await expect(requests.answer('ann', 'at', { at: '7' })).resolves.toEqual({ at: 1 });
    expect(seen).toEqual([7]);
  });
});
