/* Runs over made-up graphs as Python wrote them down: what both sides of a run were told, and what they decided. */

import type { FlowStage } from '../../src/dataflow/flow_route';
import type { ValueArray } from '../../src/dataflow/value_codec';
import type { GraphManifest, ValueType } from '../../src/planner/graph_manifest';
import { vectors } from '../vectors';

export type Triple = readonly [first: number, stop: number, peer: string];
export interface Call {
  readonly call: string;
  readonly said: readonly unknown[];
  readonly effects: readonly unknown[] | string;
  readonly kept: number;
}
interface Vectors {
  readonly manifests: readonly {
    readonly name: string;
    readonly values: readonly string[];
    readonly inputs: readonly string[];
    readonly outputs: readonly string[];
    readonly units: readonly { readonly inputs: readonly string[]; readonly outputs: readonly string[] }[];
  }[];
  readonly routes: readonly {
    readonly name: string;
    readonly stages: readonly Triple[];
    readonly says?: string;
    readonly needs?: unknown;
    readonly gives?: unknown;
    readonly takers?: unknown;
    readonly makers?: unknown;
  }[];
  readonly schedules: readonly {
    readonly name: string;
    readonly seed: number;
    readonly me: string;
    readonly most_bytes: number;
    readonly calls: readonly Call[];
  }[];
  readonly origins: readonly {
    readonly name: string;
    readonly seed: number;
    readonly calls: readonly (Omit<Call, 'kept'> & { readonly under_way: number; readonly below: number })[];
  }[];
  readonly values: readonly {
    readonly dtype: ValueType;
    readonly sizes: readonly (number | string)[];
    readonly shape: readonly number[];
    readonly data: string;
    readonly taken: boolean;
  }[];
}

export const flow = vectors('flow') as Vectors;

/** One of the made-up graphs. */
export function manifestOf(name: string): GraphManifest {
  const found = flow.manifests.find((each) => each.name === name);
  if (found === undefined) throw new Error(`no manifest ${name}`);
  const blob = { sha256: '', bytes: 0, pieces: [] };
  return {
    name,
    inputs: found.inputs,
    outputs: found.outputs,
    sizes: new Map(),
    fused: true,
    opset: 0,
    text: null,
    picture: null,
    values: found.values.map((each) => ({ name: each, dtype: 'int64', shape: [], bytes: [] })),
    units: found.units.map((unit, place) => ({
      ...{ name: `unit.${place}`, component: 'graph', graph: blob, weights: [], tensors: [], ...unit },
      ...{ params: 0, residentBytes: 0, flops: [], state: [], ops: [] },
    })),
  };
}

export const stagesOf = (triples: readonly Triple[]): FlowStage[] =>
  triples.map(([first, stop, peer]) => ({ first, stop, peer }));
export const arrayOf = (value: number): ValueArray => ({
  shape: [],
  data: new Uint8Array(BigInt64Array.of(BigInt(value)).buffer),
});
export const valueOf = ({ data }: ValueArray): number => Number(new BigInt64Array(data.slice().buffer)[0]);
export const arraysOf = (pairs: readonly (readonly [number, number])[]): Map<number, ValueArray> =>
  new Map(pairs.map(([value, number]) => [value, arrayOf(number)]));
export const pairsOf = (arrays: ReadonlyMap<number, ValueArray>): (readonly [number, number])[] =>
  [...arrays].map(([value, array]) => [value, valueOf(array)]);
