/*
 * What every module of src/ defines, as one JSON object: its top-level names with whether they are exported, values of
 * constants, members of unions of strings, and which names of which modules its functions use. tests/parity compares it
 * with what Python defines. Of the page, the scenes and the tests: which names of src/ each file uses. An argument names
 * another folder than this one.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

import ts from 'typescript';

const root = process.argv[2] ?? import.meta.dirname;
const isConstant = (name) => /^[A-Z][A-Z0-9_]*$/.test(name);
const UNKNOWN = Symbol('a value that only a running program knows');
const GLOBALS = new Map([
  ['Infinity', Infinity],
  ['Number.MAX_SAFE_INTEGER', Number.MAX_SAFE_INTEGER],
  ['Number.POSITIVE_INFINITY', Infinity],
  ['undefined', null],
]);

/** Files of a tree as paths from web_peer without their endings. */
function filesOf(tree) {
  if (!existsSync(path.join(root, tree))) return [];
  return readdirSync(path.join(root, tree), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts'))
    .map((name) => `${tree}/${name.split(path.sep).join('/')}`);
}

function parse(file) {
  return ts.createSourceFile(file, readFileSync(path.join(root, file), 'utf8'), ts.ScriptTarget.ES2023, true);
}

/** One module: its definitions by name, and what it imports: local name to module and name there. */
function read(file) {
  const source = parse(file);
  const defined = new Map();
  const imported = new Map();
  const passedOn = new Map(); // names that it exports again
  for (const statement of source.statements) {
    const exported = statement.modifiers?.some((one) => one.kind === ts.SyntaxKind.ExportKeyword) ?? false;
    if (ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement)) {
      const specifier = statement.moduleSpecifier?.text;
      if (specifier?.startsWith('.') !== true) continue;
      const from = path.posix.join(path.posix.dirname(file), specifier).replace(/\.tsx?$/, '');
      const named = ts.isImportDeclaration(statement)
        ? statement.importClause?.namedBindings
        : statement.exportClause;
      const into = ts.isImportDeclaration(statement) ? imported : passedOn;
      if (named !== undefined && ts.isNamespaceImport(named)) into.set(named.name.text, { from, name: '*' });
      for (const one of named?.elements ?? [])
        into.set(one.name.text, { from, name: (one.propertyName ?? one.name).text });
    } else if (ts.isVariableStatement(statement)) {
      for (const one of statement.declarationList.declarations) {
        if (!ts.isIdentifier(one.name)) continue;
        const value = one.initializer;
        const isFunction = value && (ts.isArrowFunction(value) || ts.isFunctionExpression(value));
        const kind = isFunction ? 'function' : isConstant(one.name.text) ? 'constant' : 'value';
        defined.set(one.name.text, { kind, exported, node: one });
      }
    } else if (statement.name !== undefined) {
      const kind = ts.isFunctionDeclaration(statement)
        ? 'function'
        : ts.isClassDeclaration(statement)
          ? 'class'
          : 'type';
      defined.set(statement.name.text, { kind, exported, node: statement });
    }
  }
  return { defined, imported, passedOn, source };
}

const modules = new Map(filesOf('src').map((file) => [file.replace(/\.tsx?$/, ''), read(file)]));

/** Where a name that `module` uses is defined: module and name, or undefined for one that is not ours. */
function origin(module, name) {
  const at = modules.get(module);
  if (at === undefined) return undefined;
  if (at.defined.has(name)) return { module, name };
  const link = at.imported.get(name) ?? at.passedOn.get(name);
  return link === undefined ? undefined : origin(link.from, link.name);
}

/** The value of an expression, as far as it follows from text alone. */
function valueOf(node, module) {
  if (node === undefined) return UNKNOWN;
  if (ts.isAsExpression(node) || ts.isSatisfiesExpression(node) || ts.isParenthesizedExpression(node))
    return valueOf(node.expression, module);
  if (ts.isNumericLiteral(node)) return Number(node.text.replaceAll('_', ''));
  if (ts.isBigIntLiteral(node)) return Number(node.text.replaceAll('_', '').replace(/n$/, ''));
  if (ts.isStringLiteralLike(node)) return node.text;
  switch (node.kind) {
    case ts.SyntaxKind.TrueKeyword:
      return true;
    case ts.SyntaxKind.FalseKeyword:
      return false;
    case ts.SyntaxKind.NullKeyword:
      return null;
    default:
  }
  if (GLOBALS.has(node.getText())) return GLOBALS.get(node.getText());
  if (ts.isPrefixUnaryExpression(node)) {
    const value = valueOf(node.operand, module);
    return typeof value === 'number' && node.operator === ts.SyntaxKind.MinusToken ? -value : UNKNOWN;
  }
  if (ts.isBinaryExpression(node)) return combined(node, module);
  if (ts.isArrayLiteralExpression(node)) return whole(node.elements.map((one) => valueOf(one, module)));
  if (ts.isNewExpression(node) && ['Set', 'Map'].includes(node.expression.getText())) {
    const items = node.arguments?.[0] === undefined ? [] : valueOf(node.arguments[0], module);
    if (items === UNKNOWN) return UNKNOWN;
    return node.expression.getText() === 'Set' ? { set: items } : { table: items };
  }
  if (ts.isObjectLiteralExpression(node)) return objectOf(node, module);
  if (ts.isPropertyAccessExpression(node)) {
    const value = valueOf(node.expression, module);
    const pair = value?.table?.find(([key]) => key === node.name.text);
    return pair === undefined ? UNKNOWN : pair[1];
  }
  if (ts.isIdentifier(node)) {
    const found = origin(module, node.text);
    const definition = found && modules.get(found.module).defined.get(found.name);
    return definition?.kind === 'constant' ? valueOf(definition.node.initializer, found.module) : UNKNOWN;
  }
  return UNKNOWN;
}

const whole = (items) => (items.includes(UNKNOWN) ? UNKNOWN : items);

function objectOf(node, module) {
  const pairs = [];
  for (const one of node.properties) {
    if (ts.isSpreadAssignment(one) || one.name === undefined || ts.isComputedPropertyName(one.name))
      return UNKNOWN;
    const value = ts.isShorthandPropertyAssignment(one)
      ? valueOf(one.name, module)
      : valueOf(one.initializer, module);
    pairs.push([one.name.text, value === UNKNOWN ? { unknown: true } : value]);
  }
  return { table: pairs };
}

function combined(node, module) {
  const [left, right] = [valueOf(node.left, module), valueOf(node.right, module)];
  if (typeof left === 'string' && typeof right === 'string') return left + right;
  if (typeof left !== 'number' || typeof right !== 'number') return UNKNOWN;
  switch (node.operatorToken.kind) {
    case ts.SyntaxKind.PlusToken:
      return left + right;
    case ts.SyntaxKind.MinusToken:
      return left - right;
    case ts.SyntaxKind.AsteriskToken:
      return left * right;
    case ts.SyntaxKind.SlashToken:
      return left / right;
    case ts.SyntaxKind.AsteriskAsteriskToken:
      return left ** right;
    case ts.SyntaxKind.LessThanLessThanToken:
      return left * 2 ** right;
    default:
      return UNKNOWN;
  }
}

/** The strings of a union of string literals, or undefined for a type of another kind. */
function unionOf(node) {
  if (!ts.isTypeAliasDeclaration(node)) return undefined;
  const members = ts.isUnionTypeNode(node.type) ? node.type.types : [node.type];
  const texts = members.map((one) =>
    ts.isLiteralTypeNode(one) && ts.isStringLiteral(one.literal) ? one.literal.text : undefined,
  );
  return texts.includes(undefined) ? undefined : texts;
}

/** Whether an identifier names a property and not a value or a type. */
function isLabel(node) {
  const parent = node.parent;
  if (ts.isPropertyAccessExpression(parent)) return parent.name === node;
  return (ts.isPropertyAssignment(parent) || ts.isPropertySignature(parent)) && parent.name === node;
}

/** Names of src/ that a piece of code uses, as `module:name`. */
function usesOf(node, module) {
  const found = new Set();
  const visit = (one) => {
    if (ts.isIdentifier(one) && !isLabel(one)) {
      const at = modules.has(module.name) ? origin(module.name, one.text) : undefined;
      const link = at ?? (module.imported.has(one.text) ? follow(module.imported.get(one.text)) : undefined);
      if (link !== undefined) found.add(`${link.module}:${link.name}`);
    }
    if (
      ts.isPropertyAccessExpression(one) &&
      ts.isIdentifier(one.expression) &&
      module.imported.get(one.expression.text)?.name === '*'
    ) {
      const link = origin(module.imported.get(one.expression.text).from, one.name.text);
      if (link !== undefined) found.add(`${link.module}:${link.name}`);
    }
    ts.forEachChild(one, visit);
  };
  visit(node);
  return [...found].sort();
}

const follow = ({ from, name }) => origin(from, name);

const written = (value) => (value === UNKNOWN ? undefined : value === Infinity ? 'Infinity' : value);

/** Strings of a module that stand where a variant is named: members of a union, values of `kind`, items of a list. */
function labelsOf(source) {
  const found = new Set();
  const visit = (one) => {
    if (ts.isStringLiteralLike(one) && /^[A-Za-z][A-Za-z0-9_-]*$/.test(one.text)) {
      const parent = one.parent;
      if (ts.isLiteralTypeNode(parent) || ts.isArrayLiteralExpression(parent)) found.add(one.text);
      if (ts.isPropertyAssignment(parent)) found.add(one.text);
    }
    ts.forEachChild(one, visit);
  };
  visit(source);
  return [...found].sort();
}

const result = { modules: {}, users: {} };
for (const [name, module] of modules) {
  const names = {};
  for (const [key, { kind, exported, node }] of module.defined) {
    names[key] = { kind, exported, union: unionOf(node), uses: usesOf(node, { name, ...module }) };
    if (kind === 'constant') names[key].value = written(valueOf(node.initializer, name));
    names[key].uses = names[key].uses.filter((one) => one !== `${name}:${key}`);
  }
  result.modules[name.replace('src/', '')] = { names, labels: labelsOf(module.source) };
}
for (const file of ['ui', 'scenes', 'bench', 'tests'].flatMap(filesOf)) {
  const module = read(file);
  const text = module.source.text;
  const files = [...text.matchAll(/\bvectors\('([a-z_]+)'\)|(?:vectors\/|')([a-z_-]+\.(?:json|txt))/g)];
  const helpers = [...module.imported.values(), ...module.passedOn.values()].map((one) => one.from);
  result.users[file.replace(/\.tsx?$/, '')] = {
    vectors: [...new Set(files.map((one) => one[1] ?? one[2]))],
    imports: [...new Set(helpers)].filter((one) => one.startsWith('tests/')),
    uses: usesOf(module.source, { name: file, ...module }),
  };
}
process.stdout.write(`${JSON.stringify(result)}\n`);
