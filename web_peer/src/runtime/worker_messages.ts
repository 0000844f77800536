/* What a page and its runtime worker say to each other. Arrays are handed over, not copied. */

import type { FrontWork } from './prefix_kv';
import type { Provider } from '../planner/linear';
import type { Graphs } from '../planner/lowering';
import type { Dimensions, ManifestUnit } from '../planner/manifest';
import type { Answer, Step } from './stage_runtime';
import type { CachePart } from './execution';

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

/** A CachePart with the SHA-256 that its bytes must have, where they came from somebody else. */
export interface GivenPart extends CachePart {
  readonly sha256: string | null;
}

/** What one session caches, given or taken; the answer has the same `id`. */
export type CacheOrder = { readonly id: number; readonly session: string; readonly count: number } & (
  | { readonly what: 'read'; readonly names: readonly string[] }
  | { readonly what: 'write'; readonly parts: readonly GivenPart[] }
  | { readonly what: 'share'; readonly source: string }
);

/** What was read, with its SHA-256 in hex. */
export interface CacheRead {
  readonly values: Float32Array<ArrayBuffer>;
  readonly sha256: string;
}

/** What is said of one stage of a worker. `beside`: with the weights of a stage that is loaded there. */
export type ToStage =
  | {
      readonly kind: 'load';
      readonly dimensions: Dimensions;
      readonly units: readonly ManifestUnit[];
      readonly graphs: Graphs;
      readonly blobs: ReadonlyMap<string, Uint8Array>;
      readonly room: Room;
    }
  | {
      readonly kind: 'beside';
      readonly dimensions: Dimensions;
      readonly units: readonly ManifestUnit[];
      readonly room: Room;
    }
  | { readonly kind: 'unload' }
  | { readonly kind: 'steps'; readonly steps: readonly Step[] }
  | { readonly kind: 'front'; readonly work: FrontWork }
  | { readonly kind: 'cache'; readonly order: CacheOrder }
  | { readonly kind: 'truncate'; readonly session: string; readonly length: number }
  | { readonly kind: 'release'; readonly session: string };

export type ToWorker = ToStage & { readonly stage: number };

export type FromStage =
  | { readonly kind: 'loaded'; readonly memory: MemoryBytes }
  | { readonly kind: 'failed'; readonly text: string }
  | {
      readonly kind: 'answers';
      readonly answers: readonly Answer[];
      readonly lengths: ReadonlyMap<string, number>;
      readonly memory: MemoryBytes;
    }
  | {
      readonly kind: 'cache';
      readonly id: number;
      readonly read: CacheRead | null;
      readonly isThere: boolean;
    };

export type FromWorker =
  (FromStage & { readonly stage: number }) | { readonly kind: 'lost'; readonly text: string }; // the GPU device is gone: no stage answers any more
