/* The table of requests: one handler each, sent by those who may. */

import { describe, expect, it } from 'vitest';

import { BadCommand } from '../../src/errors';
import { Requests } from '../../src/transport/request_table';
import type { Codec } from '../../src/wire/json_codec';
import { nothing } from '../../src/wire/request_kind';

const SHORT = { maxBodyBytes: 16, maxAnswerBytes: 32 } as const;
const answer: Codec<string> = { decode: String, encode: (peer) => ({ peer }) };

/** Ann is a member and Bob leads; Cho is connected, and neither. */
function table(): Requests {
  const isOne = (peer: string, who: string): boolean =>
    who === 'leader' ? peer === 'bob' : ['ann', 'bob'].includes(peer);
  const requests = new Requests(isOne);
  for (const sender of ['anyone', 'members', 'leader'] as const) {
    requests.on({ method: sender, sender, ...SHORT, codec: nothing, answer }, (peer) => peer);
  }
  return requests;
}

describe('a request', () => {
  it.each([
    ['anyone', ['ann', 'bob', 'cho']],
    ['members', ['ann', 'bob']],
    ['leader', ['bob']],
  ])('of %s is answered for %s', async (method, may) => {
    for (const peer of ['ann', 'bob', 'cho']) {
      const answered = table().answer(peer, method, {});
      if (may.includes(peer)) await expect(answered).resolves.toEqual({ peer });
      else await expect(answered).rejects.toThrow(BadCommand);
    }
  });

  it('that nobody handles is refused, also one that was handled before', async () => {
    const requests = table();
    await expect(requests.answer('ann', 'other', {})).rejects.toThrow('unknown request other');
    const other = { method: 'other', sender: 'anyone', ...SHORT, codec: nothing, answer: nothing } as const;
    const end = requests.on(other, () => null);
    await expect(requests.answer('ann', 'other', {})).resolves.toEqual({});
    end();
    await expect(requests.answer('ann', 'other', {})).rejects.toThrow(BadCommand);
  });

  it('is refused before its body is read where its sender may not ask', () => {
    expect(table().admit('ann', 'members')).toMatchObject(SHORT);
    expect(() => table().admit('cho', 'members')).toThrow('a member');
    expect(() => table().admit('ann', 'leader')).toThrow('who coordinates');
    expect(() => table().admit('ann', 'other')).toThrow('unknown request');
  });

  it('has one handler', () => {
    const again = { method: 'anyone', sender: 'members', ...SHORT, codec: nothing, answer } as const;
    expect(() => table().on(again, () => '')).toThrow('has a handler already');
  });

  it('is decoded before its handler sees it, and after who sent it is looked at', async () => {
    const seen: unknown[] = [];
    const codec: Codec<number> = {
      decode: (body) => {
        if (!(body instanceof Object && 'at' in body)) throw new BadCommand('expected at');
        return Number(body.at);
      },
      encode: (at) => ({ at }),
    };
    const requests = table();
    requests.on({ method: 'at', sender: 'members', ...SHORT, codec, answer: codec }, (_, at) =>
      seen.push(at),
    );
    await expect(requests.answer('cho', 'at', {})).rejects.toThrow('a member');
    await expect(requests.answer('ann', 'at', {})).rejects.toThrow('expected at');
    await expect(requests.answer('ann', 'at', { at: '7' })).resolves.toEqual({ at: 1 });
    expect(seen).toEqual([7]);
  });
});
