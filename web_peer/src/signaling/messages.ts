/*
 * Decides which messages exist between a member and the signaling server, and what each may hold (twin of
 * signaling/messages.py, docs/protocol-signaling.md). Decoding checks everything before anything is built.
 */

import { type Grant, MAX_GRANTS, MAX_UNIX, MAX_USES, type Revocation, ROLES } from './invites';
import { type Base64, ED25519_BYTES, fromText, isId, P256_BYTES, SIGNATURE_BYTES } from './keys';
import { NONCE_BYTES, type Presence, SIGNAL_KINDS, type Signal, type Vouch } from './presence';
import { signalingError } from './errors';
import { type Json, parseStrict } from '../wire/json_codec';

type JsonObject = Readonly<Record<string, Json>>;

export const SIGNALING_PROTOCOL = 2;
export const MAX_CLIENT_BYTES = 256 * 1024; // what a server takes
export const MAX_SERVER_BYTES = 1024 * 1024; // what a client takes
export const MAX_NAME_CHARS = 64;
export const MAX_BATCH = 64; // grants or revocations in one registration
const MAX_SDP_CHARS = 64 * 1024;
const MAX_TEXT_CHARS = 500;
const MAX_MEMBERS = 512;
const MAX_ICE_SERVERS = 16;
const MAX_REQUEST = 2 ** 31 - 1;

/** One STUN or TURN server, as WebRTC names it. */
export interface IceServer {
  readonly urls: readonly string[];
  readonly username: string;
  readonly credential: string;
}

export interface Join {
  readonly kind: 'join';
  readonly protocol: number;
  readonly mesh: string;
  readonly invite: Base64;
  readonly key: Base64;
  readonly name: string;
  readonly roomNonce: Base64;
  readonly joinNonce: Base64;
  readonly inviteProof: Base64;
  readonly peerProof: Base64;
  readonly grant: Grant | null;
  readonly membership: Grant | null;
  readonly vouch: Vouch | null;
}

export type ClientMessage =
  | Join
  | {
      readonly kind: 'register';
      readonly request: number;
      readonly grants: readonly Grant[];
      readonly revocations: readonly Revocation[];
    }
  | { readonly kind: 'admit'; readonly membership: Grant }
  | { readonly kind: 'leave' }
  | { readonly kind: 'relay'; readonly signal: Signal };

export interface Welcome {
  readonly kind: 'welcome';
  readonly you: Presence;
  readonly members: readonly Presence[];
  readonly revocations: readonly Revocation[];
  readonly iceServers: readonly IceServer[];
}

export type ServerMessage =
  | { readonly kind: 'challenge'; readonly protocol: number; readonly roomNonce: Base64 }
  | Welcome
  | { readonly kind: 'joined'; readonly member: Presence }
  | { readonly kind: 'left'; readonly peer: string; readonly reason: string }
  | { readonly kind: 'registered'; readonly request: number; readonly code: string; readonly text: string }
  | { readonly kind: 'revoked'; readonly revocation: Revocation }
  | { readonly kind: 'ice'; readonly iceServers: readonly IceServer[] }
  | { readonly kind: 'refused'; readonly code: string; readonly text: string; readonly ends: boolean }
  | { readonly kind: 'relay'; readonly signal: Signal }
  | { readonly kind: 'admitted'; readonly membership: Grant };

// --- codec

/** Checks one JSON value and gives what it stands for. */
type Read = (raw: Json, name: string) => unknown;

function wrong(name: string, expected: string, raw: Json): never {
  let came: string = raw === null ? 'null' : Array.isArray(raw) ? 'list' : typeof raw;
  if (typeof raw === 'string' || Array.isArray(raw)) came += ` of length ${raw.length}`;
  throw signalingError('MalformedMessage', `field ${name}: expected ${expected}, got ${came}`);
}

function text(most: number, least = 0, lines = false): Read {
  return (raw, name) => {
    if (typeof raw !== 'string' || charsOf(raw) < least || charsOf(raw) > most) {
      return wrong(name, `text of ${least} to ${most} characters`, raw);
    }
    if (!isClean(raw, lines)) {
      throw signalingError(
        'MalformedMessage',
        `field ${name}: control characters and lone surrogates are not allowed`,
      );
    }
    return raw;
  };
}

function charsOf(words: string): number {
  let count = words.length;
  for (let at = 0; at < words.length; at++) if ((words.codePointAt(at) ?? 0) > 0xffff) count--;
  return count;
}

const id: Read = (raw, name) =>
  typeof raw === 'string' && isId(raw) ? raw : wrong(name, 'an id of 32 characters a-z, 2-7', raw);

function bytes(...lengths: readonly number[]): Read {
  const expected = `base64url of ${lengths.join(' or ')} bytes`;
  const most = 2 * Math.max(...lengths);
  return (raw, name) => {
    if (typeof raw !== 'string' || raw.length > most) return wrong(name, expected, raw);
    try {
      if (lengths.includes(fromText(raw).length)) return raw;
    } catch {
      return wrong(name, expected, raw);
    }
    return wrong(name, expected, raw);
  };
}

function int(most: number): Read {
  return (raw, name) =>
    typeof raw === 'number' && raw >= 0 && raw <= most
      ? raw
      : wrong(name, `an integer from 0 to ${most}`, raw);
}

const flag: Read = (raw, name) => (typeof raw === 'boolean' ? raw : wrong(name, 'true or false', raw));

function word(words: readonly string[]): Read {
  return (raw, name) =>
    typeof raw === 'string' && words.includes(raw) ? raw : wrong(name, 'a word of the protocol', raw);
}

function list(item: Read, most: number): Read {
  return (raw, name) =>
    Array.isArray(raw) && raw.length <= most
      ? (raw as readonly Json[]).map((each, index) => item(each, `${name}[${index}]`))
      : wrong(name, `a list of at most ${most}`, raw);
}

function maybe(item: Read): Read {
  return (raw, name) => (raw === null ? null : item(raw, name));
}

/** Field names in camel case, in the order in which they are written. */
type Fields = Readonly<Record<string, Read>>;

function record(fields: Fields): Read {
  const names = Object.keys(fields).map((name) => [name, snake(name)] as const);
  return (raw, where) => {
    if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) return wrong(where, 'an object', raw);
    const object = raw as JsonObject;
    const absent = names.find(([, wire]) => !Object.hasOwn(object, wire));
    if (absent !== undefined) {
      throw signalingError('MalformedMessage', `${where}: field ${absent[1]} is absent`);
    }
    const came = Object.keys(object).length;
    if (came !== names.length) {
      throw signalingError('MalformedMessage', `${where}: ${names.length} fields expected, got ${came}`);
    }
    return Object.fromEntries(
      names.map(([name, wire]) => [name, fields[name]?.(object[wire] ?? null, `${where}.${wire}`)]),
    );
  };
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Whether text can be shown: no control characters, lone surrogates or overrides of the reading direction. */
export function isClean(words: string, lines = false): boolean {
  for (const letter of words) {
    const code = letter.codePointAt(0) ?? 0;
    if (code < 32 && !(lines && (letter === '\r' || letter === '\n'))) return false;
    if ((code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000)) return false;
    if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069)) return false;
  }
  return true;
}

const KEY = bytes(ED25519_BYTES, P256_BYTES);
const MESH_KEY = bytes(ED25519_BYTES);
const SIGNATURE = bytes(SIGNATURE_BYTES);
const NONCE = bytes(NONCE_BYTES);
const NAME = text(MAX_NAME_CHARS, 1);
const LINE = text(MAX_TEXT_CHARS);
const GRANT = record({
  meshKey: MESH_KEY,
  key: KEY,
  role: word(ROLES),
  expiresUnix: int(MAX_UNIX),
  uses: int(MAX_USES),
  via: bytes(0, ED25519_BYTES),
  signature: SIGNATURE,
});
const REVOCATION = record({ meshKey: MESH_KEY, key: MESH_KEY, signature: SIGNATURE });
const VOUCH = record({ key: KEY, proof: SIGNATURE });
const PRESENCE = record({
  key: KEY,
  name: NAME,
  roomNonce: NONCE,
  joinNonce: NONCE,
  inviteProof: SIGNATURE,
  peerProof: SIGNATURE,
  grant: GRANT,
  membership: maybe(GRANT),
  vouch: maybe(VOUCH),
});
const SIGNAL = record({
  kind: word(SIGNAL_KINDS),
  connection: NONCE,
  sender: id,
  receiver: id,
  senderNonce: NONCE,
  receiverNonce: NONCE,
  text: text(MAX_SDP_CHARS, 0, true),
  signature: SIGNATURE,
});
const ICE_SERVER = record({ urls: list(text(200, 1), 8), username: LINE, credential: LINE });

const CLIENT: Readonly<Record<ClientMessage['kind'], Read>> = {
  join: record({
    protocol: int(2 ** 31),
    mesh: id,
    invite: MESH_KEY,
    key: KEY,
    name: NAME,
    roomNonce: NONCE,
    joinNonce: NONCE,
    inviteProof: SIGNATURE,
    peerProof: SIGNATURE,
    grant: maybe(GRANT),
    membership: maybe(GRANT),
    vouch: maybe(VOUCH),
  }),
  register: record({
    request: int(MAX_REQUEST),
    grants: list(GRANT, MAX_BATCH),
    revocations: list(REVOCATION, MAX_BATCH),
  }),
  admit: record({ membership: GRANT }),
  leave: record({}),
  relay: record({ signal: SIGNAL }),
};
const SERVER: Readonly<Record<ServerMessage['kind'], Read>> = {
  challenge: record({ protocol: int(2 ** 31), roomNonce: NONCE }),
  welcome: record({
    you: PRESENCE,
    members: list(PRESENCE, MAX_MEMBERS),
    revocations: list(REVOCATION, MAX_GRANTS),
    iceServers: list(ICE_SERVER, MAX_ICE_SERVERS),
  }),
  joined: record({ member: PRESENCE }),
  left: record({ peer: id, reason: LINE }),
  registered: record({ request: int(MAX_REQUEST), code: text(40), text: LINE }),
  revoked: record({ revocation: REVOCATION }),
  refused: record({ code: text(40, 1), text: LINE, ends: flag }),
  ice: record({ iceServers: list(ICE_SERVER, MAX_ICE_SERVERS) }),
  relay: record({ signal: SIGNAL }),
  admitted: record({ membership: GRANT }),
};

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

function loadJson(words: string): JsonObject {
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
  return raw as JsonObject;
}
