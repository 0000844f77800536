/*
 * Pictures of a question as rows of a decoder's prompt, computed by the peers that hold the towers (twin of
 * peer/member/sight.py). Edge.
 */

import type { ValueArray } from '../dataflow/value_codec';
import { BadPicture, CannotServe, NoPlan, RunFailed, textOf } from '../errors';
import { checkCount, keptForm } from '../model/picture_parts';
import { type PictureFile, readPicture } from '../model/pictures';
import type { RunClient } from '../origin/run_client';
import type { BlobRef } from '../planner/blob_ref';
import type { GraphManifest, PictureInputs } from '../planner/graph_manifest';
import type { Manifest, Sight } from '../planner/manifest';
import { loadFileGraph } from '../runtime/graph_runtime';
import type { GivenRows } from '../session/position_spans';
import type { MeshState } from '../state/mesh_state';
import { aligned, type Tensor } from '../wire/tensors';

const PREPARED_WITHIN_MS = 20_000; // a picture, by the model's own steps
const MOST_KEPT_BYTES = 64 << 20; // rows of pictures for next questions

/** What is used of a mesh. */
export interface Offering {
  readonly view: { readonly state: MeshState };
  readonly signal: AbortSignal;
  manifestOf(model: string): Promise<GraphManifest>;
  blobOf(ref: BlobRef, signal: AbortSignal): Promise<Uint8Array>;
  openRun(name: string): Promise<RunClient>;
}

/** The name under which the mesh offers the towers of a decoder; null where it does not. */
export function offerOfSight({ offers }: MeshState, sight: Sight): string | null {
  const names = [...offers].filter(([, { model }]) => model === sight.model).map(([name]) => name);
  return names.sort()[0] ?? null;
}

/** The rows of pictures; those of the last ones are kept for next questions of their conversations. */
export class PictureRows {
  private readonly mesh: Offering;
  private readonly kept = new Map<string, Tensor>(); // by model and picture, the oldest first

  constructor(mesh: Offering) {
    this.mesh = mesh;
  }

  /**
   * The rows of picture files, which stand in the prompt from the positions `firsts` on; `called`: the decoder.
   * Raises BadPicture; NoPlan, RunFailed or CannotServe where the mesh cannot look at them.
   */
  async given(
    called: string,
    manifest: Manifest | null,
    pictures: readonly PictureFile[],
    firsts: readonly number[],
  ): Promise<readonly GivenRows[]> {
    if (pictures.length === 0) return [];
    checkCount(pictures);
    const sight = manifest?.sight ?? null;
    if (manifest === null || sight === null) {
      throw new CannotServe(`${called} sees no pictures: ask it in words alone`);
    }
    if (sight.square > 0) throw new CannotServe(keptForm(called));
    const keyOf = ({ sha256 }: PictureFile): string => `${sight.model} ${sha256}`;
    const here = new Map<string, Tensor>();
    for (const picture of pictures) {
      const known = this.kept.get(keyOf(picture));
      if (known !== undefined) here.set(picture.sha256, known);
    }
    const missing = pictures.filter(
      ({ sha256 }, at) => !here.has(sha256) && pictures.findIndex((other) => other.sha256 === sha256) === at,
    );
    if (missing.length > 0) {
      const found = await this.lookedAt(sight, manifest.hidden, missing);
      missing.forEach((picture, at) => {
        const tensor = found[at];
        if (tensor === undefined) return;
        here.set(picture.sha256, tensor);
        this.keep(keyOf(picture), tensor);
      });
    }
    return pictures.map(({ sha256 }, at) => {
      const tensor = here.get(sha256);
      const first = firsts[at];
      if (tensor === undefined || first === undefined) throw new Error('a row for each picture expected');
      return { first, tensor };
    });
  }

  /** The rows of each picture, float32 (positions, hidden). */
  private async lookedAt(
    sight: Sight,
    hidden: number,
    pictures: readonly PictureFile[],
  ): Promise<readonly Tensor[]> {
    const { mesh } = this;
    const name = offerOfSight(mesh.view.state, sight);
    if (name === null) {
      throw new NoPlan(
        `this mesh does not offer the model that sees for this one: shoal offer has it run ${sight.model.slice(0, 12)}`,
      );
    }
    const graph = await mesh.manifestOf(sight.model);
    const { picture } = graph;
    const output = picture?.rows ?? null;
    const made = graph.values.find((value) => value.name === output);
    if (
      picture === null ||
      output === null ||
      String(made?.shape.slice(1)) !== `${sight.positions},${hidden}`
    ) {
      throw new CannotServe(`${name} makes no ${sight.positions} rows of ${hidden} numbers of a picture`);
    }
    const pixels = await preparedPixels(mesh, graph, picture, pictures);
    const run = await mesh.openRun(name);
    try {
      const found: Tensor[] = [];
      for (const each of pixels) {
        const rows = (await run.run(new Map([[picture.input, each]]), mesh.signal)).get(output);
        found.push(tensorOfRows(rows, sight.positions, hidden, name));
      }
      return found;
    } finally {
      await run.close();
    }
  }

  private keep(key: string, tensor: Tensor): void {
    this.kept.set(key, tensor);
    let bytes = [...this.kept.values()].reduce((sum, { data }) => sum + data.length, 0);
    for (const [old, { data }] of [...this.kept].slice(0, -1)) {
      if (bytes <= MOST_KEPT_BYTES) break;
      this.kept.delete(old);
      bytes -= data.length;
    }
  }
}

function tensorOfRows(rows: ValueArray | undefined, positions: number, hidden: number, name: string): Tensor {
  const data = aligned(rows?.data ?? new Uint8Array());
  const numbers = new Float32Array(data.buffer, data.byteOffset, data.length >> 2);
  if (String(rows?.shape) !== `1,${positions},${hidden}` || !numbers.every(Number.isFinite)) {
    throw new RunFailed(`${name} made no finite rows of a picture`);
  }
  return { dtype: 'float32', shape: [positions, hidden], data };
}

/** The input of each picture, float32 (1, 3, side, side). Raises BadPicture, NoPlan, CannotServe. */
export async function preparedPixels(
  mesh: Pick<Offering, 'signal' | 'blobOf'>,
  graph: GraphManifest,
  { graph: steps, input }: PictureInputs,
  pictures: readonly Pick<PictureFile, 'file'>[],
): Promise<readonly ValueArray[]> {
  const side = graph.values.find(({ name }) => name === input)?.shape[2] ?? 0;
  const ended = AbortSignal.any([mesh.signal, AbortSignal.timeout(PREPARED_WITHIN_MS * pictures.length)]);
  const runtime = await loadFileGraph(
    await mesh.blobOf(steps, mesh.signal),
    { name: 'picture', dtype: 'uint8', shape: ['height', 'width', 3] },
    { name: 'pixels', dtype: 'float32', shape: [1, 3, side, side] },
    ended,
  );
  try {
    const found: ValueArray[] = [];
    for (const { file } of pictures) {
      const made = (await runtime.run(new Map([['picture', await readPicture(file)]]))).get('pixels');
      if (String(made?.shape) !== `1,3,${side},${side}` || made === undefined) {
        throw new CannotServe(`${graph.name}: its own steps make no picture of 1, 3, ${side}, ${side}`);
      }
      found.push(made);
    }
    return found;
  } catch (error) {
    if (error instanceof BadPicture || mesh.signal.aborted) throw error;
    if (ended.aborted) throw new BadPicture('this picture takes too long to prepare; take a smaller one');
    throw new BadPicture(`the model's own steps fail on this picture: ${textOf(error).slice(0, 200)}`);
  } finally {
    runtime.close();
  }
}
