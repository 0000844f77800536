/* What onnxruntime-web has: the leader's TAB_ENGINE (planner/cost/graph_peers.py) says the same. */

import { readFileSync } from 'node:fs';

import * as ort from 'onnxruntime-web/wasm';
import { describe, expect, it } from 'vitest';

import { ELEMENT_BYTES } from '../../src/dataflow/value_codec';

const SOURCE = readFileSync(new URL('../../../planner/cost/graph_peers.py', import.meta.url), 'utf8');
const NEWEST = Number(/newest_opset=(\d+)/.exec(SOURCE)?.[1]);
const TYPES = [/TAB_ENGINE[\s\S]*?\n\)/, /_INTEGERS.*/].map((each) => each.exec(SOURCE)?.[0] ?? '').join(' ');

/** y = x, in operators of that version. */
function identity(opset: number): Uint8Array {
  const hex =
    '080a3a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801620f0a0179120a0a0808' +
    `0112040a02080142040a0010${opset.toString(16).padStart(2, '0')}`;
  return new Uint8Array(hex.match(/../g)?.map((byte) => parseInt(byte, 16)) ?? []);
}

describe('onnxruntime-web', () => {
  it('has the operators that the leader takes it to have, and no newer ones', async () => {
    ort.env.wasm.numThreads = 1;
    expect(NEWEST).toBeGreaterThan(20);
    const session = await ort.InferenceSession.create(identity(NEWEST));
    expect(session.outputNames).toEqual(['y']);
    await session.release();
    await expect(ort.InferenceSession.create(identity(NEWEST + 1))).rejects.toThrow(/opset/i);
  });

  it('is given the values that the leader takes tabs to hand over', () => {
    const quoted = [...TYPES.matchAll(/"(\w+)"/g)].map(([, type]) => type);
    const handed = [...ELEMENT_BYTES.keys()].filter((type) => !type.startsWith('complex'));
    expect(new Set(quoted)).toEqual(new Set(handed));
  });
});
