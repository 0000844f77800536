/*
 * Which files may import which: floors of packages, no circles, pure modules. Type-only imports count.
 * `npm run check` runs it; floors and pure modules are in layers.js.
 */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

import ts from 'typescript';

import { FLOORS, isPure, MOST_MODULES, PURE_PACKAGES_OUTSIDE } from './layers.js';

const root = import.meta.dirname;

/** Every source file of the tab, as a path from web_peer without its ending. */
const files = new Map(
  ['src', 'ui', 'scenes'].flatMap((tree) =>
    readdirSync(path.join(root, tree), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts'))
      .map((name) => `${tree}/${name.split(path.sep).join('/')}`)
      .map((name) => [name.replace(/\.tsx?$/, ''), name]),
  ),
);

/** What a file imports, type-only and dynamic imports and the files of workers included. */
function importsOf(file) {
  const text = readFileSync(path.join(root, files.get(file)), 'utf8');
  const said = ts.preProcessFile(text, true, true).importedFiles.map((one) => one.fileName);
  for (const match of text.matchAll(/new URL\('(\.[^']+\.tsx?)', import\.meta\.url\)/g)) said.push(match[1]);
  return [...new Set(said)];
}

/** The file that a relative import leads to, or undefined for another package or a style sheet. */
function target(file, specifier) {
  if (!specifier.startsWith('.')) return undefined;
  const plain = path.posix.join(path.posix.dirname(file), specifier).replace(/\.tsx?$/, '');
  return files.has(plain) ? plain : undefined;
}

const faults = [];
const edges = new Map();

for (const file of files.keys()) {
  const own = FLOORS.findIndex((floor) => floor.some((one) => one.holds(file)));
  if (own < 0) faults.push(`${file}: in no package of layers.js`);
  const packageOf = FLOORS[own]?.find((one) => one.holds(file));
  edges.set(file, []);
  for (const specifier of importsOf(file)) {
    const to = target(file, specifier);
    if (to === undefined) {
      if (isPure(file) && !PURE_PACKAGES_OUTSIDE.includes(specifier))
        faults.push(`${file}: a pure module imports ${specifier}`);
      continue;
    }
    const lower = FLOORS.findIndex((floor) => floor.some((one) => one.holds(to)));
    const allowed =
      packageOf?.holds(to) ||
      (lower >= 0 && lower < own && !packageOf?.never?.some((name) => to.startsWith(`${name}/`)));
    if (!allowed || (isPure(file) && !isPure(to))) {
      const why = allowed ? 'a pure module imports one that is not' : 'against the floors';
      faults.push(`${file} -> ${to}: ${why}`);
    } else edges.get(file).push(to);
  }
}

// Circles of files, found as the strongly connected parts of what is left (Tarjan, 1972).
const index = new Map();
const low = new Map();
const stack = [];
function visit(file) {
  index.set(file, index.size);
  low.set(file, index.get(file));
  stack.push(file);
  for (const to of edges.get(file)) {
    if (!index.has(to)) visit(to);
    if (stack.includes(to)) low.set(file, Math.min(low.get(file), low.get(to)));
  }
  if (low.get(file) !== index.get(file)) return;
  const part = stack.splice(stack.indexOf(file));
  if (part.length > 1) faults.push(`a circle of imports: ${part.join(', ')}`);
}
for (const file of files.keys()) if (!index.has(file)) visit(file);

const folders = new Map();
for (const file of files.keys()) {
  const folder = path.posix.dirname(file);
  folders.set(folder, [...(folders.get(folder) ?? []), file]);
}
for (const [folder, inside] of folders) {
  if (inside.length > MOST_MODULES)
    faults.push(`${folder}: ${inside.length} modules, expected at most ${MOST_MODULES}`);
}
if (faults.length > 0) {
  process.stderr.write(`${faults.map((fault) => `  ${fault}\n`).join('')}layers: ${faults.length} faults\n`);
  process.exitCode = 1;
}
