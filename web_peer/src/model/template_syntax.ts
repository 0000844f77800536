/* The syntax of chat templates: Jinja's, as Jinja cuts and reads it. Only the tab has it: Python uses Jinja itself. */

export type Expression =
  | { readonly type: 'constant'; readonly value: null | boolean | string | number }
  | { readonly type: 'float'; readonly value: number }
  | { readonly type: 'name'; readonly name: string }
  | { readonly type: 'list' | 'tuple'; readonly items: readonly Expression[] }
  | { readonly type: 'dict'; readonly items: readonly (readonly [Expression, Expression])[] }
  | { readonly type: 'attribute'; readonly of: Expression; readonly name: string }
  | { readonly type: 'item'; readonly of: Expression; readonly key: Expression }
  | { readonly type: 'slice'; readonly of: Expression; readonly parts: readonly (Expression | null)[] }
  | { readonly type: 'call'; readonly of: Expression; readonly given: Given }
  | { readonly type: 'filter'; readonly of: Expression; readonly name: string; readonly given: Given }
  | { readonly type: 'test'; readonly of: Expression; readonly name: string; readonly given: Given }
  | { readonly type: 'not'; readonly of: Expression }
  | { readonly type: 'sign'; readonly sign: '-' | '+'; readonly of: Expression }
  | { readonly type: 'logic'; readonly and: boolean; readonly left: Expression; readonly right: Expression }
  | {
      readonly type: 'binary';
      readonly operator: string;
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly type: 'concatenation'; readonly parts: readonly Expression[] }
  | {
      readonly type: 'comparison';
      readonly first: Expression;
      readonly rest: readonly (readonly [string, Expression])[];
    }
  | {
      readonly type: 'condition';
      readonly test: Expression;
      readonly yes: Expression;
      readonly no: Expression | null;
    };

/** Arguments of a call. */
export interface Given {
  readonly positional: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  readonly list: Expression | null; // *expression
  readonly dict: Expression | null; // **expression
}

export type Target =
  | { readonly type: 'name'; readonly name: string }
  | { readonly type: 'member'; readonly of: string; readonly name: string }
  | { readonly type: 'targets'; readonly items: readonly Target[] };

export interface Parameter {
  readonly name: string;
  readonly otherwise: Expression | null;
}

export interface Filter {
  readonly name: string;
  readonly given: Given;
}

export type Statement =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'output'; readonly value: Expression }
  | {
      readonly type: 'for';
      readonly target: Target;
      readonly over: Expression;
      readonly test: Expression | null;
      readonly recursive: boolean;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  | {
      readonly type: 'if';
      readonly branches: readonly (readonly [Expression, readonly Statement[]])[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly type: 'set'; readonly target: Target; readonly value: Expression }
  | {
      readonly type: 'set block';
      readonly target: Target;
      readonly filters: readonly Filter[];
      readonly body: readonly Statement[];
    }
  | {
      readonly type: 'macro';
      readonly name: string;
      readonly parameters: readonly Parameter[];
      readonly body: readonly Statement[];
    }
  | {
      readonly type: 'call block';
      readonly call: Expression & { readonly type: 'call' };
      readonly parameters: readonly Parameter[];
      readonly body: readonly Statement[];
    }
  | {
      readonly type: 'filter block';
      readonly filters: readonly Filter[];
      readonly body: readonly Statement[];
    }
  | {
      readonly type: 'with';
      readonly values: readonly (readonly [Target, Expression])[];
      readonly body: readonly Statement[];
    }
  | { readonly type: 'block'; readonly body: readonly Statement[] }
  | { readonly type: 'break' | 'continue' };

/** What a template that cannot be read ends in. */
export class BadSyntax extends Error {}

/** Reads a template. Raises BadSyntax. `filters` and `tests` are the names that are known. */
export function parsed(
  source: string,
  filters: ReadonlySet<string>,
  tests: ReadonlySet<string>,
): readonly Statement[] {
  return new Parser(tokensOf(source), filters, tests).program();
}

// --- tokens

type Kind =
  'data' | 'begin' | 'end' | 'print' | 'printed' | 'name' | 'string' | 'integer' | 'float' | 'mark' | 'over';

interface Token {
  readonly kind: Kind;
  readonly text: string;
}

const WHITE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const SPACES = new RegExp(`[${WHITE}]*`, 'uy');
const ONLY_SPACES = new RegExp(`^[${WHITE}]+$`, 'u');
const OPENING = /\{[{%#]/g;
const RAW = new RegExp(`\\{%([-+]?)[${WHITE}]*raw[${WHITE}]*(?:-%\\}[${WHITE}]*|%\\})`, 'uy');
const END_RAW = new RegExp(
  `\\{%([-+]?)[${WHITE}]*endraw[${WHITE}]*(?:\\+%\\}|-%\\}[${WHITE}]*|%\\}\\n?)`,
  'gu',
);
const END_COMMENT = new RegExp(`(?:\\+#\\}|-#\\}[${WHITE}]*|#\\}\\n?)`, 'gu');
const END_BLOCK = new RegExp(`(?:\\+%\\}|-%\\}[${WHITE}]*|%\\}\\n?)`, 'uy');
const END_PRINT = new RegExp(`(?:-\\}\\}[${WHITE}]*|\\}\\})`, 'uy');
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iuy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iuy;
const NAME = /[\p{L}\p{Nl}_][\p{L}\p{N}\p{M}_]*/uy;
const STRING = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/suy;
const MARK = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}<>=.:|,;]/uy;
const CLOSING: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };

function at(pattern: RegExp, source: string, place: number): RegExpExecArray | null {
  pattern.lastIndex = place;
  return pattern.exec(source);
}

/** Cuts a template as Jinja does with trim_blocks and lstrip_blocks. */
function tokensOf(template: string): readonly Token[] {
  const source = template.replace(/\r\n|\r/g, '\n').replace(/\n$/, '');
  const tokens: Token[] = [];
  let place = 0;
  let lineStarts = true;
  const data = (text: string, sign: string, block: boolean): void => {
    let kept = text;
    if (sign === '-') kept = trimmedEnd(text);
    else if (sign !== '+' && block) {
      const line = text.lastIndexOf('\n') + 1;
      if ((line > 0 || lineStarts) && ONLY_SPACES.test(text.slice(line))) kept = text.slice(0, line);
    }
    if (kept !== '') tokens.push({ kind: 'data', text: kept });
  };
  const moved = (to: number): void => {
    place = to;
    lineStarts = source[place - 1] === '\n';
  };
  while (place < source.length) {
    const opening = at(OPENING, source, place);
    if (opening === null) {
      tokens.push({ kind: 'data', text: source.slice(place) });
      break;
    }
    const text = source.slice(place, opening.index);
    const raw = at(RAW, source, opening.index);
    if (raw !== null) {
      data(text, raw[1] ?? '', true);
      moved(opening.index + raw[0].length);
      const end = at(END_RAW, source, place);
      if (end === null) throw new BadSyntax('Missing end of raw directive');
      data(source.slice(place, end.index), end[1] ?? '', true);
      moved(end.index + end[0].length);
      continue;
    }
    const sign = /[-+]/.exec(source[opening.index + 2] ?? '')?.[0] ?? '';
    const begun = opening.index + 2 + sign.length;
    data(text, sign, opening[0] !== '{{');
    if (opening[0] === '{#') {
      const end = at(END_COMMENT, source, begun);
      if (end === null) throw new BadSyntax('Missing end of comment tag');
      moved(end.index + end[0].length);
    } else moved(inside(source, begun, opening[0] === '{%', tokens));
  }
  tokens.push({ kind: 'over', text: 'end of template' });
  return tokens;
}

/** Cuts one block or expression; returns where the text goes on. */
function inside(source: string, from: number, block: boolean, tokens: Token[]): number {
  const ending = block ? END_BLOCK : END_PRINT;
  const open: string[] = [];
  let place = from;
  tokens.push({ kind: block ? 'begin' : 'print', text: block ? '{%' : '{{' });
  for (;;) {
    place += at(SPACES, source, place)?.[0].length ?? 0;
    const end = open.length === 0 ? at(ending, source, place) : null;
    if (end !== null) {
      tokens.push({ kind: block ? 'end' : 'printed', text: block ? '%}' : '}}' });
      return place + end[0].length;
    }
    const [kind, found] = next(source, place);
    if (kind === 'mark') {
      const closing = CLOSING[found];
      if (closing !== undefined) open.push(closing);
      else if (found === ')' || found === ']' || found === '}') {
        if (open.pop() !== found) throw new BadSyntax(`unexpected '${found}'`);
      }
    }
    tokens.push({ kind, text: kind === 'string' ? unescaped(found.slice(1, -1)) : found });
    place += found.length;
  }
}

function next(source: string, place: number): [Kind, string] {
  for (const [kind, pattern] of [
    ['float', FLOAT],
    ['integer', INTEGER],
    ['name', NAME],
    ['string', STRING],
    ['mark', MARK],
  ] as const) {
    const found = at(pattern, source, place);
    if (found !== null) return [kind, found[0]];
  }
  if (place >= source.length) throw new BadSyntax('unexpected end of template');
  throw new BadSyntax(`unexpected char '${source[place] ?? ''}'`);
}

const ESCAPES: Readonly<Record<string, string>> = {
  ...{
    n: '\n',
    t: '\t',
    r: '\r',
    b: '\b',
    f: '\f',
    v: '\v',
    a: '\x07',
    '\\': '\\',
    "'": "'",
    '"': '"',
    '\n': '',
  },
};

/** As Python reads escapes in text: what is none stays. */
function unescaped(text: string): string {
  return text.replace(
    /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{1,3})|(.))/gis,
    (whole: string, x?: string, u?: string, big?: string, octal?: string, mark?: string) => {
      const hex = x ?? u ?? big;
      if (hex !== undefined || octal !== undefined) {
        const code = hex !== undefined ? Number.parseInt(hex, 16) : Number.parseInt(octal ?? '', 8);
        if (code > 0x10ffff) throw new BadSyntax('no such character');
        return String.fromCodePoint(code);
      }
      if (mark === 'x' || mark === 'u' || mark === 'U' || mark === 'N') {
        throw new BadSyntax(`a broken escape: ${whole}`);
      }
      return ESCAPES[mark ?? ''] ?? whole;
    },
  );
}

function trimmedEnd(text: string): string {
  let end = text.length;
  while (end > 0 && ONLY_SPACES.test(text[end - 1] ?? '')) end -= 1;
  return text.slice(0, end);
}

// --- the parser, in the order of Jinja's own

const NO_ARGUMENTS: Given = { positional: [], named: [], list: null, dict: null };
const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', '<', '<=', '>', '>=']);
const CONSTANTS: Readonly<Record<string, null | boolean>> = {
  ...{ true: true, True: true, false: false, False: false, none: null, None: null },
};
const MAX_DEPTH = 200; // of expressions in expressions

class Parser {
  private readonly tokens: readonly Token[];
  private readonly filters: ReadonlySet<string>;
  private readonly tests: ReadonlySet<string>;
  private place = 0;
  private depth = 0;

  constructor(tokens: readonly Token[], filters: ReadonlySet<string>, tests: ReadonlySet<string>) {
    this.tokens = tokens;
    this.filters = filters;
    this.tests = tests;
  }

  program(): readonly Statement[] {
    const body = this.body([]);
    if (this.current.kind !== 'over') throw this.unexpected();
    return body;
  }

  private get current(): Token {
    return this.tokens[this.place] ?? { kind: 'over', text: 'end of template' };
  }

  private is(kind: Kind, text?: string): boolean {
    return this.current.kind === kind && (text === undefined || this.current.text === text);
  }

  private skip(kind: Kind, text?: string): boolean {
    if (!this.is(kind, text)) return false;
    this.place += 1;
    return true;
  }

  private expect(kind: Kind, text?: string): Token {
    const token = this.current;
    if (!this.skip(kind, text)) throw this.unexpected(text ?? kind);
    return token;
  }

  private unexpected(wanted?: string): BadSyntax {
    const got = `unexpected '${this.current.text.slice(0, 40)}'`;
    return new BadSyntax(wanted === undefined ? got : `${got}, expected '${wanted}'`);
  }

  /** Statements up to one of `ends`, whose name is left to be read; `{%` before it is not. */
  private body(ends: readonly string[]): Statement[] {
    const found: Statement[] = [];
    for (;;) {
      const token = this.current;
      if (token.kind === 'over') {
        if (ends.length > 0) throw new BadSyntax(`Unexpected end of template, expected ${ends.join(' or ')}`);
        return found;
      }
      this.place += 1;
      if (token.kind === 'data') found.push({ type: 'text', text: token.text });
      else if (token.kind === 'print') {
        const value = this.tuple(true);
        this.expect('printed');
        found.push({ type: 'output', value: value });
      } else {
        if (ends.some((name) => this.is('name', name))) return found;
        found.push(this.statement());
      }
    }
  }

  /** `body` up to `end`, with its closing. */
  private enclosed(end: string): Statement[] {
    this.expect('end');
    const body = this.body([end]);
    this.place += 1;
    this.expect('end');
    return body;
  }

  private statement(): Statement {
    const name = this.expect('name').text;
    switch (name) {
      case 'for':
        return this.for();
      case 'if':
        return this.if();
      case 'set':
        return this.set();
      case 'macro': {
        const called = this.expect('name').text;
        const parameters = this.parameters();
        return { type: 'macro', name: called, parameters, body: this.enclosed('endmacro') };
      }
      case 'call': {
        const parameters = this.is('mark', '(') ? this.parameters() : [];
        const call = this.expression();
        if (call.type !== 'call') throw new BadSyntax('expected call');
        return { type: 'call block', call, parameters, body: this.enclosed('endcall') };
      }
      case 'filter': {
        const filters = this.chain(this.oneFilter());
        return { type: 'filter block', filters, body: this.enclosed('endfilter') };
      }
      case 'with': {
        const values: (readonly [Target, Expression])[] = [];
        while (!this.is('end')) {
          if (values.length > 0) this.expect('mark', ',');
          const target = this.target();
          this.expect('mark', '=');
          values.push([target, this.expression()]);
        }
        return { type: 'with', values, body: this.enclosed('endwith') };
      }
      case 'generation': // marks words for training; here it is what it holds
        return { type: 'block', body: this.enclosed('endgeneration') };
      case 'break':
      case 'continue':
        this.expect('end');
        return { type: name };
      default:
        throw new BadSyntax(`Encountered unknown tag '${name}'`);
    }
  }

  private for(): Statement {
    const target = this.target();
    this.expect('name', 'in');
    const over = this.tuple(false, ['recursive']);
    const test = this.skip('name', 'if') ? this.expression() : null;
    const recursive = this.skip('name', 'recursive');
    this.expect('end');
    const body = this.body(['endfor', 'else']);
    const otherwise: Statement[] = [];
    if (this.expect('name').text === 'else') otherwise.push(...this.enclosed('endfor'));
    else this.expect('end');
    return { type: 'for', target, over, test, recursive, body, otherwise };
  }

  private if(): Statement {
    const branches: (readonly [Expression, readonly Statement[]])[] = [];
    for (;;) {
      const test = this.tuple(false);
      this.expect('end');
      branches.push([test, this.body(['elif', 'else', 'endif'])]);
      const name = this.expect('name').text;
      if (name === 'elif') continue;
      const otherwise = name === 'else' ? this.enclosed('endif') : [];
      if (name === 'endif') this.expect('end');
      return { type: 'if', branches, otherwise };
    }
  }

  private set(): Statement {
    const target = this.target(true);
    if (this.skip('mark', '=')) {
      const value = this.tuple(true);
      this.expect('end');
      return { type: 'set', target, value };
    }
    return { type: 'set block', target, filters: this.chain(), body: this.enclosed('endset') };
  }

  private chain(first?: Filter): Filter[] {
    const filters = first === undefined ? [] : [first];
    while (this.skip('mark', '|')) filters.push(this.oneFilter());
    return filters;
  }

  private oneFilter(): Filter {
    const name = this.expect('name').text;
    if (!this.filters.has(name)) throw new BadSyntax(`No filter named '${name}'.`);
    return { name, given: this.is('mark', '(') ? this.given() : NO_ARGUMENTS };
  }

  private target(members = false): Target {
    const items = [this.oneTarget(members)];
    let tuple = false;
    while (this.skip('mark', ',')) {
      tuple = true;
      if (this.is('name', 'in') || this.is('mark', '=') || this.is('end')) break;
      items.push(this.oneTarget(members));
    }
    const [only] = items;
    return !tuple && only !== undefined ? only : { type: 'targets', items };
  }

  private oneTarget(members: boolean): Target {
    if (this.skip('mark', '(')) {
      const inner = this.target(members);
      this.expect('mark', ')');
      return inner;
    }
    const name = this.expect('name').text;
    if (name in CONSTANTS) throw new BadSyntax(`can't assign to '${name}'`);
    if (!members || !this.skip('mark', '.')) return { type: 'name', name };
    return { type: 'member', of: name, name: this.expect('name').text };
  }

  private parameters(): Parameter[] {
    const found: Parameter[] = [];
    this.expect('mark', '(');
    while (!this.is('mark', ')')) {
      if (found.length > 0) this.expect('mark', ',');
      const name = this.expect('name').text;
      const otherwise = this.skip('mark', '=') ? this.expression() : null;
      if (otherwise === null && found.some((one) => one.otherwise !== null)) {
        throw new BadSyntax('non-default argument follows default argument');
      }
      found.push({ name, otherwise });
    }
    this.expect('mark', ')');
    return found;
  }

  private expression(conditional = true): Expression {
    this.depth += 1;
    if (this.depth > MAX_DEPTH) throw new BadSyntax('its expressions are nested too deeply');
    try {
      return conditional ? this.condition() : this.or();
    } finally {
      this.depth -= 1;
    }
  }

  /** An expression, or several with commas between them. */
  private tuple(conditional: boolean, ends: readonly string[] = [], parenthesized = false): Expression {
    const items: Expression[] = [];
    let tuple = false;
    for (;;) {
      if (items.length > 0) {
        if (!this.skip('mark', ',')) break;
        tuple = true;
      }
      const over = this.is('end') || this.is('printed') || this.is('mark', ')');
      if (over || ends.some((name) => this.is('name', name))) break;
      items.push(this.expression(conditional));
    }
    const [only] = items;
    if (!tuple) {
      if (only !== undefined) return only;
      if (!parenthesized) throw new BadSyntax(`Expected an expression, got '${this.current.text}'`);
    }
    return { type: 'tuple', items };
  }

  private condition(): Expression {
    let yes = this.or();
    while (this.skip('name', 'if')) {
      const test = this.or();
      const no = this.skip('name', 'else') ? this.condition() : null;
      yes = { type: 'condition', test, yes, no };
    }
    return yes;
  }

  private or(): Expression {
    let left = this.and();
    while (this.skip('name', 'or')) left = { type: 'logic', and: false, left, right: this.and() };
    return left;
  }

  private and(): Expression {
    let left = this.not();
    while (this.skip('name', 'and')) left = { type: 'logic', and: true, left, right: this.not() };
    return left;
  }

  private not(): Expression {
    if (!this.skip('name', 'not')) return this.comparison();
    this.depth += 1;
    if (this.depth > MAX_DEPTH) throw new BadSyntax('its expressions are nested too deeply');
    const of = this.not();
    this.depth -= 1;
    return { type: 'not', of };
  }

  private comparison(): Expression {
    const first = this.sum();
    const rest: (readonly [string, Expression])[] = [];
    for (;;) {
      const { kind, text } = this.current;
      const following = this.tokens[this.place + 1];
      if (kind === 'mark' && COMPARISONS.has(text)) {
        this.place += 1;
        rest.push([text, this.sum()]);
      } else if (this.skip('name', 'in')) rest.push(['in', this.sum()]);
      else if (kind === 'name' && text === 'not' && following?.kind === 'name' && following.text === 'in') {
        this.place += 2;
        rest.push(['not in', this.sum()]);
      } else return rest.length === 0 ? first : { type: 'comparison', first, rest };
    }
  }

  private binary(operators: readonly string[], operand: () => Expression): Expression {
    let left = operand();
    for (;;) {
      const { kind, text: operator } = this.current;
      if (kind !== 'mark' || !operators.includes(operator)) return left;
      this.place += 1;
      left = { type: 'binary', operator, left, right: operand() };
    }
  }

  private sum(): Expression {
    return this.binary(['+', '-'], () => this.concatenation());
  }

  private concatenation(): Expression {
    const parts = [this.product()];
    while (this.skip('mark', '~')) parts.push(this.product());
    const [only] = parts;
    return parts.length === 1 && only !== undefined ? only : { type: 'concatenation', parts };
  }

  private product(): Expression {
    return this.binary(['*', '/', '//', '%'], () => this.power());
  }

  private power(): Expression {
    return this.binary(['**'], () => this.unary());
  }

  private unary(filtered = true): Expression {
    const { kind, text } = this.current;
    let found: Expression;
    if (kind === 'mark' && (text === '-' || text === '+')) {
      this.place += 1;
      this.depth += 1;
      if (this.depth > MAX_DEPTH) throw new BadSyntax('its expressions are nested too deeply');
      found = { type: 'sign', sign: text, of: this.unary(false) };
      this.depth -= 1;
    } else found = this.primary();
    found = this.postfix(found);
    return filtered ? this.filtered(found) : found;
  }

  private primary(): Expression {
    const token = this.current;
    this.place += 1;
    switch (token.kind) {
      case 'name':
        if (token.text in CONSTANTS) return { type: 'constant', value: CONSTANTS[token.text] ?? null };
        return { type: 'name', name: token.text };
      case 'string': {
        let value = token.text;
        while (this.is('string')) value += this.expect('string').text;
        return { type: 'constant', value };
      }
      case 'integer': {
        const value = Number(token.text.replaceAll('_', ''));
        if (!Number.isSafeInteger(value)) throw new BadSyntax('a whole number is too large');
        return { type: 'constant', value };
      }
      case 'float':
        return { type: 'float', value: Number(token.text.replaceAll('_', '')) };
      case 'mark':
        if (token.text === '(') {
          const inner = this.tuple(true, [], true);
          this.expect('mark', ')');
          return inner;
        }
        if (token.text === '[') return { type: 'list', items: this.items(']', () => this.expression()) };
        if (token.text === '{') {
          const items = this.items('}', (): readonly [Expression, Expression] => {
            const key = this.expression();
            this.expect('mark', ':');
            return [key, this.expression()];
          });
          return { type: 'dict', items };
        }
        break;
      default:
        break;
    }
    this.place -= 1;
    throw this.unexpected();
  }

  private items<T>(end: string, one: () => T): T[] {
    const found: T[] = [];
    while (!this.is('mark', end)) {
      if (found.length > 0) this.expect('mark', ',');
      if (this.is('mark', end)) break;
      found.push(one());
    }
    this.expect('mark', end);
    return found;
  }

  private postfix(of: Expression): Expression {
    let found = of;
    for (;;) {
      if (this.skip('mark', '.')) {
        const token = this.current;
        this.place += 1;
        if (token.kind === 'name') found = { type: 'attribute', of: found, name: token.text };
        else if (token.kind === 'integer') {
          found = { type: 'item', of: found, key: { type: 'constant', value: Number(token.text) } };
        } else throw new BadSyntax('expected name or number');
      } else if (this.skip('mark', '[')) found = this.subscript(found);
      else if (this.is('mark', '(')) found = { type: 'call', of: found, given: this.given() };
      else return found;
    }
  }

  private subscript(of: Expression): Expression {
    const parts: (Expression | null)[] = [this.is('mark', ':') ? null : this.expression()];
    while (this.skip('mark', ':')) {
      parts.push(this.is('mark', ':') || this.is('mark', ']') ? null : this.expression());
    }
    if (parts.length > 3) throw this.unexpected();
    this.expect('mark', ']');
    const [key] = parts;
    if (parts.length > 1) return { type: 'slice', of, parts };
    if (key === undefined || key === null) throw this.unexpected();
    return { type: 'item', of, key };
  }

  private filtered(of: Expression): Expression {
    let found = of;
    for (;;) {
      if (this.skip('mark', '|')) found = { type: 'filter', of: found, ...this.oneFilter() };
      else if (this.skip('name', 'is')) found = this.test(found);
      else if (this.is('mark', '(')) found = { type: 'call', of: found, given: this.given() };
      else return found;
    }
  }

  private test(of: Expression): Expression {
    const negated = this.skip('name', 'not');
    const name = this.expect('name').text;
    if (!this.tests.has(name)) throw new BadSyntax(`No test named '${name}'.`);
    let given = NO_ARGUMENTS;
    const { kind, text } = this.current;
    const begins =
      ['name', 'string', 'integer', 'float'].includes(kind) || (kind === 'mark' && /^[[{]$/.test(text));
    if (this.is('mark', '(')) given = this.given();
    else if (begins && !(kind === 'name' && ['else', 'or', 'and'].includes(text))) {
      if (this.is('name', 'is')) throw new BadSyntax('You cannot chain multiple tests with is');
      given = { ...NO_ARGUMENTS, positional: [this.postfix(this.primary())] };
    }
    const found: Expression = { type: 'test', of, name, given };
    return negated ? { type: 'not', of: found } : found;
  }

  private given(): Given {
    const positional: Expression[] = [];
    const named: [string, Expression][] = [];
    let list: Expression | null = null;
    let dict: Expression | null = null;
    this.expect('mark', '(');
    let first = true;
    while (!this.is('mark', ')')) {
      if (!first) this.expect('mark', ',');
      first = false;
      if (this.is('mark', ')')) break;
      const following = this.tokens[this.place + 1];
      if (this.skip('mark', '*')) {
        if (list !== null || dict !== null) throw this.unexpected();
        list = this.expression();
      } else if (this.skip('mark', '**')) {
        if (dict !== null) throw this.unexpected();
        dict = this.expression();
      } else if (this.is('name') && following?.kind === 'mark' && following.text === '=') {
        const name = this.expect('name').text;
        this.place += 1;
        if (dict !== null) throw this.unexpected();
        named.push([name, this.expression()]);
      } else {
        if (list !== null || dict !== null || named.length > 0) throw this.unexpected();
        positional.push(this.expression());
      }
    }
    this.expect('mark', ')');
    return { positional, named, list, dict };
  }
}
