/*
 * Which peer computes which units of a run, and which values therefore go where (twin of peer/dataflow/flow_route.py).
 * Pure.
 */

import { BadCommand } from '../errors';
import { givenBy, type GraphManifest, neededBy } from '../planner/graph_manifest';

/** Units [first, stop) on `peer`. */
export interface FlowStage {
  readonly first: number;
  readonly stop: number;
  readonly peer: string;
}

/**
 * What a run's stages take and give; values are places in the manifest's values.
 *
 * `needs`, `gives`: by stage, in the order of `stages`. `takers`: by value, the peers that need it and do not make it,
 * the origin for outputs among them. `makers`: by value, who makes it; the origin for inputs.
 */
export interface FlowRoute {
  readonly origin: string;
  readonly stages: readonly FlowStage[];
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  readonly needs: readonly (readonly number[])[];
  readonly gives: readonly (readonly number[])[];
  readonly takers: ReadonlyMap<number, readonly string[]>;
  readonly makers: ReadonlyMap<number, string>;
}

/** The route over `stages`, which are all units once and in order. Raises BadCommand. */
export function flowRoute(manifest: GraphManifest, stages: readonly FlowStage[], origin: string): FlowRoute {
  let at = 0;
  for (const { first, stop } of stages) {
    if (first !== at || stop <= at) {
      throw new BadCommand(`expected stages that follow one another, got units ${first} to ${stop} at ${at}`);
    }
    at = stop;
  }
  if (at !== manifest.units.length) {
    throw new BadCommand(`expected stages for all ${manifest.units.length} units, got ${at}`);
  }
  const known = new Map(manifest.values.map(({ name }, place) => [name, place]));
  const placesOf = (names: readonly string[]): number[] => names.flatMap((name) => known.get(name) ?? []); // a checked manifest declares each
  const needs = stages.map(({ first, stop }) => placesOf(neededBy(manifest, first, stop)));
  const gives = stages.map(({ first, stop }) => placesOf(givenBy(manifest, first, stop)));
  const inputs = placesOf(manifest.inputs);
  const outputs = placesOf(manifest.outputs);
  const makers = new Map(inputs.map((value) => [value, origin]));
  const takers = new Map<number, string[]>();
  const takes = (value: number, peer: string): void => {
    const peers = takers.get(value) ?? [];
    if (!peers.includes(peer)) takers.set(value, [...peers, peer]);
  };
  stages.forEach(({ peer }, place) => {
    for (const value of gives[place] ?? []) makers.set(value, peer);
    for (const value of needs[place] ?? []) takes(value, peer);
  });
  for (const value of outputs) takes(value, origin);
  return { origin, stages, inputs, outputs, needs, gives, takers, makers };
}

/** Who computes, each once, in the order of their first stages. */
export function peersOf({ stages }: FlowRoute): string[] {
  return [...new Set(stages.map(({ peer }) => peer))];
}
