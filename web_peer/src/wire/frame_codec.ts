/*
 * Decides which frames exist and what their bytes are (docs/protocol.md, chapter Frames).
 *
 * A frame is the length of its header (4 bytes, little-endian), the header (a msgpack array of the kind and the
 * fields in order), and the payload. Bodies and tensors of a decoded frame are views into the bytes that came.
 */

import {
  OversizeFrame,
  TruncatedFrame,
  UnknownKind,
  VersionMismatch,
  WrongChannel,
  WrongField,
} from '../errors';
import { type Field, id, integer, integers, isInteger, MAX_INT, text, texts } from './frame_fields';
import { FINISH, ROLE, type Step, type Frame, type Kind } from './frame_types';
import { type Decoded, decodeHeader, shown, type Value } from './frame_header';
import { toHex } from './hex';
import { Packer } from './msgpack';
import { aligned, DTYPE_CODES, MAX_TENSOR_BYTES, type Tensor, tensorFromWire } from './tensors';

export * from './frame_types';

export const LOWEST_VERSION = 3; // of the protocol; frames are alike in all versions from here on
export const HIGHEST_VERSION = 4;

export const SESSION_BYTES = 16;
export const MAX_NAME_BYTES = 128; // peer ids, display names, agent strings, method names
export const MAX_TEXT_BYTES = 4096; // reasons and messages meant for people
export const MAX_ROUTE = 64; // stages
export const MAX_SAMPLING = 32;
export const MAX_END_TOKENS = 64;
export const MAX_LIKELY_BYTES = 8 * 21; // of a token and 20 others
export const MAX_SPANS = 512; // of given and sampled positions in one session
const MAX_SHADOWS = 128;
export const MAX_HISTORY = 256 * 1024; // tokens; above any context length in use
export const MAX_PROBE_BYTES = 1024 * 1024;
export const MAX_RANGE_BYTES = 256 * 1024; // of a piece of weights in one frame: an activation behind it waits no longer
const HASH_BYTES = 32;
export const MAX_CONSENSUS_BYTES = 512 * 1024; // an entry as long as any may be, and room for its message
export const MAX_BUNDLE_FRAMES = 64;
export const MAX_BUNDLE_BYTES = 1024 * 1024;
export const MAX_TOKEN = 2 ** 31 - 1;

export const MAX_CONTROL_FRAME_BYTES = 1024 * 1024;
export const MAX_DATA_FRAME_BYTES = 16 * 1024 * 1024;
export const MAX_HEADER_BYTES = 16 * 1024; // bounds what a nest of arrays can make the decoder allocate
const HEADER_LENGTH_BYTES = 4;

/** Data channels of a connection. */
export type Channel = 'control' | 'data';

/** The negotiated channel ids. */
export const CHANNEL_IDS: Readonly<Record<Channel, number>> = { control: 1, data: 2 };

export const MAX_FRAME_BYTES: Readonly<Record<Channel, number>> = {
  control: MAX_CONTROL_FRAME_BYTES,
  data: MAX_DATA_FRAME_BYTES,
};

/** What follows the header: nothing, the attribute `body`, a tensor's bytes (its data type code and shape are the
 * last two header fields), or the attribute `history` as int32. */
type Payload = 'none' | 'body' | 'tensor' | 'tokens';

/** How one kind is laid out: its number, channel, header fields in order, and what follows the header. */
interface Layout {
  readonly kind: Kind;
  readonly number: number;
  readonly channel: Channel;
  readonly fields: readonly (readonly [name: string, field: Field])[];
  readonly payload: Payload;
  readonly maxPayloadBytes: number;
}

const UINT = integer(0, MAX_INT);
const NAME = text(MAX_NAME_BYTES);
const TEXT = text(MAX_TEXT_BYTES);
const SESSION = id(SESSION_BYTES);
const PLACE = integer(0, MAX_ROUTE - 1);
const FLAG = integer(0, 1);
const TOKEN = integer(0, MAX_TOKEN);
const SHAPE = integers(8, 0);
const MAX_BODY_BYTES = MAX_CONTROL_FRAME_BYTES - MAX_HEADER_BYTES;

type NamesOf<K extends Kind> = Exclude<
  keyof Extract<Frame, { kind: K }>,
  'kind' | 'body' | 'history' | 'tensor'
>;

function layout<K extends Kind>(
  number: number,
  channel: Channel,
  kind: K,
  fields: Readonly<Record<NamesOf<K>, Field>>,
  payload: Payload = 'none',
  maxPayloadBytes = 0,
): Layout {
  return { kind, number, channel, fields: Object.entries<Field>(fields), payload, maxPayloadBytes };
}

const LAYOUTS: readonly Layout[] = [
  layout(1, 'control', 'HELLO', { protocol: UINT, peer: NAME, name: NAME, agent: NAME }),
  layout(2, 'control', 'PING', { nonce: UINT }),
  layout(3, 'control', 'PONG', { nonce: UINT }),
  layout(4, 'control', 'BYE', { reason: TEXT, dataBytes: UINT }),
  layout(5, 'control', 'BYE_ACK', {}),
  layout(6, 'control', 'CREDIT', {
    channel: integer(CHANNEL_IDS.data, CHANNEL_IDS.data),
    totalBytes: UINT,
  }),
  layout(16, 'control', 'REQUEST', { id: UINT, method: NAME }, 'body', MAX_BODY_BYTES),
  layout(
    17,
    'control',
    'RESPONSE',
    { id: UINT, status: integer(0, 65535), message: TEXT },
    'body',
    MAX_BODY_BYTES,
  ),
  layout(20, 'control', 'CONSENSUS', {}, 'body', MAX_CONSENSUS_BYTES),
  layout(
    32,
    'data',
    'OPEN',
    {
      session: SESSION,
      turn: UINT,
      plan: UINT,
      route: texts(MAX_ROUTE, NAME),
      stage: PLACE,
      origin: NAME,
      start: UINT,
      promptTokens: UINT,
      maxTokens: UINT,
      sampling: integers(MAX_SAMPLING, -MAX_INT),
      endTokens: integers(MAX_END_TOKENS, 0, MAX_TOKEN),
      generated: integer(0, MAX_HISTORY),
      role: integer(0, ROLE.shadow),
      answer: UINT,
      before: UINT,
      keep: UINT,
      spans: integers(MAX_SPANS, 0),
      shadowStages: integers(MAX_SHADOWS, 0, MAX_ROUTE - 1),
      shadows: texts(MAX_SHADOWS, NAME),
    },
    'tokens',
    MAX_HISTORY * 4,
  ),
  layout(
    33,
    'data',
    'STEP',
    { session: SESSION, turn: UINT, stage: PLACE, position: UINT, count: integer(1, MAX_TOKEN), last: FLAG },
    'tensor',
    MAX_TENSOR_BYTES,
  ),
  layout(
    34,
    'data',
    'TOKEN',
    { session: SESSION, turn: UINT, position: UINT, token: TOKEN, finish: integer(0, FINISH.length) },
    'body',
    MAX_LIKELY_BYTES,
  ),
  layout(35, 'data', 'REFUSE', {
    session: SESSION,
    turn: UINT,
    stage: PLACE,
    position: UINT,
    have: UINT,
    reason: integer(0, 255),
    message: TEXT,
  }),
  layout(36, 'data', 'CANCEL', { session: SESSION, turn: UINT, keep: UINT, reason: TEXT }),
  layout(37, 'data', 'RELEASE', { session: SESSION }),
  layout(38, 'data', 'PROBE', { nonce: UINT }, 'body', MAX_PROBE_BYTES),
  layout(39, 'data', 'PROBE_ACK', { nonce: UINT, receivedBytes: UINT }),
  layout(40, 'data', 'BUNDLE', { sizes: integers(MAX_BUNDLE_FRAMES, 1) }, 'body', MAX_BUNDLE_BYTES),
  layout(41, 'data', 'FEED', { session: SESSION, turn: UINT, stage: PLACE, position: UINT }),
  layout(42, 'data', 'WHERE', { session: SESSION, turn: UINT, stage: PLACE }),
  layout(43, 'data', 'HERE', {
    session: SESSION,
    turn: UINT,
    stage: PLACE,
    received: UINT,
    computed: UINT,
    steps: UINT,
  }),
  layout(48, 'data', 'PIECE_REQUEST', {
    id: UINT,
    sha256: id(HASH_BYTES),
    offset: UINT,
    count: integer(1, MAX_RANGE_BYTES),
  }),
  layout(49, 'data', 'PIECE', { id: UINT, status: FLAG }, 'body', MAX_RANGE_BYTES),
];
const BY_KIND: ReadonlyMap<Kind, Layout> = new Map(LAYOUTS.map((each) => [each.kind, each]));
const BY_NUMBER: ReadonlyMap<unknown, Layout> = new Map(LAYOUTS.map((each) => [each.number, each]));
const PACKER = new Packer(); // what it returns is valid until the next call
const NO_BYTES = new Uint8Array(0);

/** The channel that the frame's kind belongs to. */
export function channelOf(frame: Frame): Channel {
  return layoutOf(frame.kind).channel;
}

/** The frame's bytes. Raises the FrameError that its receiver would raise. */
export function encode(frame: Frame): Uint8Array {
  const layout = layoutOf(frame.kind);
  const given = frame as unknown as Readonly<Record<string, unknown>>;
  const values: Value[] = [layout.number];
  for (const [name, field] of layout.fields) {
    const value = field.toWire(given[name]);
    if (value === undefined) throw wrongField(layout, name, field, given[name]);
    values.push(value);
  }
  let payload: Uint8Array = NO_BYTES;
  switch (frame.kind) {
    case 'STEP':
      checkPositions(frame.count, frame.tensor);
      values.push(DTYPE_CODES[frame.tensor.dtype], frame.tensor.shape);
      payload = frame.tensor.data;
      break;
    case 'OPEN':
      checkHistory(frame.history);
      payload = new Uint8Array(frame.history.buffer, frame.history.byteOffset, frame.history.byteLength);
      break;
    case 'REQUEST':
    case 'RESPONSE':
    case 'CONSENSUS':
    case 'PROBE':
    case 'BUNDLE':
    case 'PIECE':
      payload = frame.body;
      break;
    case 'TOKEN':
      payload = frame.body ?? payload;
      break;
    default:
      break;
  }
  const header = PACKER.packed(values);
  checkSize(layout, header.length, payload.length);
  const bytes = new Uint8Array(HEADER_LENGTH_BYTES + header.length + payload.length);
  bytes[0] = header.length;
  bytes[1] = header.length >> 8; // MAX_HEADER_BYTES fits into two bytes
  bytes.set(header, HEADER_LENGTH_BYTES);
  bytes.set(payload, HEADER_LENGTH_BYTES + header.length);
  return bytes;
}

/** The sessions that a frame belongs to; a bundle may belong to several. '' stands for no session. */
export function sessionsOf(frame: Frame): readonly string[] {
  switch (frame.kind) {
    case 'OPEN':
    case 'STEP':
    case 'TOKEN':
    case 'REFUSE':
    case 'CANCEL':
    case 'RELEASE':
    case 'FEED':
    case 'WHERE':
    case 'HERE':
      return [frame.session];
    case 'BUNDLE': {
      const found = new Set<string>();
      let start = 0;
      for (const size of frame.sizes) {
        const first = decodeHeader(headerOf(frame.body.subarray(start, start + size)))[1];
        found.add(first instanceof Uint8Array && first.length === SESSION_BYTES ? toHex(first) : '');
        start += size;
      }
      return [...found].sort();
    }
    default:
      return [''];
  }
}

/** The frame in `bytes`, which came on `channel` (absent: any). Raises a FrameError that names the fault. */
export function decode(bytes: Uint8Array, channel?: Channel): Frame {
  const header = headerOf(bytes);
  const headerEnd = HEADER_LENGTH_BYTES + header.length;
  const [kind, ...values] = decodeHeader(header);
  const layout = BY_NUMBER.get(kind);
  if (layout === undefined) {
    throw new UnknownKind(`expected a frame kind of protocol ${HIGHEST_VERSION}, got ${shown(kind)}`);
  }
  if (channel !== undefined && layout.channel !== channel) {
    throw new WrongChannel(
      `expected ${layout.kind} on channel ${layout.channel.toUpperCase()}, got it on ${channel.toUpperCase()}`,
    );
  }
  checkVersion(layout, values);
  checkSize(layout, header.length, bytes.length - headerEnd);
  const payload = bytes.subarray(headerEnd);
  switch (layout.payload) {
    case 'none':
      return fieldsOf(layout, values) as unknown as Frame;
    case 'body':
      return { ...fieldsOf(layout, values), body: payload } as unknown as Frame;
    case 'tokens': {
      const fields = fieldsOf(layout, values);
      return { ...fields, history: tokensOf(layout, payload) } as unknown as Frame;
    }
    case 'tensor': {
      const [code, shape] = values.splice(Math.max(0, values.length - 2));
      const fields = fieldsOf(layout, values);
      const sizes =
        shape === undefined ? undefined : (SHAPE.fromWire(shape) as readonly number[] | undefined);
      if (typeof code !== 'number' || sizes === undefined) {
        throw new WrongField(
          `${layout.kind}: expected a data type code and a shape at the end of the header, ` +
            `got ${shown(code)} and ${shown(shape)}`,
        );
      }
      const tensor = tensorFromWire(code, sizes, payload);
      const step = { ...fields, tensor } as unknown as Step;
      checkPositions(step.count, tensor);
      return step;
    }
    default:
      return layout.payload satisfies never;
  }
}

function layoutOf(kind: Kind): Layout {
  const layout = BY_KIND.get(kind);
  if (layout === undefined) throw new UnknownKind(`expected a frame kind, got ${shown(kind)}`);
  return layout;
}

function headerOf(bytes: Uint8Array): Uint8Array {
  if (bytes.length < HEADER_LENGTH_BYTES) {
    throw new TruncatedFrame(
      `expected ${HEADER_LENGTH_BYTES} bytes of header length, got ${bytes.length} bytes`,
    );
  }
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  if (length > MAX_HEADER_BYTES) {
    throw new OversizeFrame(`expected a header of at most ${MAX_HEADER_BYTES} bytes, got ${length}`);
  }
  if (HEADER_LENGTH_BYTES + length > bytes.length) {
    throw new TruncatedFrame(
      `expected a header of ${length} bytes, got ${bytes.length - HEADER_LENGTH_BYTES}`,
    );
  }
  return bytes.subarray(HEADER_LENGTH_BYTES, HEADER_LENGTH_BYTES + length);
}

function fieldsOf(layout: Layout, values: readonly Decoded[]): Record<string, unknown> {
  if (values.length !== layout.fields.length) {
    throw new WrongField(`${layout.kind}: expected ${layout.fields.length} fields, got ${values.length}`);
  }
  const made: Record<string, unknown> = { kind: layout.kind };
  let place = 0;
  for (const [name, field] of layout.fields) {
    const given = values[place++];
    const value = given === undefined ? undefined : field.fromWire(given);
    if (value === undefined) throw wrongField(layout, name, field, given);
    made[name] = value;
  }
  return made;
}

function wrongField(layout: Layout, name: string, field: Field, value: unknown): WrongField {
  return new WrongField(`${layout.kind}.${name}: expected ${field.expected}, got ${shown(value)}`);
}

/**
 * What a side speaks that begins above this one's highest version is not read on; version_negotiation.ts says the rest.
 */
function checkVersion(layout: Layout, values: readonly Decoded[]): void {
  const version = values[0];
  if (layout.kind === 'HELLO' && isInteger(version, 0, MAX_INT) && version > HIGHEST_VERSION) {
    throw new VersionMismatch(
      `expected protocol ${LOWEST_VERSION} to ${HIGHEST_VERSION}, the other peer speaks ${version} and above; ` +
        'update the older one',
    );
  }
}

function checkSize(layout: Layout, headerBytes: number, payloadBytes: number): void {
  if (headerBytes > MAX_HEADER_BYTES || payloadBytes > layout.maxPayloadBytes) {
    throw new OversizeFrame(
      `${layout.kind}: expected at most ${MAX_HEADER_BYTES} bytes of header and ` +
        `${layout.maxPayloadBytes} of payload, got ${headerBytes} and ${payloadBytes}`,
    );
  }
}

function checkPositions(count: number, tensor: Tensor): void {
  if (tensor.shape[0] !== count) {
    throw new WrongField(
      `STEP: expected a tensor of ${count} positions, got shape [${tensor.shape.join(', ')}]`,
    );
  }
}

function tokensOf(layout: Layout, payload: Uint8Array): Int32Array {
  if (payload.length % 4 !== 0) {
    throw new WrongField(`${layout.kind}: expected token ids of 4 bytes each, got ${payload.length} bytes`);
  }
  const bytes = aligned(payload);
  const tokens = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  checkHistory(tokens);
  return tokens;
}

function checkHistory(tokens: Int32Array): void {
  if (tokens.length > MAX_HISTORY || tokens.some((token) => token < 0)) {
    throw new WrongField(
      `OPEN.history: expected at most ${MAX_HISTORY} integers from 0 to ${MAX_TOKEN}, got ${shown(tokens)}`,
    );
  }
}
