/*
 * The values of chat templates: Python's, with Python's text, order and equality. Only the tab has it.
 *
 * None is null, whole numbers are JavaScript's up to 2^53, lists are arrays, dicts are maps.
 */

export type Value =
  | null
  | boolean
  | number
  | string
  | readonly Value[]
  | ReadonlyMap<Value, Value>
  | Float
  | Marked
  | Sequence
  | Iterator
  | Namespace
  | Callable
  | Undefined;

/** What a template runs into: a wrong type, a name that is not there. */
export class TemplateFailure extends Error {}

/** The template's budget is spent. */
export class TooMuch extends Error {}

export const MAX_VALUE = 2_000_000; // characters or items in one value; a prompt that long fits no model

/** A number with a fraction, also where that is 0. */
export class Float {
  readonly value: number;

  constructor(value: number) {
    if (!Number.isFinite(value)) throw new TemplateFailure('a number is too large');
    this.value = value;
  }
}

/** Text that is said to be safe HTML: other text that it is put to is escaped. */
export class Marked {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export type SequenceKind = 'tuple' | 'range' | 'dict_keys' | 'dict_values' | 'dict_items' | 'group';

/** What has a length and an order, and is no list. */
export class Sequence {
  readonly items: readonly Value[];
  readonly kind: SequenceKind;

  constructor(items: readonly Value[], kind: SequenceKind = 'tuple') {
    this.items = items;
    this.kind = kind;
  }
}

/** What can be gone through once, as filters give it. */
export class Iterator {
  private items: readonly Value[];

  constructor(items: readonly Value[]) {
    this.items = items;
  }

  take(): readonly Value[] {
    const { items } = this;
    this.items = [];
    return items;
  }
}

/** What `namespace()` gives: the one thing that a template may change. */
export class Namespace {
  readonly values: Map<string, Value>;

  constructor(values: Map<string, Value>) {
    this.values = values;
  }
}

/** What can be called. `members`: what it has beside that, such as `next` of a cycler. */
export class Callable {
  readonly name: string;
  readonly call: (positional: readonly Value[], named: ReadonlyMap<string, Value>) => Value;
  readonly members: () => ReadonlyMap<string, Value>;

  constructor(
    name: string,
    call: (positional: readonly Value[], named: ReadonlyMap<string, Value>) => Value,
    members: () => ReadonlyMap<string, Value> = () => new Map(),
  ) {
    this.name = name;
    this.call = call;
    this.members = members;
  }
}

/** What is not there: it prints as nothing, and anything else that is done with it fails. */
export class Undefined {
  readonly what: string;

  constructor(what: string) {
    this.what = what;
  }

  get failure(): TemplateFailure {
    return new TemplateFailure(`${this.what} is undefined`);
  }
}

/** `text` as HTML shows it. */
export function escaped(words: string): string {
  const marks: Readonly<Record<string, string>> = {
    ...{ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&#34;', "'": '&#39;' },
  };
  return words.replace(/[&<>"']/g, (mark) => marks[mark] ?? mark);
}

/** Texts put together; where one is marked, the others are escaped. */
export function concatenated(values: readonly Value[]): Value {
  const marked = values.some((one) => one instanceof Marked);
  const parts = values.map((one) => (marked && !(one instanceof Marked) ? escaped(text(one)) : text(one)));
  bounded(parts.reduce((sum, part) => sum + part.length, 0));
  return marked ? new Marked(parts.join('')) : parts.join('');
}

/** What was found, or `otherwise`; None is found, too, which `??` would take for nothing. */
export function orElse(found: Value | undefined, otherwise: Value): Value {
  return found === undefined ? otherwise : found;
}

/** Refuses what grew too large. */
export function bounded(size: number): void {
  if (size > MAX_VALUE) throw new TooMuch(`a value grew beyond ${MAX_VALUE} characters or items`);
}

/** Characters and items of a value with all that it holds: a short list can hold one long text many times over. */
export function measured(value: Value, soFar = 0): number {
  let size = soFar + 1;
  if (typeof value === 'string') size += value.length;
  else if (value instanceof Marked) size += value.text.length;
  else if (value instanceof Map) {
    for (const [key, held] of value as ReadonlyMap<Value, Value>) size = measured(held, measured(key, size));
  } else if (isList(value)) for (const held of value) size = measured(held, size);
  else if (value instanceof Sequence) for (const held of value.items) size = measured(held, size);
  bounded(size);
  return size;
}

/** Whether it is a list. */
export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

/** Whether it is a dict. */
export function isDict(value: Value): value is ReadonlyMap<Value, Value> {
  return value instanceof Map;
}

/** Whether it is an int, which True and False are, too. */
export function isWhole(value: Value): value is number | boolean {
  return typeof value === 'number' || typeof value === 'boolean';
}

/** The number in a value, null where it is none. True and false are 1 and 0. */
export function numberIn(value: Value): number | null {
  if (value instanceof Float) return value.value;
  return isWhole(value) ? Number(value) : null;
}

/** A whole number. Raises TooMuch where it is not exact. */
export function whole(value: number): number {
  if (!Number.isSafeInteger(value)) throw new TooMuch('a whole number grew beyond 53 bits');
  return value === 0 ? 0 : value;
}

/** The name of a type, as errors tell it. */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Float) return 'float';
  if (value instanceof Marked) return 'Markup';
  if (value instanceof Sequence) return value.kind;
  if (isList(value)) return 'list';
  if (isDict(value)) return 'dict';
  switch (typeof value) {
    case 'string':
      return 'str';
    case 'number':
      return 'int';
    case 'boolean':
      return 'bool';
    default:
      return 'object';
  }
}

/** bool(value) */
export function truth(value: Value): boolean {
  if (value instanceof Undefined || value === null) return false;
  if (typeof value === 'string') return value !== '';
  if (value instanceof Marked) return value.text !== '';
  const number = numberIn(value);
  if (number !== null) return number !== 0;
  if (isList(value)) return value.length > 0;
  if (isDict(value)) return value.size > 0;
  return value instanceof Sequence ? value.items.length > 0 : true;
}

/** The characters of a text: Unicode's, as Python counts them. */
export function points(text: string): readonly string[] {
  return /[\ud800-\udfff]/.test(text) ? Array.from(text) : text.split('');
}

/** len(value) */
export function lengthOf(value: Value): number {
  if (typeof value === 'string') return points(value).length;
  if (value instanceof Marked) return points(value.text).length;
  if (isList(value)) return value.length;
  if (isDict(value)) return value.size;
  if (value instanceof Sequence) return value.items.length;
  if (value instanceof Undefined) return 0;
  throw new TemplateFailure(`object of type '${typeName(value)}' has no len()`);
}

/** What a loop goes through. */
export function itemsOf(value: Value): readonly Value[] {
  if (isList(value)) return value;
  if (value instanceof Sequence) return value.items;
  if (value instanceof Iterator) return value.take();
  if (isDict(value)) return [...value.keys()];
  if (typeof value === 'string') return points(value);
  if (value instanceof Undefined) return [];
  throw new TemplateFailure(`'${typeName(value)}' object is not iterable`);
}

/** `left == right` */
export function equal(left: Value, right: Value): boolean {
  if (left instanceof Marked) return equal(left.text, right);
  if (right instanceof Marked) return equal(left, right.text);
  const [a, b] = [numberIn(left), numberIn(right)];
  if (a !== null || b !== null) return a === b;
  if (isList(left) || isList(right)) return isList(left) && isList(right) && allEqual(left, right);
  if (left instanceof Sequence && right instanceof Sequence) {
    const tuples = [left, right].every(({ kind }) => kind === 'tuple' || kind === 'group');
    return (tuples || left.kind === right.kind) && allEqual(left.items, right.items);
  }
  if (isDict(left) && isDict(right)) {
    if (left.size !== right.size) return false;
    for (const [key, value] of left) {
      const other = right.get(key);
      if (other === undefined || !equal(value, other)) return false;
    }
    return true;
  }
  return left === right || (left instanceof Undefined && right instanceof Undefined);
}

function allEqual(left: readonly Value[], right: readonly Value[]): boolean {
  return left.length === right.length && left.every((one, place) => equal(one, right[place] ?? null));
}

/** Below 0, 0 or above it. Raises TemplateFailure for what Python does not order. */
export function compared(left: Value, right: Value): number {
  const [a, b] = [numberIn(left), numberIn(right)];
  if (a !== null && b !== null) return a - b;
  if (typeof left === 'string' && typeof right === 'string') return comparedText(left, right);
  const [some, others] = [ordered(left), ordered(right)];
  if (some !== null && others !== null && isList(left) === isList(right)) {
    for (let place = 0; place < Math.min(some.length, others.length); place += 1) {
      const [one, other] = [some[place] ?? null, others[place] ?? null];
      if (!equal(one, other)) return compared(one, other);
    }
    return some.length - others.length;
  }
  for (const one of [left, right]) if (one instanceof Undefined) throw one.failure;
  throw new TemplateFailure(`'${typeName(left)}' and '${typeName(right)}' have no order`);
}

function ordered(value: Value): readonly Value[] | null {
  if (isList(value)) return value;
  return value instanceof Sequence && value.kind === 'tuple' ? value.items : null;
}

function comparedText(left: string, right: string): number {
  if (left === right) return 0;
  const [some, others] = [points(left), points(right)];
  for (let place = 0; place < Math.min(some.length, others.length); place += 1) {
    const by = (some[place]?.codePointAt(0) ?? 0) - (others[place]?.codePointAt(0) ?? 0);
    if (by !== 0) return by;
  }
  return some.length - others.length;
}

/** `item in container` */
export function contains(container: Value, item: Value): boolean {
  if (typeof container === 'string') {
    if (item instanceof Undefined) throw item.failure;
    if (typeof item === 'string') return container.includes(item);
    throw new TemplateFailure(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (isDict(container)) return container.has(item);
  return itemsOf(container).some((one) => equal(one, item));
}

/** str(value) */
export function text(value: Value): string {
  if (typeof value === 'string') return value;
  if (value instanceof Undefined) return '';
  if (value instanceof Marked) return value.text;
  measured(value);
  return shown(value);
}

/** repr(value) */
export function shown(value: Value): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'string') return quoted(value);
  if (typeof value === 'number') return String(value);
  if (value instanceof Float) return floatText(value.value);
  if (value instanceof Undefined) return 'Undefined';
  if (isList(value)) return `[${value.map(shown).join(', ')}]`;
  if (isDict(value))
    return `{${[...value].map(([key, held]) => `${shown(key)}: ${shown(held)}`).join(', ')}}`;
  if (value instanceof Sequence) return shownSequence(value);
  throw new TemplateFailure(`this ${value.constructor.name.toLowerCase()} has no text of its own`);
}

function shownSequence({ items, kind }: Sequence): string {
  const held = items.map(shown).join(', ');
  if (kind === 'tuple' || kind === 'group') return items.length === 1 ? `(${held},)` : `(${held})`;
  if (kind !== 'range') return `${kind}([${held}])`;
  throw new TemplateFailure('a range has no text of its own here');
}

const UNPRINTABLE = /[\p{C}\p{Z}\\]/gu;

function quoted(value: string): string {
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
  const inner = value.replace(UNPRINTABLE, (mark) => {
    if (mark === ' ') return mark;
    const known = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }[mark];
    if (known !== undefined) return known;
    const code = mark.codePointAt(0) ?? 0;
    const digits = code.toString(16);
    if (code < 0x100) return `\\x${digits.padStart(2, '0')}`;
    return code < 0x10000 ? `\\u${digits.padStart(4, '0')}` : `\\U${digits.padStart(8, '0')}`;
  });
  return quote + (quote === "'" ? inner.replaceAll("'", "\\'") : inner) + quote;
}

/** repr of a float: the shortest digits that read back as it, with an exponent outside 1e-4 to 1e16. */
export function floatText(value: number): string {
  if (Object.is(value, -0)) return '-0.0';
  const [digits = '', power = '0'] = value.toExponential().split('e');
  const exponent = Number(power);
  if (value === 0 || (exponent >= -4 && exponent < 16)) {
    const plain =
      exponent >= 0 ? String(value) : value.toFixed(digits.replace(/[-.]/g, '').length - 1 - exponent);
    return plain.includes('.') ? plain : `${plain}.0`;
  }
  const sign = exponent < 0 ? '-' : '+';
  return `${digits}e${sign}${String(Math.abs(exponent)).padStart(2, '0')}`;
}

/** How json.dumps writes. */
export interface JsonForm {
  readonly ascii: boolean;
  readonly indent: string | null;
  readonly separators: readonly [string, string];
  readonly sorted: boolean;
}

/** json.dumps(value) */
export function json(value: Value, form: JsonForm, depth = 0): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean' || typeof value === 'number') return String(value);
  if (value instanceof Float) return floatText(value.value);
  if (typeof value === 'string') return jsonText(value, form.ascii);
  if (value instanceof Marked) return jsonText(value.text, form.ascii);
  const items = isList(value)
    ? value
    : value instanceof Sequence && /tuple|group/.test(value.kind)
      ? value.items
      : null;
  if (items !== null) {
    return enclosed(
      '[',
      items.map((one) => json(one, form, depth + 1)),
      ']',
      form,
      depth,
    );
  }
  if (!isDict(value)) throw new TemplateFailure(`Object of type ${typeName(value)} is not JSON serializable`);
  const pairs = [...value];
  if (form.sorted) pairs.sort(([a], [b]) => compared(a, b));
  const held = pairs.map(([key, one]) => {
    const name = typeof key === 'string' ? key : json(key, form);
    return jsonText(name, form.ascii) + form.separators[1] + json(one, form, depth + 1);
  });
  return enclosed('{', held, '}', form, depth);
}

function enclosed(
  open: string,
  held: readonly string[],
  close: string,
  form: JsonForm,
  depth: number,
): string {
  if (held.length === 0) return open + close;
  if (form.indent === null) return open + held.join(form.separators[0]) + close;
  const line = `\n${form.indent.repeat(depth)}`;
  bounded(held.length * (line.length + form.indent.length));
  return open + line + form.indent + held.join(`${form.separators[0]}${line}${form.indent}`) + line + close;
}

function jsonText(value: string, ascii: boolean): string {
  const plain = JSON.stringify(value);
  if (!ascii) return plain;
  return plain.replace(/[\x80-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
