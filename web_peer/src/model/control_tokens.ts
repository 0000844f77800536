/*
 * Decides which parts of a prompt are control tokens: those that its chat template writes, and none that a message
 * spells. Pure.
 *
 * Texts of messages are marked before the template renders them: a mark, one character that no message has, stands
 * inside every spelling of a control token, and at both ends of a text where template or neighbour could complete one.
 * It is neither space nor letter, so that the filters of templates leave it in its place. The prompt has no marks any
 * more; a spelling that had one inside is words.
 */

import { TextError } from '../errors';

// Unicode's noncharacters, which are for a program's own use, then its private area.
const MARKS: readonly (readonly [first: number, stop: number])[] = [
  [0xfdd0, 0xfdf0],
  [0xe000, 0xf900],
];
const PUNCTUATION = /[^A-Za-z0-9]/;
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'; // Python's
const NO_SPACE = new RegExp(`[^${SPACE}]`);

/** A control token of the template: the characters [start, stop) of the prompt. */
export interface Written {
  readonly start: number;
  readonly stop: number;
  readonly token: number;
}

/** Beginnings or ends of names, and the length of the longest. */
interface Parts {
  readonly kept: ReadonlySet<string>;
  readonly longest: number;
}

/** The control tokens of one vocabulary, by the text that stands for each. */
export class ControlTokens {
  private readonly ids: ReadonlyMap<string, number>;
  private readonly lengths = new Map<string, number[]>(); // of names, by their first two letters, the longest first
  private readonly first: RegExp | null;
  private readonly begins: Parts;
  private readonly ends: Parts;

  constructor(ids: ReadonlyMap<string, number>) {
    this.ids = new Map([...ids].filter(([name]) => name.length > 1)); // no mark fits into one letter
    const names = [...this.ids.keys()].sort((one, other) => other.length - one.length);
    for (const name of names) {
      const known = this.lengths.get(name.slice(0, 2)) ?? [];
      if (!known.includes(name.length)) this.lengths.set(name.slice(0, 2), [...known, name.length]);
    }
    const lettersAt = (at: number): string =>
      [...new Set(names.map((name) => name.charAt(at).replace(/[\\\]^-]/g, '\\$&')))].join('');
    this.first = names.length === 0 ? null : new RegExp(`[${lettersAt(0)}](?=[${lettersAt(1)}])`, 'g');
    const cuts = names.flatMap((name) =>
      Array.from({ length: name.length - 1 }, (_, at) => [name, at + 1] as const),
    );
    this.begins = partsOf(cuts.map(([name, length]) => name.slice(0, length)));
    this.ends = partsOf(cuts.map(([name, length]) => name.slice(length)));
  }

  /** A mark that is in none of `values`, lists and objects of text; "" where nothing there needs one. */
  markFor(...values: readonly unknown[]): string {
    return values.some((value) => this.needs(value)) ? freeMark(...values) : '';
  }

  /** `value` with marks in its texts, at any depth. Keys are marked where they spell a control token whole. */
  marked<T>(value: T, mark: string): T {
    return mark === '' ? value : (this.markedInside(value, mark) as T);
  }

  /**
   * The control tokens that the template wrote; null where no other is spelled, so that text says it all.
   *
   * `text` has no marks any more, `marks` are the places where they stood, ascending (`unmarked`).
   */
  written(text: string, marks: readonly number[]): Written[] | null {
    if (marks.length === 0) return null;
    const found: Written[] = [];
    let forged = false;
    let end = 0;
    let next = 0; // the first mark behind the start of a spelling
    for (const [start, name] of this.spelled(text)) {
      if (start < end) continue;
      while (next < marks.length && (marks[next] ?? 0) <= start) next += 1;
      if (next < marks.length && (marks[next] ?? 0) < start + name.length) forged = true;
      else {
        end = start + name.length;
        found.push({ start, stop: end, token: this.ids.get(name) ?? 0 });
      }
    }
    return forged ? found : null;
  }

  private markedInside(value: unknown, mark: string): unknown {
    if (typeof value === 'string') return inserted(value, this.places(value), mark);
    if (Array.isArray(value)) return value.map((held) => this.markedInside(held, mark));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, held]) => [
        inserted(key, this.inside(key), mark),
        this.markedInside(held, mark),
      ]),
    );
  }

  private needs(value: unknown): boolean {
    if (typeof value === 'string') return this.places(value).length > 0;
    if (typeof value !== 'object' || value === null) return false;
    return Object.entries(value).some(([key, held]) => this.needs(held) || this.inside(key).length > 0);
  }

  /** Where marks belong in a text, ascending. */
  private places(text: string): number[] {
    const left = text.search(NO_SPACE);
    const ends = [text.length, rightOf(text)].filter((at) => fits(this.begins, text, at, -1));
    const starts = [0, left < 0 ? text.length : left].filter((at) => fits(this.ends, text, at, 1));
    return [...new Set([...this.inside(text), ...ends, ...starts])].sort((one, other) => one - other);
  }

  private inside(text: string): number[] {
    return Array.from(this.spelled(text), ([start]) => start + 1);
  }

  /** (place, name) of every control token that a text spells, from left to right, the longest first. */
  private *spelled(text: string): Generator<readonly [number, string], void> {
    if (this.first === null) return;
    for (const { index } of text.matchAll(this.first)) {
      for (const length of this.lengths.get(text.slice(index, index + 2)) ?? []) {
        const name = text.slice(index, index + length);
        if (name.length === length && this.ids.has(name)) yield [index, name];
      }
    }
  }
}

/** A character for marks that is in none of `values`. Throws TextError where all are in use. */
export function freeMark(...values: readonly unknown[]): string {
  const used = JSON.stringify(values);
  for (const [first, stop] of MARKS) {
    for (let code = first; code < stop; code++) {
      const mark = String.fromCharCode(code);
      if (!used.includes(mark) && !used.includes(escaped(mark))) return mark;
    }
  }
  throw new TextError('text has every character that is kept for marks; leave out some of the private ones');
}

/** `text` without marks, and the places of the result at which they stood, ascending. */
export function unmarked(text: string, mark: string): { readonly text: string; readonly marks: number[] } {
  if (mark === '') return { text, marks: [] };
  const parts = text.replaceAll(escaped(mark), mark).split(mark);
  const marks: number[] = [];
  for (const part of parts.slice(0, -1)) marks.push((marks.at(-1) ?? 0) + part.length);
  return { text: parts.join(''), marks };
}

/** A mark as JSON may spell it. */
function escaped(mark: string): string {
  return `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** Those with punctuation in them. Letters alone end or begin too many other words. */
function partsOf(parts: readonly string[]): Parts {
  const kept = new Set(parts.filter((part) => PUNCTUATION.test(part)));
  return { kept, longest: Math.max(0, ...Array.from(kept, (part) => part.length)) };
}

/** Whether one of `parts` stands before (step -1) or behind `at`. */
function fits({ kept, longest }: Parts, text: string, at: number, step: -1 | 1): boolean {
  const most = Math.min(longest, step < 0 ? at : text.length - at);
  for (let length = 1; length <= most; length++) {
    if (kept.has(step < 0 ? text.slice(at - length, at) : text.slice(at, at + length))) return true;
  }
  return false;
}

/** Where the spaces at the end of a text begin. */
function rightOf(text: string): number {
  let at = text.length;
  while (at > 0 && !NO_SPACE.test(text.charAt(at - 1))) at -= 1;
  return at;
}

function inserted(text: string, places: readonly number[], mark: string): string {
  const cuts = [0, ...places, text.length];
  return cuts
    .slice(1)
    .map((stop, at) => text.slice(cuts[at], stop))
    .join(mark);
}
