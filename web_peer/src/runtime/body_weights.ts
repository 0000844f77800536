/*
 * Weights of bodies of If, Loop and Scan, written into the model. onnxruntime's WebAssembly takes external data of a
 * graph, but its checker looks for that of a body in a file system, and a tab has none. Pure; in tabs alone.
 */

import { bodiesOf, GRAPH, MODEL, NODE, TENSOR } from '../planner/compose';
import { type Message, readMessage, writeMessage } from '../planner/onnx_messages';

/** The model with what its bodies need of `blobs`, by hash; the model itself where they need nothing. Raises an Error. */
export function withBodyWeights(
  model: Uint8Array<ArrayBuffer>,
  blobs: ReadonlyMap<string, Uint8Array>,
): Uint8Array<ArrayBuffer> {
  const read = readMessage('Model', model);
  if (read === null) throw new Error('more nodes and names than a tab composes');
  const tensors = read.messages(MODEL.graph).flatMap((graph) => ofBodies(graph));
  for (const tensor of tensors) fill(tensor, blobs);
  return tensors.length > 0 ? writeMessage(read) : model;
}

/** The tensors of bodies whose numbers lie in a blob. */
function ofBodies(graph: Message): Message[] {
  const bodies = graph
    .messages(GRAPH.nodes)
    .flatMap((node) => node.messages(NODE.attributes))
    .flatMap(bodiesOf);
  return bodies.flatMap((body) => [
    ...body.messages(GRAPH.initializers).filter((tensor) => tensor.has(TENSOR.external)),
    ...ofBodies(body),
  ]);
}

function fill(tensor: Message, blobs: ReadonlyMap<string, Uint8Array>): void {
  const decoder = new TextDecoder();
  const facts = new Map(
    tensor
      .messages(TENSOR.external)
      .map((entry) => [decoder.decode(entry.bytes(1)[0]), decoder.decode(entry.bytes(2)[0])]),
  );
  const hash = facts.get('location') ?? '';
  const offset = Number(facts.get('offset') ?? 0);
  const length = Number(facts.get('length') ?? 0);
  const data = blobs.get(hash)?.subarray(offset, offset + length);
  if (data?.length !== length) throw new Error(`blob ${hash.slice(0, 12)} does not hold a weight of a body`);
  tensor.fields.delete(TENSOR.external);
  tensor.fields.delete(TENSOR.location);
  tensor.fields.set(TENSOR.raw, [data]);
}
