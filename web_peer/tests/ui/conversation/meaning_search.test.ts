/* A search by meaning: what is read of conversations, which are nearest, and what is read once. */

import { describe, expect, it } from 'vitest';

import { NoPlan } from '../../../src/errors';
import { MeaningSearch, nearest, partsOf, type Passage } from '../../../ui/conversation/meaning_search';

const passage = (talk: string, text: string): Passage => ({ talk, title: `About ${talk}`, text });
const PASSAGES = [passage('a', 'sky'), passage('a', 'sea'), passage('b', 'bread'), passage('c', 'sky')];
const VECTORS: Readonly<Record<string, readonly number[]>> = {
  sky: [1, 0],
  sea: [0.6, 0.8],
  bread: [0, 1],
  heavens: [0.8, 0.6],
};
const vectorOf = (text: string): Float32Array => Float32Array.from(VECTORS[text] ?? [0, 0]);

/** A model that notes what it reads. */
function made(id = 'one') {
  const read: string[] = [];
  const embed = (texts: readonly string[]) => {
    read.push(...texts);
    return Promise.resolve(texts.map(vectorOf));
  };
  return { read, embedder: { name: 'minilm', id, embed } };
}

describe('parts of a text', () => {
  it.each([
    ['', []],
    ['  why\n\n is  it ', ['why', 'is it']],
    ['x'.repeat(500), ['x'.repeat(200)]],
    [
      `${'word '.repeat(50)}end`,
      [Array(40).fill('word').join(' '), `${Array(10).fill('word').join(' ')} end`],
    ],
  ])('%j', (text, parts) => {
    expect(partsOf(text)).toEqual(parts);
    expect(partsOf(text).every((part) => part.length <= 200)).toBe(true);
  });
});

it('finds the nearest passage of each conversation, the nearest conversation first', () => {
  const vectors = new Map(Object.keys(VECTORS).map((text) => [text, vectorOf(text)]));
  const found = nearest(vectorOf('heavens'), PASSAGES, vectors);
  expect(found.map(({ talk, text }) => [talk, text])).toEqual([
    ['a', 'sea'],
    ['c', 'sky'],
    ['b', 'bread'],
  ]);
  expect(nearest(vectorOf('heavens'), PASSAGES, new Map())).toEqual([]);
});

describe('a search', () => {
  it('reads each passage once for each model', async () => {
    const search = new MeaningSearch();
    const { read, embedder } = made();
    await search.look('heavens', PASSAGES, embedder);
    expect(read).toEqual(['sky', 'sea', 'bread', 'heavens']);
    expect(search.view.value).toMatchObject({ kind: 'found', query: 'heavens' });
    await search.look('bread', PASSAGES, embedder);
    expect(read.slice(4)).toEqual(['bread']);
    const other = made('two');
    await search.look('bread', PASSAGES, other.embedder);
    expect(other.read).toEqual(['sky', 'sea', 'bread', 'bread']);
    search.forget();
    expect(search.view.value).toEqual({ kind: 'none' });
    await search.look('bread', PASSAGES, embedder);
    expect(read.slice(5)).toEqual(['sky', 'sea', 'bread', 'bread']);
  });

  it('tells what is wrong, and says nothing once it was given up', async () => {
    const search = new MeaningSearch();
    const embed = () => Promise.reject(new NoPlan('nobody holds it'));
    await search.look('heavens', PASSAGES, { name: 'minilm', id: 'one', embed });
    expect(search.view.value).toEqual({ kind: 'failed', text: 'nobody holds it' });
    const { embedder } = made();
    const under_way = search.look('heavens', PASSAGES, embedder);
    expect(search.view.value.kind).toBe('looking');
    search.stop();
    await under_way;
    expect(search.view.value).toEqual({ kind: 'none' });
  });
});
