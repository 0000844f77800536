/* Weights of bodies go into the model that a tab loads; onnxruntime-web computes with them. */

import * as ort from 'onnxruntime-web/wasm';
import { expect, test } from 'vitest';

import {
  ATTRIBUTE,
  external,
  GRAPH,
  IR_VERSION,
  MODEL,
  NAMED,
  NODE,
  OPSET,
  TENSOR,
  valueInfo,
} from '../../src/planner/compose';
import { integerItem, Message, readMessage, textItem, writeMessage } from '../../src/planner/onnx_messages';
import { withBodyWeights } from '../../src/runtime/body_weights';

const HASH = 'ab'.repeat(32);
const BLOB = new Uint8Array(new Float32Array([7, 10, 20, 30]).buffer);
const GRAPH_KIND = integerItem(5); // of an attribute
const wanted = { dtype: 'float32', shape: [2], offset: 4, bytes: 8 } as const;
const named = (name: string): Message => new Message('ValueInfo', { [NAMED]: [textItem(name)] });
const node = (operator: string, inputs: string[], output: string, attributes: Message[] = []): Message =>
  new Message('Node', {
    [NODE.inputs]: inputs.map(textItem),
    [NODE.outputs]: [textItem(output)],
    [NODE.operator]: [textItem(operator)],
    [NODE.attributes]: attributes,
  });

/** y = x + w in one body, x * w in the other one, with a weight of each; a weight of the graph beside them. */
function model(): Uint8Array<ArrayBuffer> {
  const branch = (name: string, operator: string): Message =>
    new Message('Attribute', {
      [ATTRIBUTE.name]: [textItem(name)],
      [ATTRIBUTE.graph]: [
        new Message('Graph', {
          [GRAPH.nodes]: [node(operator, ['x', `${operator}.w`], `${operator}.y`)],
          [GRAPH.name]: [textItem(name)],
          [GRAPH.initializers]: [external(wanted, HASH, `${operator}.w`)],
          [GRAPH.outputs]: [named(`${operator}.y`)],
        }),
      ],
      [ATTRIBUTE.kind]: [GRAPH_KIND],
    });
  const graph = new Message('Graph', {
    [GRAPH.nodes]: [
      node('If', ['which'], 'z', [branch('then_branch', 'Add'), branch('else_branch', 'Mul')]),
      node('Add', ['z', 'w'], 'y'),
    ],
    [GRAPH.name]: [textItem('run')],
    [GRAPH.initializers]: [external(wanted, HASH, 'w')],
    [GRAPH.inputs]: [
      valueInfo({ name: 'which', dtype: 'bool', shape: [] }),
      valueInfo({ name: 'x', dtype: 'float32', shape: [2] }),
    ],
    [GRAPH.outputs]: [valueInfo({ name: 'y', dtype: 'float32', shape: [2] })],
  });
  return writeMessage(
    new Message('Model', {
      [MODEL.irVersion]: [integerItem(IR_VERSION)],
      [MODEL.graph]: [graph],
      [MODEL.opsets]: [
        new Message('OperatorSetId', { [OPSET.domain]: [textItem('')], [OPSET.version]: [integerItem(17)] }),
      ],
    }),
  );
}

test('onnxruntime-web loads bodies that have weights, and computes them', async () => {
  ort.env.wasm.numThreads = 1;
  const filled = withBodyWeights(model(), new Map([[HASH, BLOB]]));
  const session = await ort.InferenceSession.create(filled, { externalData: [{ path: HASH, data: BLOB }] });
  const x = new ort.Tensor('float32', [1, 2]);
  for (const [which, expected] of [
    [1, [21, 42]],
    [0, [20, 60]],
  ] as const) {
    const { y } = await session.run({ x, which: new ort.Tensor('bool', new Uint8Array([which]), []) });
    expect([...(y?.data as Float32Array)]).toEqual(expected);
  }
  await session.release();
});

test('a model without such bodies stays as it is', () => {
  const read = readMessage('Model', model());
  const [graph] = read?.messages(MODEL.graph) ?? [];
  graph?.fields.delete(GRAPH.nodes);
  const bare = writeMessage(read as Message);
  expect(withBodyWeights(bare, new Map())).toBe(bare);
  expect(graph?.messages(GRAPH.initializers)[0]?.has(TENSOR.external)).toBe(true);
});

test('a blob that is missing or short is refused', () => {
  expect(() => withBodyWeights(model(), new Map())).toThrow('does not hold a weight of a body');
  const short = BLOB.subarray(0, 8);
  expect(() => withBodyWeights(model(), new Map([[HASH, short]]))).toThrow('does not hold');
});
