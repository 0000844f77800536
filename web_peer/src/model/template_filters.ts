/* Filters and tests of chat templates, as Jinja and transformers have them. Only the tab has it. */

import {
  asText,
  asWhole,
  bound,
  capitalized,
  itemsView,
  joined,
  lines,
  padded,
  percent,
  replaced,
  rounded,
  stripped,
} from './template_methods';
import {
  bounded,
  Callable,
  compared,
  contains,
  equal,
  escaped,
  Float,
  isDict,
  isList,
  isWhole,
  itemsOf,
  Iterator,
  json,
  lengthOf,
  Marked,
  measured,
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

type Named = ReadonlyMap<string, Value>;

/** What filters need of the interpreter. */
export interface Surroundings {
  /** `of[key]`, then `of.key`, as templates read it. */
  readonly item: (of: Value, key: Value) => Value;
  /** A method or another attribute, and nothing that a dict holds. */
  readonly attribute: (of: Value, name: string) => Value;
  readonly spend: (steps: number) => void;
}

type Filter = (in_: Surroundings, value: Value, positional: readonly Value[], named: Named) => Value;
type Test = (value: Value, given: readonly Value[]) => boolean;

function filter(
  name: string,
  parameters: readonly string[],
  required: number,
  of: (in_: Surroundings, value: Value, ...given: (Value | undefined)[]) => Value,
): [string, Filter] {
  return [
    name,
    (in_, value, positional, named) =>
      of(in_, value, ...bound(name, parameters, required, positional, named)),
  ];
}

/** Text as filters take it: anything, as it prints. What is marked stays so in Jinja, which is not done here. */
function soft(value: Value): string {
  if (value instanceof Marked) throw new TemplateFailure('a filter of safe text is not available here');
  return text(value);
}

function folded(value: Value): Value {
  return typeof value === 'string' ? value.toLowerCase() : value;
}

/** What `attribute='a.b'` and `attribute=0` read of a value; with none the value. */
function reader(in_: Surroundings, attribute: Value | undefined, otherwise?: Value): (value: Value) => Value {
  if (attribute === undefined || attribute === null) return (value) => value;
  const path: Value[] =
    typeof attribute === 'string'
      ? attribute.split('.').map((part) => (/^\d+$/.test(part) ? Number(part) : part))
      : [attribute];
  return (value) => {
    let found = value;
    for (const part of path) {
      found = in_.item(found, part);
      if (found instanceof Undefined && otherwise !== undefined) found = otherwise;
    }
    return found;
  };
}

/** What sort compares: a list, so that also values without an order sort where they are equal. */
function readers(in_: Surroundings, attribute: Value | undefined): (value: Value) => Value {
  const paths = typeof attribute === 'string' ? attribute.split(',') : [attribute];
  const each = paths.map((part) => reader(in_, part));
  return (value) => each.map((read) => read(value));
}

/** Sorts as Python does: equal ones keep their order, also when reversed. */
function sorted(
  values: readonly Value[],
  key: (value: Value) => Value,
  cased: boolean,
  reverse: boolean,
): readonly Value[] {
  const keyed = values.map((value) => {
    const read = key(value);
    const fold = cased ? (one: Value): Value => one : folded;
    return { value, by: isList(read) ? read.map(fold) : fold(read) };
  });
  keyed.sort((a, b) => (reverse ? compared(b.by, a.by) : compared(a.by, b.by)));
  return keyed.map(({ value }) => value);
}

function extreme(name: 'min' | 'max'): [string, Filter] {
  return filter(name, ['case_sensitive', 'attribute'], 0, (in_, value, cased = false, attribute) => {
    const values = itemsOf(value);
    if (values.length === 0) return new Undefined('No aggregated item, sequence was empty.');
    const read = reader(in_, attribute);
    const by = (one: Value): Value => (truth(cased) ? read(one) : folded(read(one)));
    return values.reduce((best, one) => {
      const order = compared(by(one), by(best));
      return (name === 'min' ? order < 0 : order > 0) ? one : best;
    });
  });
}

function chooser(name: string, keep: boolean, byAttribute: boolean): [string, Filter] {
  return [
    name,
    (in_, value, positional, named) => {
      if (named.size > 0) throw new TemplateFailure(`${name}() takes no keyword arguments here`);
      const read = byAttribute ? reader(in_, positional[0]) : (one: Value): Value => one;
      if (byAttribute && positional[0] === undefined)
        throw new TemplateFailure('Missing parameter for attribute name');
      const [test, ...given] = positional.slice(byAttribute ? 1 : 0);
      const check = test === undefined ? truth : testOf(asText(test, 'a test'), given);
      return new Iterator(itemsOf(value).filter((one) => check(read(one)) === keep));
    },
  ];
}

function testOf(name: string, given: readonly Value[]): (value: Value) => boolean {
  const test = TESTS.get(name);
  if (test === undefined) throw new TemplateFailure(`No test named '${name}'.`);
  return (value) => test(value, given);
}

function numbered(value: Value, otherwise: Value): Value {
  const number = numberIn(value);
  if (number !== null) return whole(Math.trunc(number));
  if (typeof value === 'string') {
    const plain = stripped(value, 'strip', null);
    if (/^[-+]?\d+(?:_\d+)*$/.test(plain)) return whole(Number(plain.replaceAll('_', '')));
    const real = realIn(plain);
    if (real !== null) return whole(Math.trunc(real));
  }
  return otherwise;
}

function realIn(plain: string): number | null {
  return /^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i.test(plain) ? Number(plain) : null;
}

function chunks(values: readonly Value[], size: number, fill: Value | undefined): Value {
  if (size < 1) throw new TemplateFailure('a batch has at least one item');
  const found: Value[][] = [];
  for (let at = 0; at < values.length; at += size) found.push(values.slice(at, at + size));
  const last = found.at(-1);
  if (last !== undefined && fill !== undefined && fill !== null) {
    bounded(size);
    while (last.length < size) last.push(fill);
  }
  return new Iterator(found);
}

function slices(values: readonly Value[], count: number, fill: Value | undefined): Value {
  if (count < 1) throw new TemplateFailure('there is at least one slice');
  bounded(count);
  const size = Math.floor(values.length / count);
  const longer = values.length % count;
  let from = 0;
  const found = Array.from({ length: count }, (_, number) => {
    const to = from + size + (number < longer ? 1 : 0);
    const slice = values.slice(from, to);
    if (fill !== undefined && fill !== null && number >= longer) slice.push(fill);
    from = to;
    return slice;
  });
  return new Iterator(found);
}

function indented(value: string, width: Value, first: boolean, blank: boolean): string {
  const margin =
    typeof width === 'string' ? width : ' '.repeat(Math.max(0, Math.min(asWhole(width, 'width'), 1_000)));
  const all = lines(`${value}\n`);
  bounded(value.length + (all.length + 1) * margin.length);
  const made = all.map((line, at) => (at > 0 && (blank || line !== '') ? margin + line : line)).join('\n');
  return first ? margin + made : made;
}

function shortened(value: string, given: readonly (Value | undefined)[]): string {
  const [length = 255, kill = false, end = '...', leeway = 5] = given;
  const characters = points(value);
  const [most, mark] = [asWhole(length, 'length'), asText(end, 'end')];
  const size = points(mark).length;
  if (most < size || (leeway !== null && asWhole(leeway, 'leeway') < 0)) {
    throw new TemplateFailure(`expected length >= ${size}, got ${most}`);
  }
  if (characters.length <= most + (leeway === null ? 5 : asWhole(leeway, 'leeway'))) return value;
  const kept = characters.slice(0, most - size).join('');
  if (truth(kill)) return kept + mark;
  const space = kept.lastIndexOf(' ');
  return (space < 0 ? kept : kept.slice(0, space)) + mark;
}

function toJson(value: Value, given: readonly (Value | undefined)[]): string {
  const [ascii = false, indent = null, separators = null, sort = false] = given;
  if (indent !== null && !isWhole(indent)) throw new TemplateFailure('tojson indents by a number');
  if (indent !== null && (Number(indent) < 0 || Number(indent) > 16))
    throw new TooMuch('tojson indents by 0 to 16');
  measured(value);
  const marks = separators === null ? null : itemsOf(separators).map((one) => asText(one, 'a separator'));
  const [item = indent === null ? ', ' : ',', key = ': '] = marks ?? [];
  if (marks !== null && marks.length !== 2) throw new TemplateFailure('tojson has two separators');
  const made = json(value, {
    ascii: truth(ascii),
    indent: indent === null ? null : ' '.repeat(Number(indent)),
    separators: [item, key],
    sorted: truth(sort),
  });
  bounded(made.length);
  return made;
}

function roundedBy(value: Value, precision: Value, method: Value): Value {
  const number = numberIn(value);
  if (number === null) throw new TemplateFailure(`a ${typeName(value)} has no rounding`);
  const places = asWhole(precision, 'precision');
  if (places < 0 || places > 15) throw new TemplateFailure('round has a precision of 0 to 15 here');
  const scale = 10 ** places;
  if (method === 'ceil') return new Float(Math.ceil(number * scale) / scale);
  if (method === 'floor') return new Float(Math.floor(number * scale) / scale);
  if (method !== 'common') throw new TemplateFailure('method must be common, ceil or floor');
  if (isWhole(value)) return Number(value);
  return new Float(Math.abs(number) >= 2 ** 53 ? number : Number(rounded(number, places)));
}

export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  filter('abs', [], 0, (_, value) => {
    const number = numberIn(value);
    if (number === null) throw new TemplateFailure(`bad operand type for abs(): '${typeName(value)}'`);
    return value instanceof Float ? new Float(Math.abs(number)) : Math.abs(number);
  }),
  filter('attr', ['name'], 1, (in_, value, name) => in_.attribute(value, asText(name, 'name'))),
  filter('batch', ['linecount', 'fill_with'], 1, (_, value, size, fill) =>
    chunks(itemsOf(value), asWhole(size, 'linecount'), fill),
  ),
  filter('capitalize', [], 0, (_, value) => capitalized(soft(value))),
  filter('center', ['width'], 0, (_, value, width = 80) =>
    padded(soft(value), asWhole(width, 'width'), ' ', 'both'),
  ),
  filter('count', [], 0, (_, value) => lengthOf(value)),
  ...(['d', 'default'] as const).map((name) =>
    filter(name, ['default_value', 'boolean'], 0, (_, value, otherwise = '', falsy = false) =>
      value instanceof Undefined || (truth(falsy) && !truth(value)) ? otherwise : value,
    ),
  ),
  filter(
    'dictsort',
    ['case_sensitive', 'by', 'reverse'],
    0,
    (_, value, cased = false, by = 'key', reverse = false) => {
      if (!isDict(value)) throw new TemplateFailure(`a ${typeName(value)} has no items`);
      if (by !== 'key' && by !== 'value')
        throw new TemplateFailure("You can only sort by either 'key' or 'value'");
      const key = (pair: Value): Value => itemsOf(pair)[by === 'key' ? 0 : 1] ?? null;
      return sorted(itemsView(value).items, key, truth(cased), truth(reverse));
    },
  ),
  ...(['e', 'escape', 'forceescape'] as const).map((name) =>
    filter(
      name,
      [],
      0,
      (_, value) =>
        new Marked(value instanceof Marked && name !== 'forceescape' ? value.text : escaped(text(value))),
    ),
  ),
  filter('first', [], 0, (_, value) =>
    orElse(itemsOf(value)[0], new Undefined('No first item, sequence was empty.')),
  ),
  filter('float', ['default'], 0, (_, value, otherwise = new Float(0)) => {
    const number = typeof value === 'string' ? realIn(stripped(value, 'strip', null)) : numberIn(value);
    return number === null ? otherwise : new Float(number);
  }),
  [
    'format',
    (_, value, positional, named) => {
      if (named.size > 0) throw new TemplateFailure('format by names is not available');
      return percent(soft(value), new Sequence(positional));
    },
  ],
  filter(
    'groupby',
    ['attribute', 'default', 'case_sensitive'],
    1,
    (in_, value, attribute, otherwise, cased = false) => {
      const read = reader(in_, attribute, otherwise);
      const key = (one: Value): Value => (truth(cased) ? read(one) : folded(read(one)));
      const groups: { by: Value; held: Value[] }[] = [];
      for (const one of sorted(itemsOf(value), read, truth(cased), false)) {
        const last = groups.at(-1);
        if (last !== undefined && equal(last.by, key(one))) last.held.push(one);
        else groups.push({ by: key(one), held: [one] });
      }
      return groups.map(({ held }) => new Sequence([read(held[0] ?? null), held], 'group'));
    },
  ),
  filter('indent', ['width', 'first', 'blank'], 0, (_, value, width = 4, first = false, blank = false) =>
    indented(soft(value), width, truth(first), truth(blank)),
  ),
  filter('int', ['default'], 0, (_, value, otherwise = 0) => numbered(value, otherwise)),
  filter('items', [], 0, (_, value) => {
    if (value instanceof Undefined) return new Iterator([]);
    if (!isDict(value)) throw new TemplateFailure('Can only get item pairs from a mapping.');
    return new Iterator(itemsView(value).items);
  }),
  filter('join', ['d', 'attribute'], 0, (in_, value, separator = '', attribute) =>
    joined(soft(separator), itemsOf(value).map(reader(in_, attribute)), text),
  ),
  filter('last', [], 0, (_, value) =>
    orElse(itemsOf(value).at(-1), new Undefined('No last item, sequence was empty.')),
  ),
  filter('length', [], 0, (_, value) => lengthOf(value)),
  filter('list', [], 0, (_, value) => itemsOf(value)),
  filter('lower', [], 0, (_, value) => soft(value).toLowerCase()),
  [
    'map',
    (in_, value, positional, named) => {
      const values = itemsOf(value);
      if (positional.length === 0 && named.has('attribute')) {
        const [attribute, otherwise] = bound('map', ['attribute', 'default'], 1, [], named);
        return new Iterator(values.map(reader(in_, attribute, otherwise)));
      }
      const [name, ...given] = positional;
      const applied = FILTERS.get(asText(name, 'a filter'));
      if (applied === undefined) throw new TemplateFailure(`No filter named '${text(name ?? null)}'.`);
      return new Iterator(values.map((one) => applied(in_, one, given, named)));
    },
  ],
  extreme('max'),
  extreme('min'),
  chooser('reject', false, false),
  chooser('rejectattr', false, true),
  filter('replace', ['old', 'new', 'count'], 2, (_, value, old, made, count) =>
    replaced(
      soft(value),
      soft(old ?? null),
      soft(made ?? null),
      count === undefined || count === null ? -1 : asWhole(count, 'count'),
    ),
  ),
  filter('reverse', [], 0, (_, value) =>
    typeof value === 'string'
      ? [...points(value)].reverse().join('')
      : new Iterator([...itemsOf(value)].reverse()),
  ),
  filter('round', ['precision', 'method'], 0, (_, value, precision = 0, method = 'common') =>
    roundedBy(value, precision, method),
  ),
  filter('safe', [], 0, (_, value) => new Marked(text(value))),
  chooser('select', true, false),
  chooser('selectattr', true, true),
  filter('slice', ['slices', 'fill_with'], 1, (_, value, count, fill) =>
    slices(itemsOf(value), asWhole(count, 'slices'), fill),
  ),
  filter(
    'sort',
    ['reverse', 'case_sensitive', 'attribute'],
    0,
    (in_, value, reverse = false, cased = false, attribute) =>
      sorted(itemsOf(value), readers(in_, attribute), truth(cased), truth(reverse)),
  ),
  filter('string', [], 0, (_, value) => (value instanceof Marked ? value : soft(value))),
  filter('sum', ['attribute', 'start'], 0, (in_, value, attribute, start = 0) => {
    let total = numberIn(start);
    let real = start instanceof Float;
    for (const one of itemsOf(value).map(reader(in_, attribute))) {
      const number = numberIn(one);
      if (number === null || total === null) throw new TemplateFailure('sum adds numbers');
      total += number;
      real ||= one instanceof Float;
    }
    if (total === null) throw new TemplateFailure('sum adds numbers');
    return real ? new Float(total) : whole(total);
  }),
  filter('title', [], 0, (_, value) =>
    soft(value)
      .split(/([-\s({[<]+)/u)
      .filter((part) => part !== '')
      .map(capitalized)
      .join(''),
  ),
  filter('tojson', ['ensure_ascii', 'indent', 'separators', 'sort_keys'], 0, (_, value, ...given) =>
    toJson(value, given),
  ),
  filter('trim', ['chars'], 0, (_, value, characters = null) =>
    stripped(soft(value), 'strip', characters === null ? null : asText(characters, 'chars')),
  ),
  filter('truncate', ['length', 'killwords', 'end', 'leeway'], 0, (_, value, ...given) =>
    shortened(soft(value), given),
  ),
  filter('unique', ['case_sensitive', 'attribute'], 0, (in_, value, cased = false, attribute) => {
    const read = reader(in_, attribute);
    const seen: Value[] = [];
    return new Iterator(
      itemsOf(value).filter((one) => {
        const key = truth(cased) ? read(one) : folded(read(one));
        in_.spend(1 + seen.length / 8);
        if (seen.some((known) => equal(known, key))) return false;
        seen.push(key);
        return true;
      }),
    );
  }),
  filter('upper', [], 0, (_, value) => soft(value).toUpperCase()),
  filter('wordcount', [], 0, (_, value) => soft(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0),
]);

function test(name: string, count: number, of: (value: Value, ...given: Value[]) => boolean): [string, Test] {
  return [
    name,
    (value, given) => {
      if (given.length !== count) throw new TemplateFailure(`the test ${name} takes ${count} arguments`);
      return of(value, ...given);
    },
  ];
}

function remainder(value: Value, by: number): number {
  const number = numberIn(value);
  if (number === null || by === 0) throw new TemplateFailure('it is no number that can be divided');
  return number % by;
}

const NOTHING: Value = null;

export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  test('boolean', 0, (value) => typeof value === 'boolean'),
  test('callable', 0, (value) => value instanceof Callable || value instanceof Undefined),
  test('defined', 0, (value) => !(value instanceof Undefined)),
  test('divisibleby', 1, (value, by = NOTHING) => remainder(value, numberIn(by) ?? 0) === 0),
  ...['eq', 'equalto'].map((name) => test(name, 1, (value, other = NOTHING) => equal(value, other))),
  test('even', 0, (value) => remainder(value, 2) === 0),
  test('false', 0, (value) => value === false),
  test('float', 0, (value) => value instanceof Float),
  test('ge', 1, (value, other = NOTHING) => compared(value, other) >= 0),
  ...['gt', 'greaterthan'].map((name) =>
    test(name, 1, (value, other = NOTHING) => compared(value, other) > 0),
  ),
  test('in', 1, (value, container = NOTHING) => contains(container, value)),
  test('integer', 0, (value) => typeof value === 'number'),
  test('iterable', 0, (value) => {
    if (typeof value === 'string' || isList(value) || isDict(value) || value instanceof Undefined)
      return true;
    return value instanceof Sequence || value instanceof Iterator;
  }),
  test('le', 1, (value, other = NOTHING) => compared(value, other) <= 0),
  test('lower', 0, (value) => /\p{Cased}/u.test(text(value)) && !/[\p{Lu}\p{Lt}]/u.test(text(value))),
  ...['lt', 'lessthan'].map((name) => test(name, 1, (value, other = NOTHING) => compared(value, other) < 0)),
  test('mapping', 0, (value) => isDict(value)),
  test('ne', 1, (value, other = NOTHING) => !equal(value, other)),
  test('none', 0, (value) => value === null),
  test('number', 0, (value) => numberIn(value) !== null),
  test('odd', 0, (value) => Math.abs(remainder(value, 2)) === 1),
  test('sameas', 1, (value, other = NOTHING) => value === other),
  test('sequence', 0, (value) => {
    if (value instanceof Sequence) return ['tuple', 'range', 'group'].includes(value.kind);
    // Undefined has a length and items in Jinja's eyes, too.
    return typeof value === 'string' || isList(value) || isDict(value) || value instanceof Undefined;
  }),
  test('string', 0, (value) => typeof value === 'string' || value instanceof Marked),
  test('true', 0, (value) => value === true),
  test('undefined', 0, (value) => value instanceof Undefined),
  test('upper', 0, (value) => /\p{Cased}/u.test(text(value)) && !/[\p{Ll}\p{Lt}]/u.test(text(value))),
]);
