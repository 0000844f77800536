/*
 * Decides what a conversation looks like to the model: renders its chat template, within bounds.
 *
 * A template comes with a foreign model, so its interpreter runs on a budget: so many steps, so many characters in any
 * one value and in the output. It sees the messages, the begin and end tokens, a bounded range, raise_exception and,
 * when a date is passed in, strftime_now; nothing of the page.
 */

/* eslint-disable @typescript-eslint/no-unsafe-class-instance-assignment -- syntax nodes are replaced by copies, which are plain objects */
import { Environment, Interpreter, parse, tokenize } from '@huggingface/jinja';

import { ChatTemplateError } from '../errors';

export const MAX_TEMPLATE_CHARACTERS = 200_000; // the longest published ones are some 30,000
export const MAX_STEPS = 1_000_000; // of the interpreter in one rendering: a second or two at worst
const MAX_VALUE = 2_000_000; // characters or items in one value; a prompt that long fits no model
const CHARACTERS_PER_STEP = 4096; // text that takes about as long to copy as a step
const ITEMS_PER_STEP = 8;
const STEPS_PER_TURN = 16; // what a turn of an empty loop takes, in steps
const MEETINGS: ReadonlySet<string> = new Set(['indent', 'join', 'replace', 'string', 'tojson']);
const MAX_RANGE = 100_000;
const MAX_INDENT = 200;

/** One turn of a conversation. */
export interface Message {
  readonly role: string; // "system", "user", "assistant"; a template may know more
  readonly content: string;
}

/** What strftime_now formats. `month` counts from 1. */
export interface CalendarDate {
  readonly year: number;
  readonly month: number;
  readonly day: number;
}

type Program = ReturnType<typeof parse>;
type Value = ReturnType<Interpreter['evaluate']>;
type Statement = NonNullable<Parameters<Interpreter['evaluate']>[0]>;

/** The parts of syntax nodes that are looked at here; the library has a type for each. */
interface Node {
  readonly type: string;
  readonly operand?: Node;
  readonly iterable?: Node;
  readonly lhs?: Node | undefined;
  readonly filter?: Node;
  readonly callee?: Node;
  readonly object?: Node;
  readonly property?: Node;
  readonly computed?: boolean;
  readonly args?: readonly Node[];
  readonly argument?: Node;
  readonly value?: unknown;
}

/** What raise_exception of a template throws. */
class Raised extends Error {}

/** The template's budget is spent. */
class TooMuch extends Error {}

/** A compiled chat template. */
export class ChatTemplate {
  private readonly program: Program;
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
      this.program = parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
    } catch (problem) {
      throw new ChatTemplateError(`the model's chat template does not compile: ${line(problem)}`);
    }
  }

  /**
   * The prompt for `messages`; with `answer` it ends where the assistant's next words begin.
   *
   * `today` is what strftime_now formats; without it the template sees no strftime_now.
   */
  render(messages: readonly Message[], today?: CalendarDate, answer = true): string {
    const environment = new Environment();
    for (const [name, value] of [
      ...[true, false].flatMap((flag) => [
        [String(flag), flag],
        [flag ? 'True' : 'False', flag],
      ]),
      ['none', null],
      ['None', null],
      ['range', boundedRange],
      ['raise_exception', refuse],
      ['messages', messages.map(({ role, content }) => ({ role, content }))],
      ['add_generation_prompt', answer],
      ...Object.entries(this.tokens),
    ] as [string, unknown][]) {
      environment.set(name, value);
    }
    if (today !== undefined) {
      environment.set('strftime_now', (pattern: unknown) => dateText(today, String(pattern).slice(0, 100)));
    }
    try {
      const made = new BoundedInterpreter(environment, this.steps).run(this.program);
      if (typeof made.value !== 'string') throw new Error('it gives no text');
      return made.value;
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
    ({ role, content }) => `${capitalized(role)}: ${strip(content, 'strip', null)}\n\n`,
  );
  return `${turns.join('')}Assistant:`;
}

/** The library's interpreter, with a budget for what it evaluates. */
class BoundedInterpreter extends Interpreter {
  private stepsLeft: number;

  constructor(environment: Environment, steps: number) {
    super(environment);
    this.stepsLeft = steps;
  }

  override evaluate(statement: Statement | undefined, environment: Environment): Value {
    const node = statement as Node | undefined;
    if (node instanceof Known) return node.known;
    this.spend(1);
    const weighed = this.prepared(node, environment);
    if (weighed instanceof Known) return weighed.known;
    // A filter may give nothing, such as the last of no items.
    const value = super.evaluate(weighed, environment) as Value | undefined;
    if (value !== undefined) this.weigh(value);
    return value as Value;
  }

  /** The node with what it works on evaluated and weighed. */
  private prepared(node: Node | undefined, environment: Environment): Node | undefined {
    switch (node?.type) {
      case 'FilterExpression':
        return this.filter(node, environment);
      case 'CallExpression':
        return this.call(node, environment);
      case 'For':
        return this.loop(node, environment);
      default:
        return node;
    }
  }

  /** A loop costs for every turn that it may take, since an empty body evaluates nothing. */
  private loop(node: Node, environment: Environment): Node {
    const { iterable } = node;
    if (iterable === undefined) return node;
    const filtered = iterable.type === 'SelectExpression' && iterable.lhs !== undefined;
    const items = this.of(filtered ? iterable.lhs : iterable, environment);
    const held: unknown = items.value;
    const turns = Array.isArray(held) ? held.length : held instanceof Map ? held.size : 0;
    this.spend(turns * STEPS_PER_TURN);
    const known = new Known(items);
    return { ...node, iterable: filtered ? { ...iterable, lhs: known } : known };
  }

  private of(node: unknown, environment: Environment): Value {
    return this.evaluate(node as Statement, environment);
  }

  private spend(steps: number): void {
    this.stepsLeft -= steps;
    if (this.stepsLeft < 0) throw new TooMuch('it took more steps than a conversation can need');
  }

  /** The cost of going through a value once; what grew too large ends the rendering. */
  private weigh(value: Value): void {
    const held: unknown = value.value;
    if (typeof held === 'string') {
      bounded(held.length);
      this.spend(Math.floor(held.length / CHARACTERS_PER_STEP));
    } else if (Array.isArray(held)) {
      bounded(held.length);
      this.spend(Math.floor(held.length / ITEMS_PER_STEP));
    }
  }

  /** `operand | name(arguments)`, with operand and arguments evaluated once and weighed before they meet. */
  private filter(node: Node, environment: Environment): Node {
    if (node.operand === undefined || node.filter === undefined) return node;
    const operand = this.evaluate(node.operand, environment) as Value | undefined;
    if (operand === undefined) return node;
    const { filter } = node;
    const name = String((filter.callee ?? filter).value);
    const args = MEETINGS.has(name)
      ? (filter.args ?? []).map((each) => this.argument(each, environment))
      : filter.args;
    this.meet(name, operand, args ?? []);
    if (name === 'trim' && typeof operand.value === 'string' && filter.args === undefined) {
      return new Known(valueLike(operand, strip(operand.value, 'strip', null)));
    }
    const known = new Known(operand);
    const called = args === undefined || filter.args === undefined ? filter : { ...filter, args };
    return { ...node, operand: known, filter: called };
  }

  /** `object.name(arguments)`, likewise. */
  private call(node: Node, environment: Environment): Node {
    const { callee } = node;
    if (callee?.type !== 'MemberExpression' || callee.computed === true || callee.object === undefined) {
      return node;
    }
    const object = this.evaluate(callee.object, environment);
    const args = (node.args ?? []).map((each) => this.argument(each, environment));
    const name = String(callee.property?.value);
    this.meet(name, object, args);
    if (typeof object.value === 'string' && STRIPS.has(name)) {
      const [characters] = args.map(knownIn);
      const text = strip(object.value, name, typeof characters === 'string' ? characters : null);
      return new Known(valueLike(object, text));
    }
    return { ...node, callee: { ...callee, object: new Known(object) }, args };
  }

  private argument(node: Node, environment: Environment): Node {
    if (node.type === 'KeywordArgumentExpression') {
      return { ...node, value: new Known(this.of(node.value, environment)) };
    }
    if (node.argument !== undefined && node.type.endsWith('SpreadExpression')) {
      return { ...node, argument: new Known(this.evaluate(node.argument, environment)) };
    }
    return new Known(this.evaluate(node, environment));
  }

  /** Refuses what would make a long value of short ones, before it is made. */
  private meet(name: string, operand: Value, args: readonly Node[]): void {
    const given = args.map(knownIn);
    const texts = given.filter((each) => typeof each === 'string');
    const numbers = given.filter((each) => typeof each === 'number');
    const text = typeof operand.value === 'string' ? operand.value : '';
    switch (name) {
      case 'replace': {
        const [old = '', made = ''] = texts;
        const places = old === '' ? text.length + 1 : text.split(old).length - 1;
        bounded(text.length + places * made.length);
        break;
      }
      case 'join': {
        const items = Array.isArray(operand.value) ? operand.value.length : text.length;
        const separator = typeof operand.value === 'string' ? text.length : (texts[0]?.length ?? 0);
        const joined = args.reduce((sum, each) => sum + itemsIn(each), items);
        bounded(measured(operand, 0) + given.length + joined * separator);
        for (const each of args) if (each instanceof Known) measured(each.known, 0);
        break;
      }
      case 'indent':
        if (numbers.some((width) => width > MAX_INDENT)) {
          throw new TooMuch(`indent takes up to ${MAX_INDENT}`);
        }
        bounded(text.length + text.split('\n').length * Math.max(4, texts[0]?.length ?? 0, ...numbers));
        break;
      case 'tojson':
        if (numbers.some((indent) => indent < 0 || indent > 16)) {
          throw new TooMuch('tojson indents by 0 to 16');
        }
        measured(operand, 0);
        break;
      case 'string':
        measured(operand, 0);
        break;
      default:
        break;
    }
  }
}

/** A node that is evaluated already. */
class Known {
  readonly type = 'Known';
  readonly known: Value;

  constructor(known: Value) {
    this.known = known;
  }
}

function knownIn(node: Node): unknown {
  const inner = node instanceof Known ? node : node.value;
  return inner instanceof Known ? inner.known.value : undefined;
}

function itemsIn(node: Node): number {
  const held = knownIn(node);
  return Array.isArray(held) ? held.length : 0;
}

/** Characters and items of a value with all that it holds: a short list can hold one long text many times over. */
function measured(value: Value, soFar: number): number {
  let size = soFar + 1;
  const held: unknown = value.value;
  if (typeof held === 'string') size += held.length;
  else if (Array.isArray(held)) for (const each of held as Value[]) size = measured(each, size);
  else if (held instanceof Map) {
    for (const [key, each] of held as Map<string, Value>) size = measured(each, size + key.length);
  }
  bounded(size);
  return size;
}

function bounded(size: number): void {
  if (size > MAX_VALUE) throw new TooMuch(`a value grew beyond ${MAX_VALUE} characters or items`);
}

function refuse(message: unknown): never {
  throw new Raised(String(message).slice(0, 500));
}

function boundedRange(start: number, stop?: number, step = 1): number[] {
  const [low, high] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0 || !Number.isFinite(low) || !Number.isFinite(high)) {
    throw new Error('range() takes whole numbers, and a step that is not zero');
  }
  const count = Math.max(0, Math.ceil((high - low) / step));
  if (!(count <= MAX_RANGE))
    throw new TooMuch(`Range too big. The maximum size for range() is ${MAX_RANGE}.`);
  return Array.from({ length: count }, (_, at) => low + at * step);
}

const MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August'],
  ...['September', 'October', 'November', 'December'],
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** strftime in English, for the marks that a date fills; the time of day is midnight. */
function dateText({ year, month, day }: CalendarDate, pattern: string): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  const monthName = MONTHS[month - 1] ?? '';
  const dayName = DAYS[weekday(year, month, day)] ?? '';
  const marks: Readonly<Record<string, string>> = {
    ...{ Y: String(year), y: two(year % 100), m: two(month), d: two(day), e: String(day).padStart(2, ' ') },
    ...{ B: monthName, b: monthName.slice(0, 3), A: dayName, a: dayName.slice(0, 3) },
    ...{ H: '00', M: '00', S: '00', I: '12', p: 'AM', F: `${year}-${two(month)}-${two(day)}`, '%': '%' },
  };
  return pattern.replace(/%(.)/gs, (whole, mark: string) => marks[mark] ?? whole);
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

function capitalized(word: string): string {
  return word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase();
}

const STRIPS: ReadonlySet<string> = new Set(['strip', 'lstrip', 'rstrip']);
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';

/** Python's strip, lstrip and rstrip: of whitespace (null; not what JavaScript's trim takes) or of `characters`. */
function strip(text: string, name: string, characters: string | null): string {
  const set = characters === null ? SPACE : characters.replace(/[\\\]^-]/g, '\\$&');
  if (set === '') return text;
  const left = name === 'rstrip' ? text : text.replace(new RegExp(`^[${set}]+`, 'u'), '');
  if (name === 'lstrip') return left;
  // From the end by hand: a search for blanks before the end would start over at every blank inside.
  const one = new RegExp(`^[${set}]$`, 'u');
  const points = Array.from(left);
  let end = points.length;
  while (end > 0 && one.test(points[end - 1] ?? '')) end -= 1;
  return end === points.length ? left : points.slice(0, end).join('');
}

/** A value of the same class as `value`, which holds text; the library does not export its classes. */
function valueLike(value: Value, text: string): Value {
  return new (value.constructor as new (text: string) => Value)(text);
}
