/* What peers say of their surroundings, and when again: the rows and traces that both languages replay. */

import { describe, expect, it } from 'vitest';

import { Path } from '../../src/transport/connection_path';
import {
  agreed,
  domainsOf,
  type End,
  hashed,
  hazardMilli,
  isRelayed,
  type Platform,
  publicAddress,
  surroundingsCodec,
  Telling,
} from '../../src/state/failure_domains';
import { vectors } from '../vectors';

interface Vectors {
  readonly hazards: readonly { platform: Platform; conditions: readonly string[]; milli: number }[];
  readonly hashes: readonly {
    what: 'machine' | 'network' | 'owner';
    mesh: string;
    name: string;
    hash: string;
  }[];
  readonly addresses: readonly { sdp: string; address: string }[];
  readonly relays: readonly { descriptions: string[]; pair: End[] | null; relayed: boolean | null }[];
  readonly agreed: readonly { mine: boolean | null; theirs: boolean | null; relayed: boolean | null }[];
  readonly traces: readonly {
    name: string;
    ops: readonly { now: number; said: unknown; seen: unknown; due: boolean }[];
  }[];
}

const VECTORS = vectors('surroundings') as Vectors;

it('hazards of platforms under conditions', () => {
  for (const { platform, conditions, milli } of VECTORS.hazards) {
    expect(hazardMilli(platform, new Set(conditions)), `${platform} ${conditions.join()}`).toBe(milli);
  }
});

it('places are told apart by hashes that only one mesh understands', () => {
  for (const { what, mesh, name, hash } of VECTORS.hashes) expect(hashed(what, mesh, name)).toBe(hash);
});

it('the public address in a description', () => {
  for (const { sdp, address } of VECTORS.addresses) expect(publicAddress(sdp), sdp).toBe(address);
});

it('whether a relay is in the way', () => {
  for (const { descriptions, pair, relayed } of VECTORS.relays) {
    expect(isRelayed(descriptions, pair), JSON.stringify([descriptions, pair])).toBe(relayed);
  }
  for (const { mine, theirs, relayed } of VECTORS.agreed) expect(agreed(mine, theirs)).toBe(relayed);
});

it('a relay that comes as a later candidate is known as one', async () => {
  const pair = [
    { host: '192.168.1.5', port: 5000, kind: 'host' },
    { host: '192.0.2.1', port: 7000, kind: 'prflx' },
  ];
  const path = new Path({ selected: () => Promise.resolve(pair) });
  path.own('v=0');
  path.other('v=0');
  expect(await path.relayed()).toBe(false);
  path.other('candidate:1 1 udp 1 192.0.2.1 7000 typ relay raddr 0.0.0.0 rport 0');
  expect(await path.relayed()).toBe(true);
  expect(await new Path({}).relayed()).toBe(false);
  const closed = new Path({ selected: () => Promise.reject(new Error('closed')) });
  expect(await closed.relayed()).toBe(false);
  closed.own('a=candidate:1 1 udp 1 192.0.2.1 7000 typ relay');
  expect(await closed.relayed()).toBe(null);
});

it('domains are what is known', () => {
  const place = 'a2'.repeat(16);
  const known = { hazardMilli: 5, machine: place, network: '', owner: place };
  expect(domainsOf(known)).toEqual([`machine ${place}`, `owner ${place}`]);
});

describe('told again', () => {
  it.each(VECTORS.traces)('$name', ({ ops }) => {
    const telling = new Telling();
    for (const { now, said, seen, due } of ops) {
      const [before, after] = [
        surroundingsCodec.decode(said, 'said'),
        surroundingsCodec.decode(seen, 'seen'),
      ];
      expect(telling.due(now, before, after), String(now)).toBe(due);
    }
  });
});
