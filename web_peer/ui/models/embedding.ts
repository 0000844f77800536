/* Vectors of texts by an embedding model that the mesh offers. */

import { BadCommand, NoPlan, RunFailed } from '../../src/errors';
import type { MeshMember } from '../../src/member/mesh_member';
import { TextReader } from '../../src/model/text_inputs';
import type { GraphManifest } from '../../src/planner/graph_manifest';

/** The vectors of texts, each of length one; a text that is too long for the model counts with its beginning. Raises
 * PeerError. */
export async function embed(
  mesh: MeshMember,
  name: string,
  texts: readonly string[],
  signal: AbortSignal,
): Promise<Float32Array[]> {
  const offer = mesh.view.state.offers.get(name);
  if (offer === undefined) throw new NoPlan(`the mesh offers no model ${name} any more`);
  const manifest = await mesh.manifestOf(offer.model);
  const reads = manifest.text;
  const output = reads?.vectors ?? null;
  if (reads === null || output === null) throw new NoPlan(`${name} makes no embeddings of texts`);
  const reader = new TextReader(manifest, await mesh.blobOf(reads.tokenizer, signal));
  const fitting = texts.map((text) => beginningOf(reader, text));
  const run = await mesh.openRun(name);
  try {
    const found = (await run.run(reader.arrays(fitting), signal)).get(output);
    const width = found?.shape[1] ?? 0;
    if (found?.shape[0] !== texts.length || width === 0) {
      throw new RunFailed(`${name} made no vector of each text`);
    }
    const numbers = new Float32Array(found.data.slice().buffer);
    return texts.map((_, at) => ofLengthOne(numbers.subarray(at * width, (at + 1) * width)));
  } finally {
    await run.close();
  }
}

/** Whether a model makes embeddings of any number of texts at once. */
export const embeds = ({ text, values }: GraphManifest): boolean =>
  (text?.vectors ?? null) !== null &&
  typeof values.find(({ name }) => name === text?.tokens)?.shape[0] === 'string';

function beginningOf(reader: TextReader, text: string): string {
  for (let part = text; ; part = part.slice(0, part.length >> 1)) {
    try {
      reader.arrays([part]);
      return part;
    } catch (error) {
      if (!(error instanceof BadCommand) || part.length < 2) throw error;
    }
  }
}

function ofLengthOne(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return vector.map((each) => each / (length || 1));
}
