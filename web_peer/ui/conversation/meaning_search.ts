/* What conversations say that is near in meaning to what a person looks for: by vectors that a model makes. */

import { signal } from '@preact/signals';

import { toldText } from '../../src/conversation/picture_marks';
import { textOf } from '../../src/errors';
import { type Conversation, messagesOf } from '../../src/state/conversations';
import type { MeaningView, NearLine } from '../app/view';

const PASSAGE_CHARS = 200; // so that each is one thought, and fits whatever a model reads at once
const MOST_PASSAGES = 1000; // the newest; each is computed once
const MOST_FOUND = 8; // conversations
const TEXTS_AT_ONCE = 16;

/** A part of a message, and the conversation that it is in. */
export interface Passage {
  readonly talk: string;
  readonly title: string;
  readonly text: string;
}

/** Vectors of texts, of length one. Raises PeerError. */
export type Embedding = (texts: readonly string[], signal: AbortSignal) => Promise<readonly Float32Array[]>;

/** A model that makes vectors. */
export interface Embedder {
  readonly name: string; // what the mesh offers it as
  readonly id: string;
  readonly embed: Embedding;
}

/** The passages of conversations, the newest first. */
export function passagesOf(all: Iterable<readonly [string, Conversation]>): Passage[] {
  const found: { readonly whenMs: number; readonly passage: Passage }[] = [];
  for (const [talk, { title, messages }] of all) {
    for (const { text, whenMs } of messagesOf(messages)) {
      for (const part of partsOf(toldText(text))) {
        found.push({ whenMs, passage: { talk, title: title === '' ? 'Untitled' : title, text: part } });
      }
    }
  }
  found.sort((a, b) => b.whenMs - a.whenMs);
  return found.slice(0, MOST_PASSAGES).map(({ passage }) => passage);
}

/** A text in parts of whole words. */
export function partsOf(text: string): string[] {
  const parts: string[] = [];
  for (const paragraph of text.split(/\n+/)) {
    let part = '';
    for (const word of paragraph.split(/\s+/).filter((each) => each !== '')) {
      const next = part === '' ? word : `${part} ${word}`;
      if (next.length > PASSAGE_CHARS && part !== '') {
        parts.push(part);
        part = word.slice(0, PASSAGE_CHARS);
      } else part = next.slice(0, PASSAGE_CHARS);
    }
    if (part !== '') parts.push(part);
  }
  return parts;
}

/** Of each conversation the nearest passage, the nearest conversation first. */
export function nearest(
  wanted: Float32Array,
  passages: readonly Passage[],
  vectors: ReadonlyMap<string, Float32Array>,
): NearLine[] {
  const best = new Map<string, { readonly score: number; readonly line: NearLine }>();
  for (const { talk, title, text } of passages) {
    const vector = vectors.get(text);
    if (vector === undefined) continue;
    const score = vector.reduce((sum, each, at) => sum + each * (wanted[at] ?? 0), 0);
    const known = best.get(talk);
    if (known === undefined || score > known.score) best.set(talk, { score, line: { talk, title, text } });
  }
  return [...best.values()]
    .sort((a, b) => b.score - a.score)
    .slice(0, MOST_FOUND)
    .map(({ line }) => line);
}

/** The search of one page. Vectors of passages are kept as long as it is open. */
export class MeaningSearch {
  readonly view = signal<MeaningView>({ kind: 'none' });
  private readonly vectors = new Map<string, Map<string, Float32Array>>(); // by model, then by passage
  private stopped = new AbortController();

  /** Nothing is looked for any more. */
  stop(): void {
    this.stopped.abort();
    if (this.view.value.kind !== 'none') this.view.value = { kind: 'none' };
  }

  /** Another mesh is opened: nothing of this one is kept. */
  forget(): void {
    this.stop();
    this.vectors.clear();
  }

  /** What is near to `query` is in `view` then. A search under way is given up. */
  async look(query: string, passages: readonly Passage[], embedder: Embedder): Promise<void> {
    this.stop();
    const { signal: ended } = (this.stopped = new AbortController());
    try {
      const known = this.vectorsOf(embedder.id);
      const missing = [...new Set(passages.map(({ text }) => text))].filter((text) => !known.has(text));
      for (let at = 0; at < missing.length; at += TEXTS_AT_ONCE) {
        this.view.value = { kind: 'looking', done: at, of: missing.length };
        const texts = missing.slice(at, at + TEXTS_AT_ONCE);
        const made = await embedder.embed(texts, ended);
        texts.forEach((text, place) => known.set(text, made[place] ?? new Float32Array()));
        if (ended.aborted) return;
      }
      this.view.value = { kind: 'looking', done: missing.length, of: missing.length };
      const [wanted = new Float32Array()] = await embedder.embed([query], ended);
      if (!ended.aborted) {
        this.view.value = { kind: 'found', query, near: nearest(wanted, passages, known) };
      }
    } catch (error) {
      if (!ended.aborted) this.view.value = { kind: 'failed', text: textOf(error) };
    }
  }

  private vectorsOf(model: string): Map<string, Float32Array> {
    const known = this.vectors.get(model) ?? new Map<string, Float32Array>();
    this.vectors.set(model, known);
    return known;
  }
}
