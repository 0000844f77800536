/*
 * Which runs of units compute the same from the same weights, whatever models they belong to (twin of
 * planner/model/same_units.py). Pure. A peer that holds runs of units that are equal as a whole loads them once.
 */

import type { GraphManifest } from './graph_manifest';
import { givenBy, neededBy } from './graph_manifest';
import { type Manifest, namesOf, type UnitKind } from './manifest';
import { sha256Hex } from '../wire/sha256';

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

/**
 * For each unit of a model that answers in words a text. Stages of which the texts are equal part by part
 * (`loadedParts`), on one peer, compute in one form with equal graphs and weights, whatever models they belong to.
 */
export function unitContents(manifest: Manifest): readonly string[] {
  const { units, weights, vocab, hidden, context, scratch, rotary } = manifest;
  const shapes = units
    .filter(({ kind }) => kind !== 'embed')
    .map(({ kind, graph, tensors, kv }) =>
      JSON.stringify([
        kind,
        graph.sha256,
        tensors.map(({ name, dtype, shape }) => [name, dtype, shape]),
        kv.map((pair) => [pair.heads, pair.headSize, pair.window, namesOf(pair).length]),
      ]),
    );
  const distinct = [...new Set(shapes)].sort();
  const model = sha256Hex(JSON.stringify([weights, vocab, hidden, context, scratch, rotary, distinct]));
  return units.map(({ graph, blob, tensors, kv }) =>
    sha256Hex(JSON.stringify([model, graph.sha256, blob.sha256, tensors, kv])),
  );
}

/**
 * The parts of a stage [first, stop) of which a peer loads equal ones once: all units between the ends as a whole, and
 * the head. Rows of an embedding are read where they lie.
 */
export function loadedParts(
  kinds: readonly UnitKind[],
  first: number,
  stop: number,
): readonly (readonly [number, number])[] {
  const body = first + (kinds[first] === 'embed' ? 1 : 0);
  const head = Math.max(body, stop - (kinds[stop - 1] === 'head' ? 1 : 0));
  const parts: [number, number][] = [
    [body, head],
    [head, stop],
  ];
  return parts.filter(([start, end]) => start < end);
}
