/* Pieces: the traces that both languages replay, and random schedules. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { BackpressureExceeded, FrameError } from '../../src/errors';
import { fromHex, toHex } from '../../src/wire/hex';
import { PIECE_BYTES, WINDOW_BYTES } from '../../src/limits';
import { Receiver, Sender } from '../../src/transport/flow_control';
import { vectors } from '../vectors';

interface Piece {
  readonly head: string;
  readonly bytes: number;
  readonly fill: number;
}
type Op =
  | { do: 'push'; bytes: number; fill: number; orders: string[] }
  | { do: 'next'; buffered: number; piece: Piece | null }
  | { do: 'credit'; total: number }
  | { do: 'accept'; piece: Piece; gives: { bytes: number; fill: number } | { error: string } | null }
  | { do: 'grant'; gives: number | null }
  | { do: 'hold' | 'release' | 'drain' | 'fill' };

const TRACES = (vectors('frames') as { flow: { name: string; channel: number; ops: Op[] }[] }).flow;

describe('traces', () => {
  it.each(TRACES)('$name', ({ channel, ops }) => {
    const sender = new Sender(channel === 1 ? 'control' : 'data');
    const receiver = new Receiver(channel === 1 ? 'control' : 'data');
    for (const op of ops) perform(op, sender, receiver);
  });
});

function perform(op: Op, sender: Sender, receiver: Receiver): void {
  switch (op.do) {
    case 'push':
      sender.push(new Uint8Array(op.bytes).fill(op.fill), op.orders);
      return;
    case 'next':
      expect(short(sender.next(op.buffered))).toEqual(op.piece);
      return;
    case 'credit':
      sender.grant(op.total);
      return;
    case 'accept':
      expect(accepted(receiver, pieceOf(op.piece))).toEqual(op.gives);
      return;
    case 'grant':
      expect(receiver.grant()).toBe(op.gives);
      return;
    case 'hold':
      receiver.hold();
      return;
    case 'release':
      receiver.release();
      return;
    case 'drain':
      for (let piece = sender.next(0); piece !== null; piece = sender.next(0)) receiver.accept(piece);
      return;
    case 'fill':
      for (let sent = 0; sent < WINDOW_BYTES; sent += PIECE_BYTES) {
        receiver.accept(pieceOf({ head: '13', bytes: PIECE_BYTES - 1, fill: 0 }));
      }
      return;
    default:
      op satisfies never;
  }
}

function accepted(receiver: Receiver, piece: Uint8Array): unknown {
  try {
    const frame = receiver.accept(piece);
    return frame === null ? null : { bytes: frame.length, fill: frame[0] };
  } catch (error) {
    if (error instanceof FrameError) return { error: error.name };
    throw error;
  }
}

function short(piece: Uint8Array | null): Piece | null {
  if (piece === null) return null;
  const headBytes = ((piece[0] ?? 0) & 3) === 1 ? 5 : 1;
  const body = piece.subarray(headBytes);
  return { head: toHex(piece.subarray(0, headBytes)), bytes: body.length, fill: body[0] ?? 0 };
}

function pieceOf({ head, bytes, fill }: Piece): Uint8Array {
  const headBytes = fromHex(head);
  const piece = new Uint8Array(headBytes.length + bytes).fill(fill);
  piece.set(headBytes);
  return piece;
}

it('every frame arrives whole, and those of a key in order', () => {
  const push = fc.record({
    bytes: fc.oneof(fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: 4 * PIECE_BYTES })),
    orders: fc.subarray(['a', 'b', 'c'], { minLength: 1 }),
    pieces: fc.nat(4),
  });
  fc.assert(
    fc.property(fc.array(push, { maxLength: 60 }), (pushes) => {
      const sender = new Sender('data');
      const receiver = new Receiver('data');
      const arrived: number[] = [];
      const move = (): boolean => {
        const piece = sender.next(0);
        if (piece === null) return false;
        const frame = receiver.accept(piece);
        if (frame !== null) {
          const number = new DataView(frame.buffer, frame.byteOffset).getUint32(0);
          expect(frame.length).toBe(4 + (pushes[number]?.bytes ?? -1));
          arrived.push(number);
        }
        const total = receiver.grant();
        if (total !== null) sender.grant(total);
        return true;
      };
      pushes.forEach(({ bytes, orders, pieces }, number) => {
        const frame = new Uint8Array(4 + bytes);
        new DataView(frame.buffer).setUint32(0, number);
        sender.push(frame, orders);
        for (let moved = 0; moved < pieces; moved++) move();
      });
      while (move());
      expect([...arrived].sort((a, b) => a - b)).toEqual(pushes.map((_, number) => number));
      for (const key of ['a', 'b', 'c']) {
        const ofKey = arrived.filter((number) => pushes[number]?.orders.includes(key));
        expect(ofKey).toEqual([...ofKey].sort((a, b) => a - b));
      }
    }),
    { numRuns: 150 },
  );
});

it('random pieces give frames or named errors', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 }), (pieces) => {
      const receiver = new Receiver('data');
      for (const piece of pieces) {
        if (piece.length > 0) piece[0] = 0x10 | ((piece[0] ?? 0) & 3);
        accepted(receiver, piece);
      }
    }),
  );
});

it('a queue that outgrows its bound is refused', () => {
  const sender = new Sender('data', 100);
  sender.push(new Uint8Array(60), ['s']);
  expect(() => sender.push(new Uint8Array(41), ['s'])).toThrow(BackpressureExceeded);
});
