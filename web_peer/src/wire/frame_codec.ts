/*
 * The bytes of a frame, and which bytes are refused (docs/protocol.md, chapter Frames). Which kinds and fields there
 * are stands in schema/frames.toml.
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
import {
  HIGHEST_VERSION,
  LOWEST_VERSION,
  MAX_CONTROL_FRAME_BYTES,
  MAX_DATA_FRAME_BYTES,
  MAX_HEADER_BYTES,
  MAX_HISTORY,
  MAX_INT,
  MAX_TOKEN,
  SESSION_BYTES,
} from '../limits';
import { areIntegers, isInteger } from './frame_fields';
import { type Decoded, decodeHeader, shown } from './frame_header';
import {
  type Channel,
  type Frame,
  type Kind,
  type Layout,
  LAYOUTS,
  OF_SESSION,
  type Step,
} from './generated/frames';
import { toHex } from './hex';
import { Packer } from './msgpack';
import { aligned, DTYPE_CODES, type Tensor, tensorFromWire } from './tensors';

export const MAX_FRAME_BYTES: Readonly<Record<Channel, number>> = {
  control: MAX_CONTROL_FRAME_BYTES,
  data: MAX_DATA_FRAME_BYTES,
};

/** The layout of a kind, when which kind it is does not matter: it is only handed frames of its own. */
type AnyLayout = Layout<Frame>;

const HEADER_LENGTH_BYTES = 4;
const MAX_SHAPE = 8; // numbers of a shape; more than MAX_RANK is for the tensor to refuse
const BY_KIND = new Map(Object.entries(LAYOUTS) as unknown as readonly (readonly [Kind, AnyLayout])[]);
const BY_NUMBER: ReadonlyMap<unknown, AnyLayout> = new Map(
  [...BY_KIND.values()].map((each) => [each.number, each]),
);
const PACKER = new Packer(); // what it returns is valid until the next call
const NO_BYTES = new Uint8Array(0);

/** The channel that the frame's kind belongs to. */
export function channelOf(frame: Frame): Channel {
  return layoutOf(frame.kind).channel;
}

/** The frame's bytes. Raises the FrameError that its receiver would raise. */
export function encode(frame: Frame): Uint8Array {
  const layout = layoutOf(frame.kind);
  const values = layout.toWire(frame);
  let payload: Uint8Array = NO_BYTES;
  switch (frame.kind) {
    case 'STEP':
    case 'TEAM_STEP':
    case 'TEAM_PART':
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
    case 'RUN_VALUE':
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
  if ('session' in frame && OF_SESSION.has(frame.kind)) return [frame.session];
  if (frame.kind !== 'BUNDLE') return [''];
  const found = new Set<string>();
  let start = 0;
  for (const size of frame.sizes) {
    const first = decodeHeader(headerOf(frame.body.subarray(start, start + size)))[1];
    found.add(first instanceof Uint8Array && first.length === SESSION_BYTES ? toHex(first) : '');
    start += size;
  }
  return [...found].sort();
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
      return fieldsOf(layout, values) as Frame;
    case 'body':
      return { ...fieldsOf(layout, values), body: payload } as Frame;
    case 'tokens': {
      const fields = fieldsOf(layout, values);
      return { ...fields, history: tokensOf(layout, payload) } as Frame;
    }
    case 'tensor': {
      const [code, shape] = values.splice(Math.max(0, values.length - 2));
      const fields = fieldsOf(layout, values);
      if (typeof code !== 'number' || !areIntegers(shape, MAX_SHAPE, 0, MAX_INT)) {
        throw new WrongField(
          `${layout.kind}: expected a data type code and a shape at the end of the header, ` +
            `got ${shown(code)} and ${shown(shape)}`,
        );
      }
      const tensor = tensorFromWire(code, shape, payload);
      const step = { ...fields, tensor } as Step;
      checkPositions(step.count, tensor);
      return step;
    }
    default:
      return layout.payload satisfies never;
  }
}

function layoutOf(kind: Kind): AnyLayout {
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

function fieldsOf(layout: AnyLayout, values: readonly Decoded[]): Partial<Frame> {
  if (values.length !== layout.count) {
    throw new WrongField(`${layout.kind}: expected ${layout.count} fields, got ${values.length}`);
  }
  return layout.fromWire(values) as Partial<Frame>; // of the layout's kind, which the checker loses over so many
}

/**
 * What a side speaks that begins above this one's highest version is not read on; version_negotiation.ts says the rest.
 */
function checkVersion(layout: AnyLayout, values: readonly Decoded[]): void {
  const version = values[0];
  if (layout.kind === 'HELLO' && isInteger(version, 0, MAX_INT) && version > HIGHEST_VERSION) {
    throw new VersionMismatch(
      `expected protocol ${LOWEST_VERSION} to ${HIGHEST_VERSION}, the other peer speaks ${version} and above; ` +
        'update the older one',
    );
  }
}

function checkSize(layout: AnyLayout, headerBytes: number, payloadBytes: number): void {
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

function tokensOf(layout: AnyLayout, payload: Uint8Array): Int32Array {
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
