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
import { makeGraphs, type Table } from '../planner/lowering';
import { blobsOf, type Decoder, type Manifest } from '../planner/manifest';
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
    this.width = manifest.hidden;
    this.vocab = manifest.vocab;
    this.table = table;
    this.head = head;
    this.waiting = waiting;
  }

  /** Fetches and loads them. `lost`: the worker is gone, and draws nothing any more. Raises CannotServe. */
  static async load(
    decoder: Decoder,
    fetcher: Fetcher,
    signal: AbortSignal,
    progress: (of: FetchProgress) => void,
    lost: (text: string) => void,
  ): Promise<OwnEnds> {
    const { manifest } = decoder;
    const stop = manifest.units.length;
    const rows = tableOf(decoder);
    if (rows === null) {
      throw new CannotServe(
        'this model has no embedding that a tab could keep: it does more than look rows up',
      );
    }
    // One after the other: where both are one blob, the second copy comes from what this browser keeps.
    const { blob: stored } = rows.unit;
    const embedding = await fetcher.blobs([stored], signal, progress);
    const blobs = await fetcher.blobs(blobsOf(manifest, stop - 1, stop), signal, progress);
    const table = new EmbeddingTable(rows, embedding.get(stored.sha256) ?? new Uint8Array());
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
      shift: 0,
    });
  }

  /** Gives the memory back. */
  close(): void {
    this.isClosed = true;
    this.head.close();
  }
}

/** The table of the first unit; null where it does more than look rows up: the page's thread computes nothing. */
function tableOf({ manifest, graphs }: Decoder): Table | null {
  const { table, embed } = makeGraphs(manifest, graphs, 0, 1, 'wasm');
  return embed === null ? table : null;
}

/** What a tab holds that keeps them, in bytes: the embedding as it is stored, the head as it is multiplied. */
export function endsBytes({ units }: Manifest): number {
  const ends = [units[0], units.at(-1)].filter((unit) => unit !== undefined);
  return ends.reduce((sum, unit) => sum + heldBytes(unit, 'wasm'), 0);
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
  private readonly decoder: Decoder;
  private readonly fetcher: Fetcher;
  private readonly signal: AbortSignal;
  private readonly changed: () => void;
  private made: Promise<OwnEnds> | null = null;
  private loads = 0; // so that one that was given up says nothing any more
  private users = 0; // answers under way
  private wished = false; // the person wants them here, whether an answer needs them or not

  constructor(decoder: Decoder, fetcher: Fetcher, signal: AbortSignal, changed: () => void) {
    this.decoder = decoder;
    this.fetcher = fetcher;
    this.signal = signal;
    this.changed = changed;
    this.bytes = tableOf(decoder) === null ? 0 : endsBytes(decoder.manifest);
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
      const { decoder, fetcher, signal } = this;
      const progress = ({ hereBytes, totalBytes }: FetchProgress): void =>
        say({ kind: 'loading', hereBytes, totalBytes });
      const made = await OwnEnds.load(decoder, fetcher, signal, progress, (text) =>
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
