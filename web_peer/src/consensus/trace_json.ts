/*
 * Events, effects and messages in recorded traces: one JSON, spelt alike by every language (twin of
 * peer/consensus/trace_json.py). Pure.
 *
 * An object has the names of its fields in lower_snake; where several kinds can stand in one place, "kind" says which.
 * Bytes are lower-case hex. Keys are sorted, no spaces, UTF-8 unescaped. A Map is an object whose keys are ids.
 */

import { fromHex, toHex } from '../wire/hex';
import type { Message } from './messages';
import { byBytes } from '../wire/utf8_order';
import { Config, type Server } from './records';
import type { Effect, Event } from './events';

const snakes = new Map<string, string>();
const camels = new Map<string, string>();

function snake(name: string): string {
  let made = snakes.get(name);
  if (made === undefined) {
    made = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    snakes.set(name, made);
  }
  return made;
}

function camel(name: string): string {
  let made = camels.get(name);
  if (made === undefined) {
    made = name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
    camels.set(name, made);
  }
  return made;
}

/** A value of a trace in its one spelling. Throws a TypeError at what no trace holds, such as a function. */
export function textOf(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value);
    case 'number':
    case 'boolean':
      return String(value);
    case 'object':
      break;
    default:
      throw new TypeError(`${typeof value} in a trace`);
  }
  if (value === null) return 'null';
  if (value instanceof Uint8Array) return `"${toHex(value)}"`;
  if (Array.isArray(value)) return `[${value.map(textOf).join(',')}]`;
  if (value instanceof Config) return `{"servers":${textOf(value.servers)}}`;
  const fields =
    value instanceof Map
      ? [...(value as ReadonlyMap<string, unknown>)]
      : Object.entries(value).map(([name, held]): [string, unknown] => [snake(name), held]);
  const there = fields.filter(([, held]) => held !== undefined);
  there.sort(([a], [b]) => byBytes(a, b));
  return `{${there.map(([name, held]) => `${JSON.stringify(name)}:${textOf(held)}`).join(',')}}`;
}

/** The event that `textOf` wrote. Only for traces: it trusts what it reads. */
export function eventOf(text: string): Event {
  return valueOf(JSON.parse(text)) as Event;
}

/** The effect that `textOf` wrote. Only for traces: it trusts what it reads. */
export function effectOf(text: string): Effect {
  return valueOf(JSON.parse(text)) as Effect;
}

/** The message that `textOf` wrote. Only for traces: it trusts what it reads. */
export function messageOf(text: string): Message {
  return valueOf(JSON.parse(text)) as Message;
}

/** What was parsed, as the core knows it. */
export function valueOf(parsed: unknown): unknown {
  if (Array.isArray(parsed)) return parsed.map(valueOf);
  if (typeof parsed !== 'object' || parsed === null) return parsed;
  const made: Record<string, unknown> = {};
  for (const [name, held] of Object.entries(parsed)) made[camel(name)] = field(name, held);
  return made;
}

function field(name: string, held: unknown): unknown {
  if (name === 'data') return fromHex(held as string);
  if (name === 'config') return new Config((held as { readonly servers: readonly Server[] }).servers);
  return valueOf(held);
}
