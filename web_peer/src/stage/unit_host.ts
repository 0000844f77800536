/*
 * The runs of units that this tab has loaded: fetching them, making their runtimes, handing steps to the workers (twin
 * of peer/stage/unit_host.py). Edge.
 */

import {
  type FreeSlot,
  type NotRan,
  type PrefixWork,
  type Ran,
  reasonOf,
  type RunStep,
} from '../session/effects';
import type { FetchProgress, Fetcher } from '../model/fetcher';
import { blobsOf, kvBytes, type Manifest, sessionBytes } from '../planner/manifest';
import type { ModelChosen, Profile } from '../state/generated/commands';
import { type Run, runKey } from '../state/plan_record';
import type { Pacing } from './slowdown_reports';
import {
  type Answer,
  type MemoryBytes,
  type Room,
  StageRuntime,
  type StageWorkers,
  type Step,
} from '../runtime/worker_handle';
import { StepTimes } from '../runtime/step_times';
import { textOf } from '../errors';
import { nowS } from '../transport/ticker';

/** What looks at how long steps take. */
export type Paced = Pick<Pacing, 'begun' | 'ended' | 'dropped' | 'isSteady'>;

/** Of a model whose steps say nothing of how fast this tab is. */
export const UNPACED: Paced = {
  begun: () => undefined,
  ended: () => undefined,
  dropped: () => undefined,
  isSteady: () => true,
};

/** Steps of one session that nobody else hears of (recomputation.ts). */
export interface Aside {
  submit(step: Step): void;
  close(): void;
}

/** What becomes of units that are loaded here. */
export interface UnitEvents {
  results(results: readonly (Ran | NotRan)[]): void;
  /** A worker or its GPU device is gone; its run is no longer loaded. */
  lost(run: Run, text: string): void;
}

/** Loaded runs of one model, each with its runtime. Steps go in, and events tell what became of them. */
export class Serving {
  readonly stepTimes = new StepTimes();
  private readonly pacing: Paced;
  private readonly fetcher: Fetcher;
  private readonly manifest: Manifest;
  private room: Room;
  private readonly events: UnitEvents;
  private readonly workers: StageWorkers;
  private readonly asides = new Map<string, (answer: Answer) => void>(); // by session
  private readonly runtimes = new Map<string, { readonly run: Run; readonly runtime: StageRuntime }>();

  /** `pacing` looks at how long steps take; `workers` are those of all models of this tab. */
  constructor(
    fetcher: Fetcher,
    manifest: Manifest,
    room: Room,
    pacing: Paced,
    events: UnitEvents,
    workers: StageWorkers,
  ) {
    this.workers = workers;
    this.fetcher = fetcher;
    this.manifest = manifest;
    this.room = room;
    this.pacing = pacing;
    this.events = events;
  }

  /** The runs that can serve, sorted. */
  get runs(): readonly Run[] {
    return [...this.runtimes.values()]
      .map(({ run }) => run)
      .sort((a, b) => a.first - b.first || a.stop - b.stop);
  }

  /** What computes units `run` here. */
  runtime(run: Run): StageRuntime | null {
    return this.runtimes.get(runKey(run))?.runtime ?? null;
  }

  /** Whether nothing runs beside answers, and steps take what was measured. */
  isAtRest(): boolean {
    return this.asides.size === 0 && this.pacing.isSteady();
  }

  /** Fetches and loads units [first, stop). Raises CannotServe, and nothing stays loaded; a GPU's refusal is a loss. */
  async load(run: Run, progress: (of: FetchProgress) => void, signal: AbortSignal): Promise<void> {
    if (this.runtimes.has(runKey(run))) return;
    const { first, stop } = run;
    const { manifest, room, workers } = this;
    const equal = await workers.having({ manifest, first, stop }, room);
    signal.throwIfAborted();
    const receiver = {
      answers: (answers: readonly Answer[]) => this.answered(run, answers),
      lost: (text: string) => this.lost(run, text),
    };
    const fetched = async (): Promise<StageRuntime> => {
      const blobs = await this.fetcher.blobs(blobsOf(manifest, first, stop), signal, progress);
      signal.throwIfAborted();
      return StageRuntime.load({ manifest, first, stop, blobs }, room, receiver, signal, workers);
    };
    try {
      const runtime = await (equal === null || equal.isOver
        ? fetched()
        : StageRuntime.beside(equal, { manifest, first, stop }, room, receiver, signal));
      this.runtimes.set(runKey(run), { run, runtime });
    } catch (error) {
      if (room.provider !== 'webgpu' || signal.aborted) throw error;
      this.events.lost(run, textOf(error)); // there is another provider, which takes what a GPU refuses
    }
  }

  /** Stops the run's worker and gives its memory back. */
  unload(run: Run): void {
    this.runtimes.get(runKey(run))?.runtime.close();
    this.runtimes.delete(runKey(run));
    this.stepTimes.unloaded(run);
  }

  /** Queues a step; a run that is not loaded refuses it at once. */
  submit(step: RunStep): void {
    const loaded = this.runtimes.get(runKey(step.run));
    const { run, session, epoch, position, tokens, hidden, last, prompt, mostRows, behind } = step;
    if (loaded === undefined) {
      const text = `units ${step.run.first}-${step.run.stop - 1} are no longer loaded here`;
      const refusal: NotRan = { run, session, epoch, position, have: 0, reason: 'unknown_plan', text };
      queueMicrotask(() => this.events.results([refusal]));
      return;
    }
    if (this.asides.size === 0) this.pacing.begun(step); // what runs beside makes it no slower
    this.stepTimes.begun(nowS(), step, step.count === 1 && !behind);
    const pick = step.pick === null ? null : { ...step.pick, history: [...step.pick.history] };
    const turn = epoch;
    loaded.runtime.submit({
      session,
      turn,
      position,
      tokens,
      hidden,
      last,
      pick,
      prompt,
      mostRows,
      behind,
      shift: step.shift,
    });
  }

  /** Frees the session's slot; what still waits of it is dropped. */
  free(effect: FreeSlot): void {
    const { run, session } = effect;
    this.pacing.dropped(effect);
    this.stepTimes.dropped(run, session);
    this.runtimes.get(runKey(run))?.runtime.release(session);
  }

  /** Keeps, copies or gives up the cache of a front; a run that is not loaded has none. */
  front({ run, what, session, digest, count }: PrefixWork): void {
    this.runtimes.get(runKey(run))?.runtime.front({ what, session, digest, count });
  }

  /** Of cache, for one position of one session of `run`. */
  positionBytes({ first, stop }: Run): number {
    return kvBytes(this.manifest.units.slice(first, stop).flatMap(({ kv }) => kv));
  }

  /** Of caches of so many sessions of `context` positions, promised to them, that nobody has needed so far. */
  spareBytes(sessions: number, context: number): number {
    const { units, window } = this.manifest;
    const promised = this.runs
      .flatMap(({ first, stop }) => units.slice(first, stop))
      .reduce((sum, unit) => sum + sessions * sessionBytes(unit, context, window), 0);
    return Math.max(0, promised - this.memoryBytes().kv);
  }

  /** Bytes of weights and KV cache over all loaded runs. */
  memoryBytes(): MemoryBytes {
    const sum = { weights: 0, kv: 0, overhead: 0, fronts: 0 };
    for (const { runtime } of this.runtimes.values()) {
      const part = runtime.memoryBytes();
      sum.weights += part.weights;
      sum.kv += part.kv;
      sum.overhead += part.overhead;
      sum.fronts += part.fronts;
    }
    return sum;
  }

  /** What is loaded from now on runs in `room`; runs of another provider are stopped. Gives those. */
  changeRoom(room: Room): readonly Run[] {
    const stopped = room.provider === this.room.provider ? [] : this.runs;
    this.room = room;
    for (const run of stopped) this.unload(run);
    return stopped;
  }

  close(): void {
    for (const { run } of [...this.runtimes.values()]) this.unload(run);
  }

  /** Has units `run` compute a session beside those of the route; null where they are not loaded. */
  aside(run: Run, session: string, take: (answer: Answer) => void): Aside | null {
    const loaded = this.runtimes.get(runKey(run));
    if (loaded === undefined) return null;
    this.asides.set(session, take);
    return {
      submit: (step) => loaded.runtime.submit(step),
      close: () => {
        this.asides.delete(session);
        loaded.runtime.release(session);
      },
    };
  }

  private answered(run: Run, answers: readonly Answer[]): void {
    const results: (Ran | NotRan)[] = [];
    for (const answer of answers) {
      const take = this.asides.get(answer.session);
      if (take === undefined) results.push(resultOf(run, answer));
      else take(answer);
    }
    if (results.length > 0) this.took(results);
  }

  private took(results: readonly (Ran | NotRan)[]): void {
    for (const result of results) {
      this.stepTimes.ended(nowS(), result, 'count' in result);
      this.pacing.ended(result);
    }
    this.events.results(results);
  }

  private lost(run: Run, text: string): void {
    this.unload(run);
    this.events.lost(run, text);
  }
}

function resultOf(run: Run, answer: Answer): Ran | NotRan {
  const { session, turn: epoch, position } = answer;
  if (answer.kind === 'done') {
    const { count, hidden, token } = answer;
    return { run, session, epoch, position, count, hidden, token };
  }
  const { have, reason, text } = answer;
  return { run, session, epoch, position, have, reason: reasonOf(reason), text };
}

/** How runtimes are sized: by what was measured here and what the mesh promises. */
export function roomOf(profile: Profile, model: ModelChosen): Room {
  const provider = profile.provider === 'webgpu' ? 'webgpu' : 'wasm';
  const slots = model.sessions + 1; // one that a check uses, so that it never takes that of an answer
  return { provider, threads: profile.threads, slots, context: model.context };
}
