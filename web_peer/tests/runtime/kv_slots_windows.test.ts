/* What rows of arrays with a window have: room is made whole blocks at a time, and only so far back. */

import { describe, expect, test } from 'vitest';

import { firstOfParts, partsOf, windowInputs } from '../../src/runtime/execution';
import { type KvArray, KvRows } from '../../src/runtime/kv_slots';

const WINDOW = { tokens: 100, block: 512 }; // keeps 163, has room for 770
const whole: KvArray = { name: 'key.0', outputs: ['key.0.out'], heads: 1, headSize: 16, isWindowed: false };
const windowed: KvArray = { name: 'key.1', outputs: ['key.1.out'], heads: 2, headSize: 16, isWindowed: true };
const SHAPE = { rows: 2, capacity: 2048 };

describe('rows', () => {
  test('drop a block when they are full', () => {
    const rows = new KvRows([whole, windowed], WINDOW);
    expect(rows.capacity(whole, SHAPE)).toBe(2048);
    expect(rows.capacity(windowed, SHAPE)).toBe(770);
    expect(rows.capacity(windowed, { rows: 1, capacity: 256 })).toBe(256);
    expect(rows.makeRoom(1, 706, 64, SHAPE)).toBeNull();
    expect(rows.makeRoom(1, 707, 64, SHAPE)).toEqual({ row: 1, by: 512, count: 195 });
    expect(rows.firstOf(1)).toBe(512);
    expect(rows.first(windowed, 1)).toBe(512);
    expect(rows.first(whole, 1)).toBe(0);
    expect(rows.makeRoom(1, 707, 64, SHAPE)).toBeNull();
    expect(rows.holds(1, 611)).toBe(true);
    expect(rows.holds(1, 610)).toBe(false);
    expect(rows.copies(1, 707)).toBe(true);
    expect(rows.copies(1, 600)).toBe(false);
    expect(rows.firstOf(0)).toBe(0);
    rows.moved({ source: 1, target: 0, length: 707 });
    expect(rows.firstOf(0)).toBe(512);
    expect(rows.makeRoom(1, 0, 64, SHAPE)).toBeNull(); // another session
    expect(rows.firstOf(1)).toBe(0);
  });

  test('refuse more tokens than a call has', () => {
    const rows = new KvRows([windowed], WINDOW);
    expect(() => rows.makeRoom(0, 700, 700, SHAPE)).toThrow(RangeError);
  });

  test('without a window have all', () => {
    const rows = new KvRows([whole], WINDOW);
    expect(rows.makeRoom(0, 2000, 48, SHAPE)).toBeNull();
    expect(rows.holds(0, 3)).toBe(true);
    expect(rows.begin(whole, 2000)).toBe(0);
  });
});

test('copies begin where a window does', () => {
  const arrays = [whole, windowed];
  const rows = new KvRows(arrays, WINDOW);
  expect(partsOf(arrays, ['key.1', 'key.0'], 700, rows)).toEqual({
    parts: [
      { array: windowed, offset: 0, begin: 512 },
      { array: whole, offset: 2 * 188 * 16, begin: 0 },
    ],
    length: 2 * 188 * 16 + 700 * 16,
  });
  const values = new Float32Array();
  const part = (name: string, have: number): { names: string[]; have: number; values: typeof values } => ({
    ...{ names: [name], have, values },
  });
  expect(firstOfParts(arrays, rows, [part('key.1', 600), part('key.0', 9000)])).toBe(0);
  expect(firstOfParts(arrays, rows, [part('key.1', 700)])).toBe(512);
  expect(rows.suffices(512, 610)).toBe(false);
});

test('a call says where its tokens stand and how many the arrays have', () => {
  const { seqlens, total, positions } = windowInputs([700, 3], [512, 0], 2);
  expect([...seqlens]).toEqual([189, 4]);
  expect(total).toBe(190);
  expect([...positions]).toEqual([700n, 701n, 3n, 4n]);
});
