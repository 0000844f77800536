/* Which version two sides speak, and links into conversations: the same as Python decided. */

import { describe, expect, it } from 'vitest';

import { entryLink, entryOf, isProven, keyOf, used } from '../../src/conversation/entry_links';
import { toHex } from '../../src/wire/hex';
import { announced, common, told } from '../../src/state/version_negotiation';
import { vectors } from '../vectors';

interface Vectors {
  readonly hellos: {
    readonly own: [number, number];
    readonly other: [number, number];
    readonly agent: string;
    readonly version: number;
  }[];
  readonly agents: { readonly agent: string; readonly highest: number; readonly name: string }[];
  readonly links: { readonly words: string; readonly entry: [string, string] | 'wrong' | null }[];
  readonly proof: readonly Record<'mesh' | 'peer' | 'seed' | 'key' | 'proof', string>[];
}

const known = vectors('versions') as Vectors;
const spoken = ([lowest, highest]: [number, number]) => ({ lowest, highest });

describe('versions', () => {
  it.each(known.hellos)('$own and $other', ({ own, other, agent, version }) => {
    const hello = announced(spoken(other), 'p', 'n', 'shoal/0.1');
    expect(hello.agent).toBe(agent);
    expect(told(hello)).toMatchObject({ versions: spoken(other), hello: { agent: 'shoal/0.1' } });
    if (version === 0) expect(() => common(spoken(own), spoken(other))).toThrow('update the older one');
    else expect(common(spoken(own), spoken(other))).toBe(version);
  });
  it.each(known.agents)('an agent $agent', ({ agent, highest, name }) => {
    const said = told({ kind: 'HELLO', protocol: 3, peer: 'p', name: 'n', agent });
    expect(said.versions).toEqual({ lowest: 3, highest });
    expect(said.hello.agent).toBe(name);
  });
});

describe('a link into a conversation', () => {
  it.each(known.links)('$words', ({ words, entry }) => {
    const rest = words.startsWith('&in=') ? words.slice('&in='.length) : null;
    const found = rest === null ? null : entryOf(rest);
    if (entry === null) expect(rest).toBeNull();
    else if (entry === 'wrong') expect(found).toBeNull();
    else {
      expect(found === null ? null : [found.conversation, toHex(found.seed)]).toEqual(entry);
      if (found !== null) expect(entryLink('', found)).toBe(words);
    }
  });
  it.each(known.proof)('is proven by whoever holds it, for one peer of one mesh', async (row) => {
    const { mesh, peer, seed, key, proof } = row;
    const link = {
      conversation: 'c1',
      seed: Uint8Array.from(seed.match(/../g) ?? [], (hex) => parseInt(hex, 16)),
    };
    const said = await used(link, mesh, { peer, name: 'Bo', colour: '#cc6633' });
    expect([await keyOf(link), said.key, said.proof]).toEqual([key, key, proof]);
    await expect(isProven(mesh, said)).resolves.toBe(true);
    await expect(isProven(peer, said)).resolves.toBe(false);
    await expect(isProven(mesh, { ...said, peer: mesh })).resolves.toBe(false);
    await expect(isProven(mesh, { ...said, key: `AQ${'x'.repeat(42)}` })).resolves.toBe(false);
  });
});
