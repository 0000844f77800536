/*
 * Decides what a conversation looks like to the model: renders its chat template, within bounds.
 *
 * A template comes with a foreign model, so its interpreter runs on a budget: so many steps, so many characters in any
 * one value and in the output. It sees what Hugging Face transformers shows: the messages, the begin and end tokens,
 * a bounded range, namespace, raise_exception and strftime_now; nothing of the page. What it cannot do as Jinja does is
 * an error: a prompt that differs by machine is worse than none.
 */

import { ChatTemplateError } from '../errors';
import { FILTERS, type Surroundings, TESTS } from './template_filters';
import {
  ALL_TEXT_METHODS,
  bound,
  capitalized,
  CHANGING,
  DICT_METHODS,
  methodOf,
  percent,
  stripped,
  TEXT_METHODS,
} from './template_methods';
import {
  type Expression,
  type Filter,
  type Given,
  type Parameter,
  parsed,
  type Statement,
  type Target,
} from './template_syntax';
import {
  bounded,
  Callable,
  compared,
  concatenated,
  contains,
  equal,
  Float,
  isDict,
  isList,
  isWhole,
  itemsOf,
  lengthOf,
  Marked,
  Namespace,
  numberIn,
  orElse,
  points,
  Sequence,
  TemplateFailure,
  text,
  TooMuch,
  truth,
  typeName,
  Undefined,
  type Value,
  whole,
} from './template_values';

export const MAX_TEMPLATE_CHARACTERS = 200_000; // the longest published ones are some 30,000
export const MAX_STEPS = 1_000_000; // of the interpreter in one rendering: a second or two at worst
const CHARACTERS_PER_STEP = 4096; // text that takes about as long to copy as a step
const ITEMS_PER_STEP = 8;
const STEPS_PER_TURN = 16; // what a turn of an empty loop takes, in steps
const MAX_RANGE = 100_000;
const MAX_CALLS = 200; // of macros and recursive loops in one another

/** One turn of a conversation. */
export interface Message {
  readonly role: string; // "system", "user", "assistant"; a template may know more
  readonly content: Content;
}

/** What is said in a turn: text, or parts of which a picture is one. */
export type Content = string | readonly Part[];
export type Part = { readonly type: 'text'; readonly text: string } | { readonly type: 'image' };

/** The text of a content; `picture` stands for each picture. */
export function wordsOf(content: Content, picture: string): string {
  if (typeof content === 'string') return content;
  return content.map((part) => (part.type === 'text' ? part.text : picture)).join('');
}

/** What strftime_now formats. `month` counts from 1. */
export interface CalendarDate {
  readonly year: number;
  readonly month: number;
  readonly day: number;
}

/** What raise_exception of a template throws. */
class Raised extends Error {}

const FILTER_NAMES: ReadonlySet<string> = new Set(FILTERS.keys());
const TEST_NAMES: ReadonlySet<string> = new Set(TESTS.keys());

/** A compiled chat template. */
export class ChatTemplate {
  private readonly program: readonly Statement[];
  private readonly tokens: Readonly<Record<string, string>>;
  private readonly steps: number;

  constructor(source: string, bosToken: string, eosToken: string, steps = MAX_STEPS) {
    if (source.length > MAX_TEMPLATE_CHARACTERS) {
      throw new ChatTemplateError(
        `a chat template has up to ${MAX_TEMPLATE_CHARACTERS} characters, this one ${source.length}`,
      );
    }
    this.tokens = { bos_token: bosToken, eos_token: eosToken };
    this.steps = steps;
    try {
      this.program = parsed(source, FILTER_NAMES, TEST_NAMES);
    } catch (problem) {
      throw new ChatTemplateError(
        `a tab cannot read the model's chat template: ${line(problem)}; ask from a terminal or the API`,
      );
    }
  }

  /**
   * The prompt for `messages`; with `answer` it ends where the assistant's next words begin.
   *
   * `today` is what strftime_now formats.
   */
  render(messages: readonly Message[], today: CalendarDate, answer = true): string {
    try {
      const scope = globals(today);
      for (const [name, value] of Object.entries(this.tokens)) scope.values.set(name, value);
      const turns = messages.map(
        ({ role, content }) =>
          new Map<Value, Value>([
            ['role', role],
            ['content', typeof content === 'string' ? content : content.map(valueOfPart)],
          ]),
      );
      for (const [name, value] of [
        ['messages', turns],
        ['tools', null],
        ['documents', null],
        ['add_generation_prompt', answer],
      ] as const) {
        scope.values.set(name, value);
      }
      return new Interpreter(this.steps).text(this.program, scope);
    } catch (problem) {
      if (problem instanceof Raised) {
        throw new ChatTemplateError(`the model's chat template refuses these messages: ${problem.message}`);
      }
      throw new ChatTemplateError(`the model's chat template failed: ${line(problem)}`);
    }
  }
}

/** The prompt for a model that has no chat template: `Role: words` paragraphs, then `Assistant:`. */
export function plainChat(messages: readonly Message[]): string {
  const turns = messages.map(
    ({ role, content }) => `${capitalized(role)}: ${stripped(wordsOf(content, ''), 'strip', null)}\n\n`,
  );
  return `${turns.join('')}Assistant:`;
}

function valueOfPart(part: Part): Value {
  return new Map<Value, Value>(Object.entries(part));
}

/** Names and their values, and those around them. */
class Scope {
  readonly values = new Map<string, Value>();
  private readonly around: Scope | null;

  constructor(around: Scope | null) {
    this.around = around;
  }

  find(name: string): Value | undefined {
    const found = this.values.get(name);
    return found !== undefined || this.around === null ? found : this.around.find(name);
  }
}

function globals(today: CalendarDate): Scope {
  const scope = new Scope(null);
  const add = (name: string, of: Callable['call']): void => {
    scope.values.set(name, new Callable(name, of));
  };
  add('range', range);
  add('dict', (positional, named) => madeDict(positional, named));
  add('namespace', (positional, named) => {
    const values = [...madeDict(positional, named)].map(([key, value]): [string, Value] => [
      text(key),
      value,
    ]);
    return new Namespace(new Map(values));
  });
  add('cycler', (positional) => {
    if (positional.length === 0) throw new TemplateFailure('at least one item has to be provided');
    let place = 0;
    const now = (): Value => positional[place] ?? null;
    const next = new Callable('next', () => {
      const found = now();
      place = (place + 1) % positional.length;
      return found;
    });
    const reset = new Callable('reset', () => {
      place = 0;
      return null;
    });
    return new Callable(
      'cycler',
      next.call,
      () =>
        new Map<string, Value>([
          ['next', next],
          ['reset', reset],
          ['current', now()],
        ]),
    );
  });
  add('joiner', (positional, named) => {
    const [separator = ', '] = bound('joiner', ['sep'], 0, positional, named);
    let used = false;
    return new Callable('joiner', () => {
      const found = used ? separator : '';
      used = true;
      return found;
    });
  });
  add('raise_exception', (positional, named) => {
    throw new Raised(
      text(bound('raise_exception', ['message'], 1, positional, named)[0] ?? null).slice(0, 500),
    );
  });
  add('strftime_now', (positional, named) =>
    dateText(today, text(bound('strftime_now', ['format'], 1, positional, named)[0] ?? null).slice(0, 100)),
  );
  return scope;
}

function madeDict(positional: readonly Value[], named: ReadonlyMap<string, Value>): Map<Value, Value> {
  const [given, ...more] = positional;
  if (more.length > 0) throw new TemplateFailure('dict() takes one mapping');
  const found = new Map<Value, Value>(named);
  if (given === undefined) return found;
  const pairs = isDict(given) ? [...given] : itemsOf(given).map((pair): [Value, Value] => pairIn(pair));
  return new Map<Value, Value>([...pairs, ...named]);
}

function pairIn(pair: Value): [Value, Value] {
  const [key, value, ...more] = itemsOf(pair);
  if (key === undefined || value === undefined || more.length > 0)
    throw new TemplateFailure('expected pairs');
  return [keyOf(key), value];
}

function keyOf(key: Value): Value {
  if (typeof key === 'string' || typeof key === 'number' || key === null || key instanceof Undefined)
    return key;
  throw new TemplateFailure(`keys of a dict are text or whole numbers here, not ${typeName(key)}`);
}

function range(positional: readonly Value[]): Value {
  const given = positional.map((one) => {
    if (!isWhole(one))
      throw new TemplateFailure(`'${typeName(one)}' object cannot be interpreted as an integer`);
    return Number(one);
  });
  const [start, stop, step = 1] = given.length === 1 ? [0, ...given] : given;
  if (start === undefined || stop === undefined || step === 0) {
    throw new TemplateFailure('range() takes whole numbers, and a step that is not zero');
  }
  const count = Math.max(0, Math.ceil((stop - start) / step));
  if (count > MAX_RANGE) throw new TooMuch(`Range too big. The maximum size for range() is ${MAX_RANGE}.`);
  const numbers = Array.from({ length: count }, (_, at) => start + at * step);
  return new Sequence(numbers, 'range');
}

type Signal = 'break' | 'continue' | null;

/** Evaluates a template, on a budget. */
class Interpreter implements Surroundings {
  private stepsLeft: number;
  private written = 0;
  private depth = 0;

  constructor(steps: number) {
    this.stepsLeft = steps;
  }

  /** What statements print. */
  text(body: readonly Statement[], scope: Scope): string {
    const out: string[] = [];
    this.run(body, scope, out);
    return out.join('');
  }

  spend(steps: number): void {
    this.stepsLeft -= steps;
    if (this.stepsLeft < 0) throw new TooMuch('it took more steps than a conversation can need');
  }

  item(of: Value, key: Value): Value {
    if (of instanceof Undefined) throw of.failure;
    const items = isList(of) ? of : of instanceof Sequence && !of.kind.startsWith('dict') ? of.items : null;
    if (isWhole(key)) {
      const place = Number(key);
      if (items !== null) return orElse(items.at(place), missing(of, key));
      if (typeof of === 'string') return points(of).at(place) ?? missing(of, key);
    }
    if (isDict(of)) {
      const found = of.get(key);
      if (found !== undefined) return found;
    }
    return typeof key === 'string' ? this.attribute(of, key) : missing(of, key);
  }

  attribute(of: Value, name: string): Value {
    if (of instanceof Undefined) throw of.failure;
    if (name.startsWith('__')) throw new TemplateFailure(`access to attribute '${name}' is unsafe`);
    if (typeof of === 'string') {
      const method = TEXT_METHODS.get(name);
      if (method !== undefined) {
        return new Callable(name, (positional, named) => {
          this.weigh(of);
          return method(of, positional, named);
        });
      }
      if (ALL_TEXT_METHODS.has(name)) throw new TemplateFailure(`'${name}' of text is not available here`);
      return missing(of, name);
    }
    if (of instanceof Namespace) return orElse(of.values.get(name), missing(of, name));
    if (of instanceof Callable) return orElse(of.members().get(name), missing(of, name));
    if (of instanceof Sequence && of.kind === 'group' && (name === 'grouper' || name === 'list')) {
      return of.items[name === 'grouper' ? 0 : 1] ?? null;
    }
    const method = methodOf(of, name);
    if (method !== null) return method;
    if ((isDict(of) ? DICT_METHODS.has(name) : isList(of)) && CHANGING.has(name)) {
      throw new TemplateFailure(`access to attribute '${name}' is unsafe`);
    }
    if (numberIn(of) !== null || of instanceof Marked || (isDict(of) && DICT_METHODS.has(name))) {
      throw new TemplateFailure(`'${name}' of ${typeName(of)} is not available here`);
    }
    return missing(of, name);
  }

  /** `of.name`: an attribute first, then what a dict holds. */
  private member(of: Value, name: string): Value {
    const found = isDict(of) && !DICT_METHODS.has(name) ? of.get(name) : undefined;
    return found === undefined ? this.attribute(of, name) : found;
  }

  // --- statements

  private run(body: readonly Statement[], scope: Scope, out: string[]): Signal {
    for (const statement of body) {
      const signal = this.statement(statement, scope, out);
      if (signal !== null) return signal;
    }
    return null;
  }

  private write(words: string, out: string[]): void {
    this.written += words.length;
    bounded(this.written);
    out.push(words);
  }

  private statement(statement: Statement, scope: Scope, out: string[]): Signal {
    this.spend(1);
    switch (statement.type) {
      case 'text':
        this.write(statement.text, out);
        return null;
      case 'output':
        this.write(text(this.value(statement.value, scope)), out);
        return null;
      case 'for':
        this.loop(statement, this.value(statement.over, scope), scope, out, 0);
        return null;
      case 'if': {
        const taken = statement.branches.find(([test]) => truth(this.value(test, scope)));
        return this.run(taken?.[1] ?? statement.otherwise, scope, out);
      }
      case 'set':
        this.assign(statement.target, this.value(statement.value, scope), scope);
        return null;
      case 'set block': {
        const words = this.text(statement.body, new Scope(scope));
        this.assign(statement.target, this.chained(words, statement.filters, scope), scope);
        return null;
      }
      case 'filter block': {
        const words = this.text(statement.body, new Scope(scope));
        this.write(text(this.chained(words, statement.filters, scope)), out);
        return null;
      }
      case 'macro':
        scope.values.set(
          statement.name,
          this.macro(statement.name, statement.parameters, statement.body, scope),
        );
        return null;
      case 'call block': {
        const caller = this.macro('caller', statement.parameters, statement.body, scope);
        const of = this.value(statement.call.of, scope);
        const [positional, named] = this.arguments(statement.call.given, scope);
        this.write(text(this.called(of, positional, new Map([...named, ['caller', caller]]))), out);
        return null;
      }
      case 'with': {
        const inner = new Scope(scope);
        for (const [target, value] of statement.values) this.assign(target, this.value(value, inner), inner);
        return this.run(statement.body, inner, out);
      }
      case 'block':
        return this.run(statement.body, new Scope(scope), out);
      case 'break':
      case 'continue':
        return statement.type;
    }
  }

  private chained(value: Value, filters: readonly Filter[], scope: Scope): Value {
    return filters.reduce((made: Value, { name, given }) => this.filter(made, name, given, scope), value);
  }

  private assign(target: Target, value: Value, scope: Scope): void {
    switch (target.type) {
      case 'name':
        scope.values.set(target.name, value);
        break;
      case 'member': {
        const of = scope.find(target.of);
        if (!(of instanceof Namespace)) {
          throw new TemplateFailure('cannot assign attribute on non-namespace object');
        }
        of.values.set(target.name, value);
        break;
      }
      case 'targets': {
        const values = itemsOf(value);
        if (values.length !== target.items.length) {
          throw new TemplateFailure(`expected ${target.items.length} values to unpack, got ${values.length}`);
        }
        for (const [at, one] of target.items.entries()) this.assign(one, values[at] ?? null, scope);
      }
    }
  }

  private loop(
    statement: Statement & { readonly type: 'for' },
    over: Value,
    scope: Scope,
    out: string[],
    depth: number,
  ): void {
    let items = itemsOf(over);
    const { test } = statement;
    if (test !== null) {
      items = items.filter((one) => {
        this.spend(STEPS_PER_TURN);
        const inner = new Scope(scope);
        this.assign(statement.target, one, inner);
        return truth(this.value(test, inner));
      });
    }
    const state = new LoopState(items, depth);
    const again = new Callable(
      'loop',
      ([deeper, ...more]) => {
        if (!statement.recursive) throw new TemplateFailure("The loop must have the 'recursive' marker");
        if (deeper === undefined || more.length > 0) throw new TemplateFailure('loop() takes one argument');
        const words: string[] = [];
        this.deeper(() => {
          this.loop(statement, deeper, scope, words, depth + 1);
        });
        this.written -= words.reduce((sum, one) => sum + one.length, 0); // it is written where it is printed
        return words.join('');
      },
      () => state.members(),
    );
    for (const [at, one] of items.entries()) {
      this.spend(STEPS_PER_TURN);
      state.at = at;
      const inner = new Scope(scope);
      inner.values.set('loop', again);
      this.assign(statement.target, one, inner);
      if (this.run(statement.body, inner, out) === 'break') return;
    }
    if (items.length === 0) this.run(statement.otherwise, new Scope(scope), out);
  }

  private deeper<T>(work: () => T): T {
    this.depth += 1;
    if (this.depth > MAX_CALLS) throw new RangeError('the stack of macros is full');
    try {
      return work();
    } finally {
      this.depth -= 1;
    }
  }

  private macro(
    name: string,
    parameters: readonly Parameter[],
    body: readonly Statement[],
    scope: Scope,
  ): Callable {
    return new Callable(name, (positional, named) => {
      this.spend(STEPS_PER_TURN);
      const inner = new Scope(scope);
      const left = new Map(named);
      for (const [at, parameter] of parameters.entries()) {
        let value = positional[at];
        if (value === undefined) {
          value = left.get(parameter.name);
          left.delete(parameter.name);
        }
        if (value === undefined) {
          value =
            parameter.otherwise === null
              ? new Undefined(`parameter '${parameter.name}' was not provided: it`)
              : this.value(parameter.otherwise, inner);
        }
        inner.values.set(parameter.name, value);
      }
      const caller = left.get('caller');
      left.delete('caller');
      inner.values.set('caller', orElse(caller, new Undefined('No caller defined')));
      if (mentions(body, 'kwargs')) inner.values.set('kwargs', new Map<Value, Value>(left));
      else if (left.size > 0)
        throw new TemplateFailure(`macro '${name}' takes no keyword argument like these`);
      const more = positional.slice(parameters.length);
      if (mentions(body, 'varargs')) inner.values.set('varargs', new Sequence(more));
      else if (more.length > 0) {
        throw new TemplateFailure(`macro '${name}' takes not more than ${parameters.length} argument(s)`);
      }
      const before = this.written;
      const words = this.deeper(() => this.text(body, inner));
      this.written = before; // it is written where it is printed
      return words;
    });
  }

  // --- expressions

  private value(expression: Expression, scope: Scope): Value {
    this.spend(1);
    const made = this.made(expression, scope);
    this.weigh(made);
    return made;
  }

  /** The cost of going through a value once; what grew too large ends the rendering. */
  private weigh(value: Value): void {
    if (typeof value === 'string') {
      bounded(value.length);
      this.spend(Math.floor(value.length / CHARACTERS_PER_STEP));
    } else if (isList(value) || value instanceof Sequence) {
      const size = lengthOf(value);
      bounded(size);
      this.spend(Math.floor(size / ITEMS_PER_STEP));
    }
  }

  private made(expression: Expression, scope: Scope): Value {
    switch (expression.type) {
      case 'constant':
        return expression.value;
      case 'float':
        return new Float(expression.value);
      case 'name':
        return orElse(scope.find(expression.name), new Undefined(`'${expression.name}'`));
      case 'list':
        return expression.items.map((one) => this.value(one, scope));
      case 'tuple':
        return new Sequence(expression.items.map((one) => this.value(one, scope)));
      case 'dict':
        return new Map(
          expression.items.map(([key, value]): [Value, Value] => [
            keyOf(this.value(key, scope)),
            this.value(value, scope),
          ]),
        );
      case 'attribute':
        return this.member(this.value(expression.of, scope), expression.name);
      case 'item':
        return this.item(this.value(expression.of, scope), this.value(expression.key, scope));
      case 'slice':
        return sliced(
          this.value(expression.of, scope),
          expression.parts.map((part) => (part === null ? null : this.value(part, scope))),
        );
      case 'call': {
        const of = this.value(expression.of, scope);
        const [positional, named] = this.arguments(expression.given, scope);
        return this.called(of, positional, named);
      }
      case 'filter':
        return this.filter(this.value(expression.of, scope), expression.name, expression.given, scope);
      case 'test': {
        const test = TESTS.get(expression.name);
        const value = this.value(expression.of, scope);
        const [positional, named] = this.arguments(expression.given, scope);
        if (test === undefined || named.size > 0) throw new TemplateFailure('tests take arguments by place');
        return test(value, positional);
      }
      case 'not':
        return !truth(this.value(expression.of, scope));
      case 'sign': {
        const value = this.value(expression.of, scope);
        const number = numberIn(value);
        if (number === null) throw typeFailure(value, 'a sign');
        const signed = expression.sign === '-' ? -number : number;
        return value instanceof Float ? new Float(signed) : whole(signed);
      }
      case 'logic': {
        const left = this.value(expression.left, scope);
        return truth(left) === expression.and ? this.value(expression.right, scope) : left;
      }
      case 'binary':
        return operated(
          expression.operator,
          this.value(expression.left, scope),
          this.value(expression.right, scope),
        );
      case 'concatenation':
        return concatenated(expression.parts.map((part) => text(this.value(part, scope))));
      case 'comparison': {
        let left = this.value(expression.first, scope);
        for (const [operator, next] of expression.rest) {
          const right = this.value(next, scope);
          if (!holds(operator, left, right)) return false;
          left = right;
        }
        return true;
      }
      case 'condition':
        if (truth(this.value(expression.test, scope))) return this.value(expression.yes, scope);
        if (expression.no === null) return new Undefined('the inline if-expression evaluated to false and');
        return this.value(expression.no, scope);
    }
  }

  private arguments(given: Given, scope: Scope): [Value[], Map<string, Value>] {
    const positional = given.positional.map((one) => this.value(one, scope));
    const named = new Map(given.named.map(([name, one]): [string, Value] => [name, this.value(one, scope)]));
    if (given.list !== null) positional.push(...itemsOf(this.value(given.list, scope)));
    if (given.dict !== null) {
      const more = this.value(given.dict, scope);
      if (!isDict(more)) throw typeFailure(more, '**');
      for (const [name, value] of more) named.set(text(name), value);
    }
    return [positional, named];
  }

  private called(of: Value, positional: readonly Value[], named: ReadonlyMap<string, Value>): Value {
    if (of instanceof Undefined) throw of.failure;
    if (!(of instanceof Callable)) throw new TemplateFailure(`'${typeName(of)}' object is not callable`);
    return of.call(positional, named);
  }

  private filter(value: Value, name: string, given: Given, scope: Scope): Value {
    const [positional, named] = this.arguments(given, scope);
    const applied = FILTERS.get(name);
    if (applied === undefined) throw new TemplateFailure(`No filter named '${name}'.`);
    return applied(this, value, positional, named);
  }
}

/** Where a loop is, as its body reads it. */
class LoopState {
  at = 0;
  private readonly items: readonly Value[];
  private readonly depth: number;
  private last: readonly Value[] | null = null;

  constructor(items: readonly Value[], depth: number) {
    this.items = items;
    this.depth = depth;
  }

  members(): ReadonlyMap<string, Value> {
    const { at, items } = this;
    const { length } = items;
    const cycle = new Callable('cycle', (values) => {
      if (values.length === 0) throw new TemplateFailure('no items for cycling given');
      return values[at % values.length] ?? null;
    });
    const changed = new Callable('changed', (values) => {
      const before = this.last;
      this.last = values;
      return before === null || !equal(values, before);
    });
    return new Map<string, Value>([
      ['index', at + 1],
      ['index0', at],
      ['revindex', length - at],
      ['revindex0', length - at - 1],
      ['first', at === 0],
      ['last', at === length - 1],
      ['length', length],
      ['previtem', orElse(items[at - 1], new Undefined('there is no previous item: it'))],
      ['nextitem', orElse(items[at + 1], new Undefined('there is no next item: it'))],
      ['depth', this.depth + 1],
      ['depth0', this.depth],
      ['cycle', cycle],
      ['changed', changed],
    ]);
  }
}

function missing(of: Value, key: Value): Undefined {
  return new Undefined(`'${typeName(of)} object' has no attribute '${text(key)}': it`);
}

function typeFailure(value: Value, what: string): TemplateFailure {
  return value instanceof Undefined
    ? value.failure
    : new TemplateFailure(`${what} does not fit '${typeName(value)}'`);
}

/** Whether a macro reads a name that is not among its parameters. */
function mentions(node: unknown, name: string): boolean {
  if (Array.isArray(node)) return node.some((each) => mentions(each, name));
  if (typeof node !== 'object' || node === null) return false;
  const { type, name: called } = node as { readonly type?: unknown; readonly name?: unknown };
  if (type === 'name' && called === name) return true;
  return Object.values(node).some((each) => mentions(each, name));
}

function sliced(of: Value, parts: readonly Value[]): Value {
  const [start, stop, step] = [0, 1, 2].map((at) => {
    const part = parts[at] ?? null;
    if (part !== null && !isWhole(part)) throw typeFailure(part, 'a slice');
    return part === null ? null : Number(part);
  });
  if (of instanceof Undefined) throw of.failure;
  const by = step ?? 1;
  if (by === 0) throw new TemplateFailure('slice step cannot be zero');
  const sequence = of instanceof Sequence && !of.kind.startsWith('dict') ? of : null;
  const items = typeof of === 'string' ? points(of) : isList(of) ? of : (sequence?.items ?? null);
  if (items === null) throw new TemplateFailure(`'${typeName(of)}' object has no slices`);
  const size = items.length;
  const place = (given: number | null | undefined, otherwise: number): number => {
    if (given === null || given === undefined) return otherwise;
    const from = given < 0 ? given + size : given;
    return by > 0 ? Math.min(Math.max(from, 0), size) : Math.min(Math.max(from, -1), size - 1);
  };
  const [from, to] =
    by > 0 ? [place(start, 0), place(stop, size)] : [place(start, size - 1), place(stop, -1)];
  const found: Value[] = [];
  for (let at = from; by > 0 ? at < to : at > to; at += by) found.push(items[at] ?? null);
  if (typeof of === 'string') return found.map(text).join('');
  return sequence === null ? found : new Sequence(found, sequence.kind === 'range' ? 'range' : 'tuple');
}

function holds(operator: string, left: Value, right: Value): boolean {
  switch (operator) {
    case '==':
      return equal(left, right);
    case '!=':
      return !equal(left, right);
    case 'in':
      return contains(right, left);
    case 'not in':
      return !contains(right, left);
    case '<':
      return compared(left, right) < 0;
    case '<=':
      return compared(left, right) <= 0;
    case '>':
      return compared(left, right) > 0;
    default:
      return compared(left, right) >= 0;
  }
}

function operated(operator: string, left: Value, right: Value): Value {
  for (const one of [left, right]) if (one instanceof Undefined) throw one.failure;
  const [a, b] = [numberIn(left), numberIn(right)];
  if (a !== null && b !== null)
    return calculated(operator, a, b, left instanceof Float || right instanceof Float);
  if (operator === '%' && typeof left === 'string') return percent(left, right);
  if (operator === '+') {
    const words = [left, right].every((one) => typeof one === 'string' || one instanceof Marked);
    if (words) return concatenated([left, right]);
    if (isList(left) && isList(right)) {
      bounded(left.length + right.length);
      return [...left, ...right];
    }
    if (
      left instanceof Sequence &&
      right instanceof Sequence &&
      left.kind === 'tuple' &&
      right.kind === 'tuple'
    ) {
      bounded(left.items.length + right.items.length);
      return new Sequence([...left.items, ...right.items]);
    }
  }
  if (operator === '*') {
    const [some, times] = isWhole(left) ? [right, left] : [left, right];
    if (isWhole(times) && (typeof some === 'string' || isList(some))) {
      const count = Math.max(0, Number(times));
      bounded(lengthOf(some) * count);
      return typeof some === 'string' ? some.repeat(count) : Array.from({ length: count }, () => some).flat();
    }
  }
  throw new TemplateFailure(
    `unsupported operand types for ${operator}: '${typeName(left)}' and '${typeName(right)}'`,
  );
}

function calculated(operator: string, a: number, b: number, real: boolean): Value {
  const made = (value: number): Value => (real ? new Float(value) : whole(value));
  switch (operator) {
    case '+':
      return made(a + b);
    case '-':
      return made(a - b);
    case '*':
      return made(a * b);
    case '**':
      return b < 0 ? new Float(a ** b) : made(a ** b);
    default:
      break;
  }
  if (b === 0) throw new TemplateFailure('division by zero');
  switch (operator) {
    case '/':
      return new Float(a / b);
    case '//':
      return made(Math.floor(a / b));
    default: {
      const rest = a % b;
      return made(rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest);
    }
  }
}

const DAYS_BEFORE = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]; // a month
const MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August'],
  ...['September', 'October', 'November', 'December'],
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** strftime in English, for the marks that a date fills; the time of day is midnight. Others are refused. */
function dateText({ year, month, day }: CalendarDate, pattern: string): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  const monthName = MONTHS[month - 1] ?? '';
  const dayName = DAYS[weekday(year, month, day)] ?? '';
  const leap = month > 2 && year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const ofYear = (DAYS_BEFORE[month - 1] ?? 0) + day + (leap ? 1 : 0);
  const marks: Readonly<Record<string, string>> = {
    ...{ Y: String(year).padStart(4, '0'), y: two(year % 100), m: two(month), d: two(day) },
    ...{
      B: monthName,
      b: monthName.slice(0, 3),
      h: monthName.slice(0, 3),
      A: dayName,
      a: dayName.slice(0, 3),
    },
    ...{ H: '00', M: '00', S: '00', I: '12', p: 'AM', F: `${year}-${two(month)}-${two(day)}`, '%': '%' },
    ...{ e: String(day).padStart(2, ' '), j: String(ofYear).padStart(3, '0') },
    ...{ '-d': String(day), '-m': String(month), '-H': '0', '-I': '12', '-M': '0', '-S': '0' },
  };
  return pattern.replace(/%(-?.|$)/gsu, (whole_, mark: string) => {
    const found = marks[mark];
    if (found === undefined)
      throw new TemplateFailure(`the mark '${whole_}' of strftime_now is not available`);
    return found;
  });
}

/** 0 is Sunday (Sakamoto's method). */
function weekday(year: number, month: number, day: number): number {
  const shift = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4][month - 1] ?? 0;
  const y = month < 3 ? year - 1 : year;
  return (y + Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400) + shift + day) % 7;
}

function line(problem: unknown): string {
  if (problem instanceof RangeError && /stack/i.test(problem.message)) return 'it calls itself without end';
  const kind = problem instanceof TooMuch ? 'it asks for too much' : 'in the template';
  const words = problem instanceof Error ? problem.message : String(problem);
  return `${kind}: ${words}`.replace(/\s+/g, ' ').trim().slice(0, 300);
}
