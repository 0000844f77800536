/* Values in parts: what is sent comes whole on the other side; parts that no peer sends are refused. */

import { describe, expect, it } from 'vitest';

import type { ValueArray } from '../../src/dataflow/value_codec';
import { BadCommand, ConnectFailed, WrongTensor } from '../../src/errors';
import { MAX_RANGE_BYTES } from '../../src/limits';
import type { Value } from '../../src/planner/graph_manifest';
import { ValueExchange } from '../../src/transport/value_exchange';
import { decode, encode } from '../../src/wire/frame_codec';
import type { Frame, RunValue } from '../../src/wire/generated/frames';

const RUN = '72'.repeat(16);
const WANTED: Value = { name: 'v', dtype: 'float32', shape: ['rows', 4], bytes: [] };
const MOST_BYTES = 1 << 20;

/** "me", who wants everything but value 9; what is sent is encoded and decoded. */
class Side {
  readonly found: { peer: string; item: number; array: ValueArray }[] = [];
  readonly without: number[] = []; // items that a value of was not taken
  readonly sent: RunValue[] = [];
  reach = true;
  readonly exchange: ValueExchange;

  constructor(mostBytes = MOST_BYTES) {
    const connection = { drained: () => Promise.resolve() };
    const links = {
      me: 'me',
      dial: () => (this.reach ? Promise.resolve(connection) : Promise.reject(new ConnectFailed('nobody'))),
      connection: () => (this.reach ? connection : null),
      send: (_: string, frame: Frame) => {
        const came = decode(encode(frame));
        if (came.kind === 'RUN_VALUE') this.sent.push(came);
      },
    };
    const taker = {
      wanted: (...[, , , , value]: [string, string, number, number, number]) => (value === 9 ? null : WANTED),
      unable: (...[, , , item]: [string, string, number, number, string]) => void this.without.push(item),
      came: (peer: string, _run: string, _epoch: number, item: number, _value: number, array: ValueArray) =>
        void this.found.push({ peer, item, array }),
    };
    this.exchange = new ValueExchange(links as never, taker, mostBytes);
  }

  send(peer: string, array: ValueArray, item = 0): void {
    this.exchange.send({ kind: 'sendValue', peer, run: RUN, epoch: 1, item, value: 0, array }, WANTED);
  }
}

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
const arrayOf = (rows: number): ValueArray => ({
  shape: [rows, 4],
  data: new Uint8Array(Float32Array.from({ length: rows * 4 }, (_, at) => at).buffer),
});
const part = (change: Partial<RunValue> = {}): RunValue => ({
  ...{ kind: 'RUN_VALUE', run: RUN, epoch: 1, item: 0, value: 0, shape: [1, 4] },
  ...{ offset: 0, total: 16, body: new Uint8Array(16) },
  ...change,
});

describe('a value', () => {
  it.each([0, 1, MAX_RANGE_BYTES / 16, MAX_RANGE_BYTES / 16 + 1, 40_000])(
    'of %d rows comes whole',
    async (rows) => {
      const sender = new Side();
      const receiver = new Side();
      const array = arrayOf(rows);
      sender.send('other', array);
      await settled();
      for (const each of sender.sent) {
        expect(receiver.found).toEqual([]);
        receiver.exchange.frame('other', each);
      }
      expect(receiver.found.map(({ peer }) => peer)).toEqual(['other']);
      expect(receiver.found[0]?.array.shape).toEqual([rows, 4]);
      expect(Buffer.compare(receiver.found[0]?.array.data ?? new Uint8Array(), array.data)).toBe(0);
    },
  );

  it('for this peer itself takes no connection', async () => {
    const side = new Side();
    side.send('me', arrayOf(1), 3);
    await settled();
    expect(side.sent).toEqual([]);
    expect(side.found.map(({ peer, item }) => [peer, item])).toEqual([['me', 3]]);
  });

  it('of a run that is over, or for a peer that cannot be reached, is dropped', async () => {
    const side = new Side();
    side.send('other', arrayOf(1), 0);
    side.send('other', arrayOf(1), 1);
    side.exchange.forget(RUN);
    side.reach = false;
    side.send('far', arrayOf(1));
    await settled();
    expect(side.sent).toEqual([]);
  });

  it('that comes again after its connection ended comes whole', () => {
    const side = new Side();
    side.exchange.frame('other', part({ body: new Uint8Array(8) }));
    side.exchange.gone('other');
    side.exchange.frame('other', part({ offset: 8, body: new Uint8Array(8) })); // not wanted any more
    side.exchange.frame('other', part());
    expect(side.found).toHaveLength(1);
  });
});

describe('parts that no peer sends', () => {
  it.each<[string, Partial<RunValue>[], new (text: string) => Error]>([
    ['total', [{ total: 17 }], WrongTensor],
    ['shape', [{ shape: [1, 5] }], WrongTensor],
    ['size', [{ shape: [2 ** 40, 4], total: 2 ** 44 }], WrongTensor],
    ['gap', [{ body: new Uint8Array(4) }, { offset: 8, body: new Uint8Array(8) }], BadCommand],
    [
      'other total',
      [{ body: new Uint8Array(4) }, { offset: 4, total: 20, body: new Uint8Array(8) }],
      BadCommand,
    ],
    ['too much', [{ body: new Uint8Array(17) }], BadCommand],
    ['empty part', [{ body: new Uint8Array() }], BadCommand],
  ])('are refused: %s', (_, changes, error) => {
    const side = new Side();
    const take = (): void => changes.forEach((change) => side.exchange.frame('other', part(change)));
    expect(take).toThrow(error);
    expect(side.found).toEqual([]);
  });

  it('take no more room than there is, and their items fail', () => {
    const side = new Side(40);
    for (const item of [0, 1, 2]) side.exchange.frame('other', part({ item, body: new Uint8Array(4) }));
    for (const item of [0, 1, 2])
      side.exchange.frame('other', part({ item, offset: 4, body: new Uint8Array(12) }));
    expect(side.found.map(({ item }) => item)).toEqual([0, 1]);
    expect(side.without).toEqual([2]);
    side.exchange.frame('other', part({ item: 3 })); // there is room again
    expect(side.found.map(({ item }) => item)).toEqual([0, 1, 3]);
  });
});
