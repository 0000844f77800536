/*
 * The text of a message between a member and the signaling server, and which text is refused (twin of
 * signaling/messages.py). Which messages there are stands in schema/signaling.toml.
 */

import { signalingError } from './errors';
import {
  CLIENT,
  type ClientMessage,
  MAX_CLIENT_BYTES,
  MAX_SERVER_BYTES,
  SERVER,
  type ServerMessage,
} from './generated/messages';
import { type Read, snake } from './message_fields';
import { type Json, parseStrict } from '../wire/json_codec';

/** The JSON text of a message; the objects of this protocol hold their fields in wire order. */
export function encode(message: ClientMessage | ServerMessage): string {
  return JSON.stringify(plain(message));
}

function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [snake(name), plain(each)]));
}

/** What a server received; raises a MessageError. */
export function decodeClient(words: string): ClientMessage {
  return decoded(words, CLIENT, MAX_CLIENT_BYTES) as ClientMessage;
}

/** What a client received; raises a MessageError. */
export function decodeServer(words: string): ServerMessage {
  return decoded(words, SERVER, MAX_SERVER_BYTES) as ServerMessage;
}

function decoded(words: string, table: Readonly<Record<string, Read>>, most: number): unknown {
  if (words.length > most) {
    throw signalingError(
      'MessageTooLarge',
      `a message has at most ${most} bytes, this one has ${words.length}`,
    );
  }
  const { kind, ...rest } = loadJson(words);
  if (typeof kind !== 'string') {
    throw signalingError('MalformedMessage', 'a message has a text field named kind, this one has none');
  }
  const read = Object.hasOwn(table, kind) ? table[kind] : undefined;
  if (read === undefined) {
    throw signalingError(
      'UnknownMessage',
      `messages are ${Object.keys(table).join(', ')}; this one is ${kind.slice(0, 40)}`,
    );
  }
  return { kind, ...(read(rest, kind) as object) };
}

function loadJson(words: string): Readonly<Record<string, Json>> {
  let raw: Json;
  try {
    raw = parseStrict(words);
  } catch {
    throw signalingError(
      'MalformedMessage',
      'a message is one JSON object of integers and text; this is none',
    );
  }
  if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) {
    throw signalingError('MalformedMessage', `a message is one JSON object, got ${typeof raw}`);
  }
  return raw as Readonly<Record<string, Json>>;
}
