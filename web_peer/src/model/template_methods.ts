/* Methods of text, lists and dicts in chat templates, as Python has them. Only the tab has it. */

import {
  bounded,
  Callable,
  equal,
  Float,
  floatText,
  isDict,
  isList,
  isWhole,
  itemsOf,
  measured,
  numberIn,
  orElse,
  points,
  Sequence,
  shown,
  TemplateFailure,
  text,
  typeName,
  Undefined,
  type Value,
  whole,
} from './template_values';

type Named = ReadonlyMap<string, Value>;

/** Arguments by the names of their parameters; those after `required` may be left out, and are undefined then. */
export function bound(
  name: string,
  parameters: readonly string[],
  required: number,
  positional: readonly Value[],
  named: Named,
): (Value | undefined)[] {
  if (positional.length > parameters.length) {
    throw new TemplateFailure(`${name}() takes up to ${parameters.length} arguments`);
  }
  const found: (Value | undefined)[] = parameters.map((_, place) => positional[place]);
  for (const [key, value] of named) {
    const place = parameters.indexOf(key);
    if (place < 0 || found[place] !== undefined) {
      throw new TemplateFailure(`${name}() got an unexpected keyword argument '${key}'`);
    }
    found[place] = value;
  }
  for (let place = 0; place < required; place += 1) {
    if (found[place] === undefined) {
      throw new TemplateFailure(`${name}() missing argument '${parameters[place] ?? ''}'`);
    }
  }
  return found;
}

/** A text. Raises TemplateFailure, also for nothing. */
export function asText(value: Value | undefined, name: string): string {
  if (typeof value === 'string') return value;
  if (value instanceof Undefined) throw value.failure;
  throw new TemplateFailure(`${name} must be str, not ${typeName(value ?? null)}`);
}

/** A whole number. Raises TemplateFailure, also for nothing. */
export function asWhole(value: Value | undefined, name: string): number {
  if (value !== undefined && isWhole(value)) return Number(value);
  if (value instanceof Undefined) throw value.failure;
  throw new TemplateFailure(`${name} must be int, not ${typeName(value ?? null)}`);
}

type Method = (self: string, positional: readonly Value[], named: Named) => Value;

const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const WORDS = new RegExp(`[^${SPACE}]+`, 'gu');
const LINES = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;

/** The methods of text whose arguments may be given by name; the others take them by their place alone. */
const BY_NAME: ReadonlySet<string> = new Set(['split', 'rsplit', 'splitlines']);

function none(name: string, of: (self: string) => Value): [string, Method] {
  return [
    name,
    (self, positional, named) => {
      bound(name, [], 0, positional, named);
      return of(self);
    },
  ];
}

function plain(
  name: string,
  parameters: readonly string[],
  required: number,
  of: (self: string, ...given: (Value | undefined)[]) => Value,
): [string, Method] {
  return [
    name,
    (self, positional, named) => {
      if (named.size > 0 && !BY_NAME.has(name))
        throw new TemplateFailure(`${name}() takes no keyword arguments`);
      return of(self, ...bound(name, parameters, required, positional, named));
    },
  ];
}

/** str.strip() and its like: of white space (null; not what JavaScript's trim takes) or of `characters`. */
export function stripped(
  self: string,
  side: 'strip' | 'lstrip' | 'rstrip',
  characters: string | null,
): string {
  const set = characters === null ? SPACE : characters.replace(/[\\\]^-]/g, '\\$&');
  if (set === '') return self;
  const left = side === 'rstrip' ? self : self.replace(new RegExp(`^[${set}]+`, 'u'), '');
  if (side === 'lstrip') return left;
  // From the end by hand: a search for blanks before the end would start over at every blank inside.
  const one = new RegExp(`^[${set}]$`, 'u');
  const kept = points(left);
  let end = kept.length;
  while (end > 0 && one.test(kept[end - 1] ?? '')) end -= 1;
  return end === kept.length ? left : kept.slice(0, end).join('');
}

function strip(side: 'strip' | 'lstrip' | 'rstrip'): [string, Method] {
  return plain(side, ['chars'], 0, (self, characters) =>
    stripped(
      self,
      side,
      characters === undefined || characters === null ? null : asText(characters, 'chars'),
    ),
  );
}

/** str.capitalize() */
export function capitalized(self: string): string {
  const [first = '', ...rest] = points(self);
  return first.toUpperCase() + rest.join('').toLowerCase();
}

function titled(self: string): string {
  return self.replace(/\p{Cased}+/gu, capitalized);
}

/** str.replace(), bounded before it is made; `count` below 0: everywhere. */
export function replaced(self: string, old: string, made: string, count: number): string {
  const places = old === '' ? points(self).length + 1 : self.split(old).length - 1;
  const times = count < 0 ? places : Math.min(count, places);
  bounded(self.length + times * made.length);
  if (old === '') {
    const characters = points(self);
    return (
      characters.map((one, at) => (at < times ? made + one : one)).join('') +
      (times > characters.length ? made : '')
    );
  }
  const parts = self.split(old);
  return (
    parts.slice(0, times + 1).join(made) +
    parts
      .slice(times + 1)
      .map((part) => old + part)
      .join('')
  );
}

/** str.join() of what `of` makes of the values, bounded. */
export function joined(separator: string, values: readonly Value[], of: (value: Value) => string): string {
  const parts: string[] = [];
  let size = 0;
  for (const value of values) {
    const part = of(value);
    size += part.length + separator.length;
    bounded(size);
    parts.push(part);
  }
  return parts.join(separator);
}

function split(self: string, separator: Value | undefined, most: Value | undefined, right: boolean): Value {
  const times = most === undefined ? -1 : asWhole(most, 'maxsplit');
  if (separator === undefined || separator === null) {
    const words = [...self.matchAll(WORDS)];
    if (times < 0 || words.length <= times) return words.map(([word]) => word);
    if (right) {
      const kept = words.slice(words.length - times).map(([word]) => word);
      const before = words[words.length - times - 1];
      const end = before === undefined ? 0 : before.index + before[0].length;
      return [self.slice(0, end), ...kept];
    }
    const rest = words[times];
    return [...words.slice(0, times).map(([word]) => word), self.slice(rest?.index)];
  }
  const mark = asText(separator, 'sep');
  if (mark === '') throw new TemplateFailure('empty separator');
  const parts = self.split(mark);
  if (times < 0 || parts.length <= times + 1) return parts;
  if (right) {
    const cut = parts.length - times;
    return [parts.slice(0, cut).join(mark), ...parts.slice(cut)];
  }
  return [...parts.slice(0, times), parts.slice(times).join(mark)];
}

function partition(self: string, separator: Value | undefined, right: boolean): Value {
  const mark = asText(separator, 'sep');
  if (mark === '') throw new TemplateFailure('empty separator');
  const at = right ? self.lastIndexOf(mark) : self.indexOf(mark);
  if (at < 0) return new Sequence(right ? ['', '', self] : [self, '', '']);
  return new Sequence([self.slice(0, at), mark, self.slice(at + mark.length)]);
}

/** Where text is looked for: from `start` to `end`, in characters. */
function within(self: string, start: Value | undefined, end: Value | undefined): [string, number] | null {
  const characters = points(self);
  const size = characters.length;
  const place = (value: Value | undefined, otherwise: number): number => {
    if (value === undefined || value === null) return otherwise;
    const given = asWhole(value, 'an index');
    return given < 0 ? Math.max(0, given + size) : given;
  };
  const [from, to] = [place(start, 0), Math.min(place(end, size), size)];
  return from > to || from > size ? null : [characters.slice(from, to).join(''), from];
}

function find(name: string, right: boolean, fails: boolean): [string, Method] {
  return plain(name, ['sub', 'start', 'end'], 1, (self, sub, start, end) => {
    const found = within(self, start, end);
    const wanted = asText(sub, 'sub');
    const at = found === null ? -1 : right ? found[0].lastIndexOf(wanted) : found[0].indexOf(wanted);
    if (found === null || at < 0) {
      if (fails) throw new TemplateFailure('substring not found');
      return -1;
    }
    return found[1] + points(found[0].slice(0, at)).length;
  });
}

function edge(name: 'startswith' | 'endswith'): [string, Method] {
  return plain(name, ['prefix', 'start', 'end'], 1, (self, wanted, start, end) => {
    const found = within(self, start, end);
    const any = wanted instanceof Sequence && wanted.kind === 'tuple' ? wanted.items : [wanted];
    return any.some((one) => {
      const part = asText(one, name);
      return found !== null && (name === 'startswith' ? found[0].startsWith(part) : found[0].endsWith(part));
    });
  });
}

/** str.ljust(), rjust() and center(), bounded. */
export function padded(self: string, width: number, fill: string, side: 'left' | 'right' | 'both'): string {
  const missing = width - points(self).length;
  if (missing <= 0) return self;
  bounded(width);
  // As CPython: the odd blank of centered text stands left when the width is odd, too.
  const left =
    side === 'left' ? missing : side === 'right' ? 0 : Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(left) + self + fill.repeat(missing - left);
}

function pad(name: string, side: 'left' | 'right' | 'both'): [string, Method] {
  return plain(name, ['width', 'fillchar'], 1, (self, width, fill) => {
    const mark = fill === undefined ? ' ' : asText(fill, 'fillchar');
    if (points(mark).length !== 1)
      throw new TemplateFailure('The fill character must be exactly one character long');
    return padded(self, asWhole(width, 'width'), mark, side);
  });
}

function all(name: string, pattern: RegExp): [string, Method] {
  return none(name, (self) => pattern.test(self));
}

export const TEXT_METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  none('upper', (self) => self.toUpperCase()),
  none('lower', (self) => self.toLowerCase()),
  none('title', titled),
  none('capitalize', capitalized),
  strip('strip'),
  strip('lstrip'),
  strip('rstrip'),
  plain('split', ['sep', 'maxsplit'], 0, (self, sep, most) => split(self, sep, most, false)),
  plain('rsplit', ['sep', 'maxsplit'], 0, (self, sep, most) => split(self, sep, most, true)),
  plain('splitlines', ['keepends'], 0, (self, keep) => {
    if (keep === true) throw new TemplateFailure('splitlines(true) is not available here');
    return lines(self);
  }),
  plain('partition', ['sep'], 1, (self, sep) => partition(self, sep, false)),
  plain('rpartition', ['sep'], 1, (self, sep) => partition(self, sep, true)),
  plain('replace', ['old', 'new', 'count'], 2, (self, old, made, count) =>
    replaced(
      self,
      asText(old, 'old'),
      asText(made, 'new'),
      count === undefined ? -1 : asWhole(count, 'count'),
    ),
  ),
  plain('join', ['iterable'], 1, (self, values) =>
    joined(self, itemsOf(values ?? null), (one) => asText(one, 'sequence item')),
  ),
  edge('startswith'),
  edge('endswith'),
  find('find', false, false),
  find('rfind', true, false),
  find('index', false, true),
  find('rindex', true, true),
  plain('count', ['sub'], 1, (self, sub) => {
    const wanted = asText(sub, 'sub');
    return wanted === '' ? points(self).length + 1 : self.split(wanted).length - 1;
  }),
  plain('removeprefix', ['prefix'], 1, (self, prefix) => {
    const wanted = asText(prefix, 'prefix');
    return self.startsWith(wanted) ? self.slice(wanted.length) : self;
  }),
  plain('removesuffix', ['suffix'], 1, (self, suffix) => {
    const wanted = asText(suffix, 'suffix');
    return wanted !== '' && self.endsWith(wanted) ? self.slice(0, -wanted.length) : self;
  }),
  pad('ljust', 'right'),
  pad('rjust', 'left'),
  pad('center', 'both'),
  plain('zfill', ['width'], 1, (self, width) => {
    const sign = /^[-+]/.exec(self)?.[0] ?? '';
    return sign + padded(self.slice(sign.length), asWhole(width, 'width') - sign.length, '0', 'left');
  }),
  all('isdigit', /^[\p{Nd}²³¹⁰⁴-⁹₀-₉]+$/u),
  all('isdecimal', /^\p{Nd}+$/u),
  all('isnumeric', /^\p{N}+$/u),
  all('isalpha', /^\p{L}+$/u),
  all('isalnum', /^[\p{L}\p{N}]+$/u),
  all('isspace', new RegExp(`^[${SPACE}]+$`, 'u')),
  none('isupper', (self) => /\p{Cased}/u.test(self) && !/[\p{Ll}\p{Lt}]/u.test(self)),
  none('islower', (self) => /\p{Cased}/u.test(self) && !/[\p{Lu}\p{Lt}]/u.test(self)),
  ['format', formatted],
]);

/** Everything that Python's str has: a name that is not among TEXT_METHODS is refused, not undefined. */
export const ALL_TEXT_METHODS: ReadonlySet<string> = new Set([
  ...TEXT_METHODS.keys(),
  ...['casefold', 'encode', 'expandtabs', 'format_map', 'isascii', 'isidentifier', 'isprintable', 'istitle'],
  ...['maketrans', 'swapcase', 'translate'],
]);

/** str.splitlines() */
export function lines(self: string): string[] {
  const found = self.split(LINES);
  if (found.at(-1) === '') found.pop();
  return found;
}

const FIELD = /\{\{|\}\}|\{([^{}!:]*)(?:!([rs]))?(?::([^{}]*))?\}|[{}]/g;
const SPEC = /^(?:([^{}])?([<>^]))?(0?)(\d{0,3})(?:\.(\d{1,2}))?([sdf]?)$/u;

/** str.format(): fields by place or by name, `!r` and `!s`, and the specs of SPEC. */
function formatted(self: string, positional: readonly Value[], named: Named): string {
  let automatic = 0;
  let size = self.length;
  return self.replace(FIELD, (whole_: string, name?: string, conversion?: string, spec?: string) => {
    if (whole_ === '{{' || whole_ === '}}') return whole_[0] ?? '';
    if (name === undefined) throw new TemplateFailure("Single '{' or '}' encountered in format string");
    if (name !== '' && !/^(?:\d{1,3}|[\p{L}_][\p{L}\p{N}_]*)$/u.test(name)) {
      throw new TemplateFailure('fields of format with members are not available');
    }
    const value =
      name === '' || /^\d/.test(name)
        ? positional[name === '' ? automatic++ : Number(name)]
        : named.get(name);
    if (value === undefined) throw new TemplateFailure(`format() lacks an argument for '{${name}}'`);
    measured(value);
    const made = shaped(
      conversion === 'r' ? shown(value) : conversion === 's' ? text(value) : value,
      spec ?? '',
    );
    size += made.length;
    bounded(size);
    return made;
  });
}

/** format(value, spec) */
function shaped(value: Value, spec: string): string {
  if (spec === '') return text(value);
  const found = SPEC.exec(spec);
  if (found === null) throw new TemplateFailure(`the format spec '${spec}' is not available`);
  const [, fill, align, zero, width, precision, kind] = found;
  const number = numberIn(value);
  let made: string;
  if (typeof value === 'string' && (kind === 's' || kind === '') && zero === '') {
    made = precision === undefined ? value : points(value).slice(0, Number(precision)).join('');
  } else if (number !== null && typeof value !== 'boolean' && kind === 'f') {
    made = rounded(number, Number(precision ?? 6));
  } else if (typeof value === 'number' && kind !== 's' && precision === undefined) made = String(value);
  else if (value instanceof Float && kind === '' && precision === undefined) made = floatText(value.value);
  else throw new TemplateFailure(`the format spec '${spec}' is not available for ${typeName(value)}`);
  const side = align ?? (number === null ? '<' : '>');
  const missing = Math.max(0, Number(width ?? 0) - points(made).length);
  const mark = fill ?? (zero === '' ? ' ' : '0');
  if (zero !== '' && align === undefined && made.startsWith('-'))
    return `-${'0'.repeat(missing)}${made.slice(1)}`;
  const left = side === '>' ? missing : side === '<' ? 0 : Math.floor(missing / 2);
  return mark.repeat(left) + made + mark.repeat(missing - left);
}

/** With `places` digits after the point; halves go to the even digit, as in Python. */
export function rounded(value: number, places: number): string {
  const made = value.toFixed(places);
  const scaled = Math.abs(value) * 10 ** places;
  const half =
    scaled - Math.floor(scaled) === 0.5 && scaled < 2 ** 40 && scaled / 10 ** places === Math.abs(value);
  const exact = half && Number.isInteger(value * 2 ** 20) && Math.floor(scaled) % 2 === 0;
  if (!exact) return made;
  return ((Math.sign(value) * Math.floor(scaled)) / 10 ** places).toFixed(places);
}

const PERCENT = /%(?:%|(-?)(0?)(\d{0,3})(?:\.(\d{1,2}))?([sdifr])|(.)|$)/gsu;

/** `text % values`: %s, %r, %d, %i and %f, with width and precision. */
export function percent(self: string, given: Value): string {
  const values = given instanceof Sequence && given.kind === 'tuple' ? given.items : [given];
  let next = 0;
  let size = self.length;
  const made = self.replace(
    PERCENT,
    (whole_: string, minus?: string, zero?: string, width?: string, precision?: string, kind?: string) => {
      if (whole_ === '%%') return '%';
      if (kind === undefined) throw new TemplateFailure(`'${whole_}' is not available`);
      const value = values[next];
      next += 1;
      if (value === undefined) throw new TemplateFailure('not enough arguments for format string');
      measured(value);
      const number = numberIn(value);
      let one: string;
      if (kind === 's' || kind === 'r') {
        if (zero !== '') throw new TemplateFailure(`'${whole_}' is not available`);
        one = kind === 's' ? text(value) : shown(value);
        if (precision !== undefined) one = points(one).slice(0, Number(precision)).join('');
      } else if (number === null || (precision !== undefined && kind !== 'f')) {
        throw new TemplateFailure(`%${kind} format: a number is required, not ${typeName(value)}`);
      } else one = kind === 'f' ? rounded(number, Number(precision ?? 6)) : String(whole(Math.trunc(number)));
      const missing = Math.max(0, Number(width ?? 0) - points(one).length);
      if (minus === '-') one += ' '.repeat(missing);
      else if (zero === '') one = ' '.repeat(missing) + one;
      else one = one.startsWith('-') ? `-${'0'.repeat(missing)}${one.slice(1)}` : '0'.repeat(missing) + one;
      size += one.length;
      bounded(size);
      return one;
    },
  );
  // As in Python, a list or a dict may be left over.
  if (next < values.length && !isDict(given) && !isList(given)) {
    throw new TemplateFailure('not all arguments converted during string formatting');
  }
  return made;
}

/** What changes a list or a dict, which a template may not. */
export const CHANGING: ReadonlySet<string> = new Set([
  ...[
    'append',
    'clear',
    'extend',
    'insert',
    'pop',
    'popitem',
    'remove',
    'reverse',
    'setdefault',
    'sort',
    'update',
  ],
]);

/** Names that Python's dict has as attributes, and that therefore are never read from what it holds by a dot. */
export const DICT_METHODS: ReadonlySet<string> = new Set([
  ...[
    'clear',
    'copy',
    'fromkeys',
    'get',
    'items',
    'keys',
    'pop',
    'popitem',
    'setdefault',
    'update',
    'values',
  ],
]);

/** A method of a dict, a list or another sequence; null where there is none of that name. */
export function methodOf(self: Value, name: string): Callable | null {
  const made = (
    parameters: readonly string[],
    required: number,
    of: (...given: (Value | undefined)[]) => Value,
  ) => new Callable(name, (positional, named) => of(...bound(name, parameters, required, positional, named)));
  if (isDict(self)) {
    switch (name) {
      case 'get':
        return made(['key', 'default'], 1, (key, otherwise) =>
          orElse(self.get(key ?? null), otherwise ?? null),
        );
      case 'keys':
        return made([], 0, () => new Sequence([...self.keys()], 'dict_keys'));
      case 'values':
        return made([], 0, () => new Sequence([...self.values()], 'dict_values'));
      case 'items':
        return made([], 0, () => itemsView(self));
      case 'copy':
        return made([], 0, () => self);
      default:
        return null;
    }
  }
  const items = isList(self)
    ? self
    : self instanceof Sequence && /tuple|group/.test(self.kind)
      ? self.items
      : null;
  if (items === null) return null;
  switch (name) {
    case 'index':
      return made(['value'], 1, (value) => {
        const at = items.findIndex((one) => equal(one, value ?? null));
        if (at < 0) throw new TemplateFailure('it is not in the list');
        return at;
      });
    case 'count':
      return made(['value'], 1, (value) => items.filter((one) => equal(one, value ?? null)).length);
    case 'copy':
      return isList(self) ? made([], 0, () => items) : null;
    default:
      return null;
  }
}

/** dict.items() */
export function itemsView(self: ReadonlyMap<Value, Value>): Sequence {
  return new Sequence(
    [...self].map((pair) => new Sequence(pair)),
    'dict_items',
  );
}
