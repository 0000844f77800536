/*
 * Mutants of the core: copies with one defect each, to show that the tests would notice it (twin of
 * tests/consensus/mutants.py, which says how their patches are written).
 *
 * The core of a mutant is loaded from a temporary copy; product code knows nothing of it.
 */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import type * as core from '../../src/consensus/core';
import type { AnyCore } from '../sim-consensus/member';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const PATCHES = join(ROOT, 'tests/consensus/mutant_patches');
const SOURCE = 'web_peer/src/consensus';
const BENEATH = ['web_peer/src', 'web_peer/src/wire']; // what the core imports beside itself

/** In the file `path`, `before` becomes `after`; both are whole lines. */
export interface Edit {
  readonly path: string;
  readonly before: string;
  readonly after: string;
}

export interface Mutant {
  readonly name: string;
  readonly defect: string;
  readonly edits: readonly Edit[];
}

/** Returns the mutant that a patch describes. Raises an Error where a line is of no known kind. */
export function parse(name: string, text: string): Mutant {
  const end = text.indexOf('\n\n');
  const hunks: { path: string; before: string; after: string }[] = [];
  let path = '';
  for (const line of text
    .slice(end + 2)
    .trimEnd()
    .split('\n')) {
    const hunk = hunks.at(-1);
    const rest = `${line.slice(1)}\n`;
    if (line.startsWith('--- ')) path = line.slice(4);
    else if (line === '@@') hunks.push({ path, before: '', after: '' });
    else if (hunk !== undefined && [' ', '-', '+'].includes(line.slice(0, 1))) {
      if (!line.startsWith('+')) hunk.before += rest;
      if (!line.startsWith('-')) hunk.after += rest;
    } else throw new Error(`${name}: expected a line of a patch, got ${JSON.stringify(line)}`);
  }
  return { name, defect: text.slice(0, end), edits: hunks };
}

/** Returns `source` after the edit. Raises an Error unless the lines that it changes stand there exactly once. */
export function apply({ path, before, after }: Edit, source: string): string {
  const parts = `\n${source}`.split(`\n${before}`);
  const [head, tail] = parts;
  if (before === '' || parts.length !== 2 || head === undefined || tail === undefined) {
    throw new Error(`${path}: expected these lines once, found them ${parts.length - 1} times:\n${before}`);
  }
  return `${head}\n${after}${tail}`.slice(1);
}

/** All of them by their names, in the order of their numbers. */
export const MUTANTS: ReadonlyMap<string, Mutant> = new Map(
  readdirSync(PATCHES)
    .map((file) => file.replace(/\.patch$/, ''))
    .sort((a, b) => Number(a.split('-')[0]) - Number(b.split('-')[0]))
    .map((name) => [name, parse(name, readFileSync(join(PATCHES, `${name}.patch`), 'utf-8'))]),
);

/** Returns what makes a core with the defect of `mutant`. */
export async function coreOf({ name, edits }: Mutant): Promise<() => AnyCore> {
  const ours = edits.filter(({ path }) => path.startsWith(SOURCE));
  if (ours.length === 0) throw new Error(`${name}: expected an edit of ${SOURCE}, found none`);
  const folder = mkdtempSync(join(tmpdir(), 'mutant-'));
  try {
    for (const from of [SOURCE, ...BENEATH]) {
      mkdirSync(join(folder, from), { recursive: true });
      for (const file of readdirSync(join(ROOT, from))) {
        if (!file.endsWith('.ts')) continue;
        const path = `${from}/${file}`;
        let source = readFileSync(join(ROOT, path), 'utf-8');
        for (const edit of ours) if (edit.path === path) source = apply(edit, source);
        writeFileSync(join(folder, path), source);
      }
    }
    const loaded = (await import(/* @vite-ignore */ join(folder, SOURCE, 'core.ts'))) as typeof core;
    return () => new loaded.Core();
  } finally {
    rmSync(folder, { recursive: true });
  }
}
