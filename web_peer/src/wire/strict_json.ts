/* Decides which text is JSON of this protocol: no doubled names, no floats, bounded depth. Pure. */

export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [name: string]: Json;
}

const MAX_DEPTH = 16; // a welcome has 4
const TOKEN =
  /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?![\d.eE]))|(true|false|null)(?!\w))/y;
const END = /\s*$/y;

/** The value that `text` spells. Raises a SyntaxError for anything else. */
export function parseStrict(text: string): Json {
  let at = 0;

  function next(): string {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (found === null) throw new SyntaxError(`no JSON of integers at character ${at}`);
    at = TOKEN.lastIndex;
    return found[0].trimStart();
  }

  function value(token: string, depth: number): Json {
    if (depth > MAX_DEPTH) throw new SyntaxError('nested too deep');
    switch (token[0]) {
      case '{':
        return object(depth);
      case '[':
        return list(depth);
      case '"':
        return JSON.parse(token) as string;
      case 't':
        return true;
      case 'f':
        return false;
      case 'n':
        return null;
      case '}':
      case ']':
      case ',':
      case ':':
        throw new SyntaxError(`unexpected ${token}`);
      default: {
        const number = Number(token);
        if (!Number.isSafeInteger(number)) throw new SyntaxError('an integer beyond 2^53');
        return number;
      }
    }
  }

  function object(depth: number): JsonObject {
    const made = new Map<string, Json>();
    let token = next();
    while (token !== '}') {
      if (token[0] !== '"') throw new SyntaxError('a name expected');
      const name = JSON.parse(token) as string;
      if (made.has(name)) throw new SyntaxError('a name occurs twice in one object');
      if (next() !== ':') throw new SyntaxError('a colon expected');
      made.set(name, value(next(), depth + 1));
      token = next();
      if (token === ',') {
        token = next();
        if (token === '}') throw new SyntaxError('a name expected');
      } else if (token !== '}') throw new SyntaxError('a comma or } expected');
    }
    return Object.fromEntries(made);
  }

  function list(depth: number): readonly Json[] {
    const made: Json[] = [];
    let token = next();
    while (token !== ']') {
      made.push(value(token, depth + 1));
      token = next();
      if (token === ',') {
        token = next();
        if (token === ']') throw new SyntaxError('a value expected');
      } else if (token !== ']') throw new SyntaxError('a comma or ] expected');
    }
    return made;
  }

  const made = value(next(), 0);
  END.lastIndex = at;
  if (!END.test(text)) throw new SyntaxError('text after the end');
  return made;
}
