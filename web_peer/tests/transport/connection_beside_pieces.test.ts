/* A tab that gives pieces of a model over a slow link still says in time where it is. */

import { describe, expect, it } from 'vitest';

import { PATIENCE_S } from '../../src/session/stage_probing';
import { Connection, type Engine } from '../../src/transport/connection';
import type { EngineEvents } from '../../src/transport/engines/browser';
import { LOWEST_VERSION, LOW_WATER_BYTES, PIECE_BYTES } from '../../src/limits';
import { Receiver } from '../../src/transport/flow_control';
import type { Channel, Frame, Hello } from '../../src/wire/generated/frames';
import { decode, encode } from '../../src/wire/frame_codec';
import { tensorOf } from '../../src/wire/tensors';

const BYTES_PER_S = 5_000_000 / 8;
const ROUND_TRIP_S = 0.04;
const [SESSION, OTHER] = ['00'.repeat(16), '01'.repeat(16)];
const PIECE: Frame = { kind: 'PIECE', id: 1, status: 0, body: new Uint8Array(256 * 1024) };
const PROBE: Frame = { kind: 'PROBE', nonce: 1, body: new Uint8Array(1_000_000) };
const PLACE = { session: SESSION, turn: 1, stage: 0 } as const;
const HERE: Frame = { kind: 'HERE', ...PLACE, received: 8, computed: 8, steps: 100 };
const FEED: Frame = { kind: 'FEED', ...PLACE, position: 5 };
const ROWS = tensorOf(new Float32Array(32 * 960), [32, 960]); // 120 KiB
const STEP: Frame = { kind: 'STEP', ...PLACE, stage: 1, position: 0, count: 32, last: 1, tensor: ROWS };

/** A link that takes BYTES_PER_S, in time of its own; the other side notes when each frame is whole. */
class SlowEngine implements Engine {
  nowS = 0;
  readonly arrivals: { readonly frame: Frame; readonly atS: number }[] = [];
  private readonly waiting: { readonly channel: Channel; readonly piece: Uint8Array }[] = [];
  private sent = 0; // of the first that waits
  private readonly receivers = { control: new Receiver('control'), data: new Receiver('data') };
  private events: EngineEvents | null = null;

  attach(events: EngineEvents): void {
    this.events = events;
  }

  offer(): Promise<string> {
    return Promise.resolve('offer');
  }

  accept(): Promise<string> {
    return Promise.resolve('answer');
  }

  setAnswer(): Promise<void> {
    return Promise.resolve();
  }

  addCandidate(): Promise<void> {
    return Promise.resolve();
  }

  close(): void {
    this.waiting.length = 0;
  }

  send(channel: Channel, piece: Uint8Array<ArrayBuffer>): void {
    this.waiting.push({ channel, piece: piece.slice() });
  }

  bufferedBytes(channel: Channel): number {
    return this.waiting.reduce((sum, each) => sum + (each.channel === channel ? each.piece.length : 0), 0);
  }

  /** What goes over the link meanwhile. */
  run(seconds: number): void {
    const endS = this.nowS + seconds;
    for (let next = this.waiting[0]; next !== undefined; next = this.waiting[0]) {
      const { channel, piece } = next;
      const tookS = (piece.length - this.sent) / BYTES_PER_S;
      if (this.nowS + tookS > endS) {
        this.sent += (endS - this.nowS) * BYTES_PER_S;
        break;
      }
      this.nowS += tookS;
      this.sent = 0;
      const before = this.bufferedBytes(channel);
      this.waiting.shift();
      const whole = this.receivers[channel].accept(piece);
      if (whole !== null) this.arrivals.push({ frame: decode(whole, channel), atS: this.nowS });
      if (before > LOW_WATER_BYTES && this.bufferedBytes(channel) <= LOW_WATER_BYTES) {
        this.events?.engineWritable(channel);
      }
    }
    this.nowS = endS;
  }

  kinds(): string[] {
    return this.arrivals.map(({ frame }) => frame.kind).filter((kind) => kind !== 'HELLO' && kind !== 'PING');
  }

  when(kind: Frame['kind'], session = SESSION): number {
    const found = this.arrivals.find(
      ({ frame }) => frame.kind === kind && (!('session' in frame) || frame.session === session),
    );
    return found?.atS ?? Infinity;
  }
}

async function opened(): Promise<{ readonly connection: Connection; readonly engine: SlowEngine }> {
  const hello = (peer: string): Hello => ({
    ...{ kind: 'HELLO', protocol: LOWEST_VERSION, peer, name: peer, agent: 'test' },
  });
  const engine = new SlowEngine();
  const connection = new Connection(engine, hello('a'), 'b', {
    frame: () => undefined,
    state: () => undefined,
    candidate: () => undefined,
  });
  await connection.offer();
  connection.engineOpen();
  connection.engineMessage('control', Uint8Array.from([0x13, ...encode(hello('b'))]).buffer);
  engine.run(0.1);
  return { connection, engine };
}

const GIVEN: [string, Frame[]][] = [
  ['a piece', [PIECE]],
  ['four pieces', [PIECE, PIECE, PIECE, PIECE]],
  ['a probe', [PROBE]],
  ['a probe and two pieces', [PROBE, PIECE, PIECE]],
];

describe.each(GIVEN)('while it gives %s', (_, given) => {
  it.each([0, 0.1, 0.3, 0.9])(
    'WHERE is answered within the patience of an asker, after %d s',
    async (afterS) => {
      const { connection, engine } = await opened();
      for (const frame of given) connection.send(frame);
      engine.run(afterS);
      const askedS = engine.nowS;
      connection.send(HERE);
      engine.run(10);
      expect(engine.when('HERE') - askedS + ROUND_TRIP_S).toBeLessThan(PATIENCE_S);
      expect(engine.kinds().sort()).toEqual([...given.map(({ kind }) => kind), 'HERE'].sort());
      connection.engineClosed('test over');
    },
  );
});

it('the link is never idle while pieces wait', async () => {
  const { connection, engine } = await opened();
  const begunS = engine.nowS;
  for (let count = 0; count < 4; count++) connection.send(PIECE);
  engine.run(10);
  const last = Math.max(...engine.arrivals.map(({ atS }) => atS));
  expect((last - begunS) / ((4 * 256 * 1024) / BYTES_PER_S)).toBeCloseTo(1, 2);
  connection.engineClosed('test over');
});

it('a frame waits for the long one of its own session', async () => {
  const { connection, engine } = await opened();
  for (const frame of [PROBE, STEP, FEED, { ...FEED, session: OTHER }]) connection.send(frame);
  engine.run(10);
  expect(engine.kinds()).toEqual(['FEED', 'PROBE', 'STEP', 'FEED']);
  const times = [engine.when('FEED', OTHER), engine.when('PROBE'), engine.when('STEP'), engine.when('FEED')];
  expect(times).toEqual([...times].sort((a, b) => a - b));
  connection.engineClosed('test over');
});

it('a step fills the engine as before', async () => {
  const { connection, engine } = await opened();
  for (let count = 0; count < 4; count++) connection.send(STEP);
  expect(engine.bufferedBytes('data')).toBeGreaterThan(256 * 1024 - PIECE_BYTES);
  connection.engineClosed('test over');
});
