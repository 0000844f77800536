/* Vectors of texts by a model of the mesh: of length one, a long text by its beginning, the run closed again. */

import { expect, it } from 'vitest';

import type { MeshMember } from '../../../src/member/mesh_member';
import { decodeGraphManifest, type GraphManifest } from '../../../src/planner/graph_manifest';
import { embed, embeds } from '../../../ui/models/embedding';

const WORDS = ['[UNK]', '[CLS]', '[SEP]', 'sky', 'sea'];
const TOKENIZER = JSON.stringify({
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: [],
  normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, lowercase: true },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: {
    type: 'TemplateProcessing',
    single: [
      { SpecialToken: { id: '[CLS]', type_id: 0 } },
      { Sequence: { id: 'A', type_id: 0 } },
      { SpecialToken: { id: '[SEP]', type_id: 0 } },
    ],
    pair: [],
    special_tokens: {
      '[CLS]': { id: '[CLS]', ids: [1], tokens: ['[CLS]'] },
      '[SEP]': { id: '[SEP]', ids: [2], tokens: ['[SEP]'] },
    },
  },
  decoder: null,
  model: {
    type: 'WordPiece',
    unk_token: '[UNK]',
    continuing_subword_prefix: '##',
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries(WORDS.map((word, at) => [word, at])),
  },
});
const BLOB = { sha256: '0'.repeat(64), bytes: 1, pieces: ['0'.repeat(64)] };

/** A model of texts of up to 8 tokens, with four numbers of each; `more`: what else it says of them. */
function manifestWith(texts: string | number, more: object): GraphManifest {
  const value = (name: string, dtype: string, shape: readonly (string | number)[]) => ({
    ...{ name, dtype, shape, bytes: [] },
  });
  const document = {
    ...{ format: 'shoal-2', name: 'minilm', inputs: ['tokens'], outputs: ['z'], sizes: {} },
    values: [value('tokens', 'int64', [texts, 'length']), value('z', 'float32', [texts, 4])],
    units: [
      {
        ...{ name: 'all', component: 'model', graph: BLOB, weights: [], tensors: [], inputs: ['tokens'] },
        ...{ outputs: ['z'], params: 0, resident_bytes: 0, flops: [], ops: [] },
      },
    ],
    text: { tokenizer: BLOB, tokens: 'tokens', longest: 8, pad: 0, ...more },
  };
  return decodeGraphManifest(new TextEncoder().encode(JSON.stringify(document)));
}

const EMBEDS = manifestWith('texts', { vectors: 'z' });

/** A mesh whose model makes (3, 0, 4, 0) of each text, and notes how many tokens rows have. */
function made(manifest: GraphManifest) {
  const rows: (readonly number[])[] = [];
  let closed = 0;
  const run = {
    run: (inputs: ReadonlyMap<string, { readonly shape: readonly number[] }>) => {
      const shape = inputs.get('tokens')?.shape ?? [];
      rows.push(shape);
      const count = shape[0] ?? 0;
      const data = new Uint8Array(Float32Array.from(Array(count).fill([3, 0, 4, 0]).flat()).buffer);
      return Promise.resolve(new Map([['z', { shape: [count, 4], data }]]));
    },
    close: () => Promise.resolve((closed += 1)),
  };
  const mesh = {
    view: { state: { offers: new Map([['minilm', { model: 'id' }]]) } },
    manifestOf: () => Promise.resolve(manifest),
    blobOf: () => Promise.resolve(new TextEncoder().encode(TOKENIZER)),
    openRun: () => Promise.resolve(run),
  };
  return { mesh: mesh as unknown as MeshMember, rows, closed: () => closed };
}

it('are of length one, and a long text counts with its beginning', async () => {
  const { mesh, rows, closed } = made(EMBEDS);
  const found = await embed(mesh, 'minilm', ['sky', 'sky '.repeat(40)], new AbortController().signal);
  expect(found.map((vector) => [...vector].map((each) => Math.round(each * 10) / 10))).toEqual([
    [0.6, 0, 0.8, 0],
    [0.6, 0, 0.8, 0],
  ]);
  expect(rows).toEqual([[2, 7]]); // 5 of the 40 words, and a mark at both ends
  expect(closed()).toBe(1);
});

it('are refused for a model that is gone, or that makes none', async () => {
  const none = manifestWith('texts', {});
  const { signal } = new AbortController();
  await expect(embed(made(none).mesh, 'minilm', ['sky'], signal)).rejects.toThrow('makes no embeddings');
  await expect(embed(made(EMBEDS).mesh, 'other', ['sky'], signal)).rejects.toThrow('no model other any more');
  expect([EMBEDS, none, manifestWith(1, { vectors: 'z' })].map(embeds)).toEqual([true, false, false]);
});
