/*
 * Every module says in its head what it is about, and every exported function and class has a comment that says what it
 * is; a tree of errors may say it of them in the head. `npm run check` runs it.
 */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

import ts from 'typescript';

const root = import.meta.dirname;
const WORDS = /^\/\*\*\s*\S/;

/** Whether a comment of the form that editors show stands right before the node. */
function isDocumented(node, text) {
  const comments = ts.getLeadingCommentRanges(text, node.getFullStart()) ?? [];
  const last = comments.at(-1);
  return last !== undefined && WORDS.test(text.slice(last.pos, last.end));
}

/** The names of exported functions and classes: declared so, or constants that hold a function. */
function exportedNames(statement) {
  const exported = ts.canHaveModifiers(statement)
    ? ts.getModifiers(statement)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)
    : false;
  if (!exported) return [];
  if (ts.isFunctionDeclaration(statement) || ts.isClassDeclaration(statement))
    return [statement.name?.text ?? 'default'];
  if (!ts.isVariableStatement(statement)) return [];
  return statement.declarationList.declarations
    .filter(
      ({ initializer }) =>
        initializer !== undefined &&
        (ts.isArrowFunction(initializer) || ts.isFunctionExpression(initializer)),
    )
    .map(({ name }) => name.getText());
}

/** What a module lacks: its head, and the names without a comment. Overloads count once, by their first line. */
export function lacking(file, text) {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const head = text.startsWith('/*') || text.startsWith('//') ? [] : ['what the module is about'];
  const tree = (ts.getLeadingCommentRanges(text, 0) ?? [])
    .map(({ pos, end }) => text.slice(pos, end))
    .join('');
  const seen = new Set();
  const missing = [];
  for (const statement of source.statements) {
    for (const name of exportedNames(statement)) {
      const inTree = ts.isClassDeclaration(statement) && new RegExp(`[├└]── ${name} `).test(tree);
      if (!seen.has(name) && !inTree && !isDocumented(statement, text)) missing.push(name);
      seen.add(name);
    }
  }
  return [...head, ...missing];
}

const faults = [];
for (const tree of ['src', 'ui']) {
  const names = readdirSync(path.join(root, tree), { recursive: true, encoding: 'utf8' });
  for (const name of names.filter((one) => /\.tsx?$/.test(one) && !one.endsWith('.d.ts')).sort()) {
    const file = `${tree}/${name.split(path.sep).join('/')}`;
    if (file.includes('/generated/')) continue;
    const found = lacking(file, readFileSync(path.join(root, file), 'utf8'));
    faults.push(...found.map((one) => `${file}: no comment on ${one}`));
  }
}
if (faults.length > 0) {
  process.stderr.write(`${faults.map((fault) => `  ${fault}\n`).join('')}docs: ${faults.length} faults\n`);
  process.exitCode = 1;
}
