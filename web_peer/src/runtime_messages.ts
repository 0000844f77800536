/* What a page and its runtime worker say to each other. Arrays are handed over, not copied. */

import type { FrontWork } from './kept_fronts';
import type { Architecture, ManifestUnit } from './manifest';
import type { Graphs, Provider } from './shards';
import type { Answer, Step } from './stage';

/** How a runtime is sized, and on what it runs. */
export interface Room {
  readonly provider: Provider;
  readonly threads: number;
  readonly slots: number;
  readonly context: number;
}

export interface MemoryBytes {
  readonly weights: number;
  readonly kv: number;
  readonly fronts: number; // kept beside those of sessions
  readonly overhead: number;
}

export type ToWorker =
  | {
      readonly kind: 'load';
      readonly architecture: Architecture;
      readonly units: readonly ManifestUnit[];
      readonly graphs: Graphs;
      readonly blobs: ReadonlyMap<string, Uint8Array>;
      readonly room: Room;
    }
  | { readonly kind: 'steps'; readonly steps: readonly Step[] }
  | { readonly kind: 'front'; readonly work: FrontWork }
  | { readonly kind: 'truncate'; readonly session: string; readonly length: number }
  | { readonly kind: 'release'; readonly session: string };

export type FromWorker =
  | { readonly kind: 'loaded'; readonly memory: MemoryBytes }
  | { readonly kind: 'failed'; readonly text: string }
  | {
      readonly kind: 'answers';
      readonly answers: readonly Answer[];
      readonly lengths: ReadonlyMap<string, number>;
      readonly memory: MemoryBytes;
    }
  | { readonly kind: 'lost'; readonly text: string }; // the GPU device is gone: nothing answers any more
