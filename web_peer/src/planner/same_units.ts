/*
 * Which runs of units compute the same from the same weights, whatever models they belong to (twin of
 * planner/model/same_units.py). Pure. A peer that holds runs of units that are equal as a whole loads them once.
 */

import type { GraphManifest } from './graph_manifest';
import { givenBy, neededBy } from './graph_manifest';

/**
 * The same text for runs of units that take, give and compute the same with the same weights. Names and numbers of
 * units do not count, those of values do: by them a runtime is handed its inputs.
 */
export function sameUnits(manifest: GraphManifest, first: number, stop: number): string {
  const values = new Map(manifest.values.map(({ name, dtype, shape }) => [name, [name, dtype, shape]]));
  const crossing = [neededBy(manifest, first, stop), givenBy(manifest, first, stop)];
  const units = manifest.units
    .slice(first, stop)
    .map(({ graph, inputs, outputs, tensors, weights }) => [
      graph.sha256,
      inputs,
      outputs,
      tensors.map(({ name, dtype, shape, blob, offset }) => [
        name,
        dtype,
        shape,
        weights[blob]?.sha256,
        offset,
      ]),
    ]);
  const ports = crossing.map((names) => names.map((name) => values.get(name)));
  return JSON.stringify([manifest.fused, ports, units]);
}
