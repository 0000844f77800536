/*
 * Embedding and head of the model in this tab, for questions of which no other peer is to handle token ids (twin of
 * peer/origin/pinned_ends.py). Edge; pinned_ends.ts decides what travels then.
 *
 * The embedding is looked up on the page's thread, a row for each token. The head runs in a worker, as a stage does,
 * and draws one token after the other.
 */

import { CannotServe, textOf } from '../errors';
import type { Token } from '../wire/generated/frames';
import type { Fetcher, FetchProgress } from '../model/fetcher';
import { blobsOf, type Manifest } from '../planner/manifest';
import { abilities } from '../runtime/self_benchmark';
import { heldBytes } from '../runtime/unit_benchmark';
import { type Drawing, drawnToken, type Ends } from '../session/pinned_ends';
import { type Answer, StageRuntime } from '../runtime/worker_handle';
import type { Room } from '../runtime/worker_messages';
import { type Tensor, tensorOf } from '../wire/tensors';
import { EmbeddingTable } from '../runtime/weight_unpacking';

const CONTEXT = 1; // the head looks at no other position
const SESSION = 'head'; // all tokens are drawn in one: they wait for each other anyway

interface Waiting {
  readonly drawing: Drawing;
  readonly tell: (token: Token | null) => void;
}

/** The first and the last unit of the model, loaded here. */
export class OwnEnds implements Ends {
  readonly width: number;
  private readonly table: EmbeddingTable;
  private readonly vocab: number;
  private readonly head: StageRuntime;
  private readonly waiting: Map<number, Waiting>;
  private last = 0;
  private isClosed = false; // nothing is drawn any more

  private constructor(
    manifest: Manifest,
    table: EmbeddingTable,
    head: StageRuntime,
    waiting: Map<number, Waiting>,
  ) {
    this.width = manifest.architecture.hidden;
    this.vocab = manifest.architecture.vocab;
    this.table = table;
    this.head = head;
    this.waiting = waiting;
  }

  /** Fetches and loads them. `lost`: the worker is gone, and draws nothing any more. Raises CannotServe. */
  static async load(
    manifest: Manifest,
    fetcher: Fetcher,
    signal: AbortSignal,
    progress: (of: FetchProgress) => void,
    lost: (text: string) => void,
  ): Promise<OwnEnds> {
    const [first] = manifest.units;
    const stop = manifest.units.length;
    if (first === undefined || !hasEnds(manifest)) {
      throw new CannotServe('this model has no embedding and head that a tab could keep');
    }
    // One after the other: where both are one blob, the second copy comes from what this browser keeps.
    const embedding = await fetcher.blobs([first.blob], signal, progress);
    const blobs = await fetcher.blobs(blobsOf(manifest, stop - 1, stop), signal, progress);
    const blob = embedding.get(first.blob.sha256) ?? new Uint8Array();
    const table = new EmbeddingTable({ unit: first, blob }, manifest.architecture.hidden);
    const { threads } = await abilities();
    const room: Room = { provider: 'wasm', threads, slots: 1, context: CONTEXT };
    const waiting = new Map<number, Waiting>();
    let made: OwnEnds | null = null;
    const receiver = {
      answers: (answers: readonly Answer[]) => {
        for (const answer of answers) {
          const asked = waiting.get(answer.turn);
          waiting.delete(answer.turn);
          const token = answer.kind === 'done' ? answer.token : null;
          asked?.tell(token === null ? null : drawnToken(asked.drawing, token));
        }
      },
      lost: (text: string) => {
        made?.close();
        for (const { tell } of [...waiting.values()]) tell(null);
        waiting.clear();
        lost(text);
      },
    };
    const load = { manifest, first: stop - 1, stop, blobs };
    const head = await StageRuntime.load(load, room, receiver, signal);
    made = new OwnEnds(manifest, table, head, waiting);
    return made;
  }

  embed(tokens: Int32Array): Tensor {
    if (tokens.some((token) => token < 0 || token >= this.vocab)) {
      throw new CannotServe(`token ids below ${this.vocab} expected`);
    }
    return tensorOf(this.table.rows(tokens), [tokens.length, this.width]);
  }

  draw(drawing: Drawing, state: Float32Array, tell: (token: Token | null) => void): void {
    if (this.isClosed) {
      queueMicrotask(() => tell(null));
      return;
    }
    const { sampling, position, history, generated } = drawing.pick;
    this.last += 1;
    this.waiting.set(this.last, { drawing, tell });
    this.head.submit({
      session: SESSION,
      turn: this.last,
      position: 0,
      tokens: null,
      hidden: state.slice(),
      last: true,
      pick: { sampling, position, history: [...history], generated },
      mostRows: 0,
      prompt: false,
      behind: false,
    });
  }

  /** Gives the memory back. */
  close(): void {
    this.isClosed = true;
    this.head.close();
  }
}

/** Whether the model begins and ends with token ids. */
export function hasEnds({ units }: Manifest): boolean {
  return units[0]?.kind === 'embed' && units.at(-1)?.kind === 'head';
}

/** What a tab holds that keeps them, in bytes: the embedding as it is stored, the head as it is multiplied. */
export function endsBytes({ units, architecture }: Manifest): number {
  const ends = [units[0], units.at(-1)].filter((unit) => unit !== undefined);
  return ends.reduce((sum, unit) => sum + heldBytes(unit, 'wasm', architecture), 0);
}

export type EndsState =
  | { readonly kind: 'away' }
  | { readonly kind: 'loading'; readonly hereBytes: number; readonly totalBytes: number }
  | { readonly kind: 'here' }
  | { readonly kind: 'failed'; readonly text: string };

/** The ends of one mesh's model: loaded when they are needed, given back when nobody needs them. */
export class KeptEnds {
  state: EndsState = { kind: 'away' };
  readonly bytes: number; // that they take, loaded; 0: the model has none
  private readonly manifest: Manifest;
  private readonly fetcher: Fetcher;
  private readonly signal: AbortSignal;
  private readonly changed: () => void;
  private made: Promise<OwnEnds> | null = null;
  private loads = 0; // so that one that was given up says nothing any more
  private users = 0; // answers under way
  private wished = false; // the person wants them here, whether an answer needs them or not

  constructor(manifest: Manifest, fetcher: Fetcher, signal: AbortSignal, changed: () => void) {
    this.manifest = manifest;
    this.fetcher = fetcher;
    this.signal = signal;
    this.changed = changed;
    this.bytes = hasEnds(manifest) ? endsBytes(manifest) : 0;
    signal.addEventListener('abort', () => this.drop());
  }

  /** Keeps them here from now on, or only as long as an answer needs them. */
  wish(here: boolean): void {
    if (this.wished === here) return;
    this.wished = here;
    if (here)
      this.load().catch(() => undefined); // said by `state`
    else if (this.users === 0) this.drop();
  }

  /** For one answer; `giveBack` when it is over. Raises CannotServe. */
  async take(): Promise<OwnEnds> {
    this.users += 1;
    try {
      return await this.load();
    } catch (error) {
      this.giveBack();
      throw error;
    }
  }

  giveBack(): void {
    this.users -= 1;
    if (this.users === 0 && !this.wished) this.drop();
  }

  private load(): Promise<OwnEnds> {
    this.made ??= this.loaded();
    return this.made;
  }

  private async loaded(): Promise<OwnEnds> {
    const mine = (this.loads += 1);
    const say = (state: EndsState): void => {
      if (mine !== this.loads) return;
      if (state.kind === 'failed') this.made = null; // the next answer tries again
      this.state = state;
      this.changed();
    };
    say({ kind: 'loading', hereBytes: 0, totalBytes: 0 });
    try {
      const { manifest, fetcher, signal } = this;
      const progress = ({ hereBytes, totalBytes }: FetchProgress): void =>
        say({ kind: 'loading', hereBytes, totalBytes });
      const made = await OwnEnds.load(manifest, fetcher, signal, progress, (text) =>
        say({ kind: 'failed', text }),
      );
      say({ kind: 'here' });
      return made;
    } catch (error) {
      const text = textOf(error);
      say({ kind: 'failed', text });
      throw error instanceof CannotServe ? error : new CannotServe(text);
    }
  }

  private drop(): void {
    const { made } = this;
    this.made = null;
    this.loads += 1;
    this.state = { kind: 'away' };
    made?.then(
      (ends) => ends.close(),
      () => undefined, // it never came to be
    );
    this.changed();
  }
}
