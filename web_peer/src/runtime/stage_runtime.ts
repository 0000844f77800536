/*
 * What runs next on a peer's shard: batches the decodes that wait and lets prompts in between. Runs in a worker; the
 * twin of peer/runtime/stage_runtime.py.
 *
 * Steps of one session run in the order they were submitted. Every result depends on the session's own tokens only:
 * not on what else is in a batch, on the chunks a prompt came in, nor on where the model is cut.
 */

import { DeviceLost } from '../errors';
import type { Execution } from './execution';
import type { SessionId } from '../wire/generated/frames';
import { type FrontWork, KeptFronts } from './prefix_kv';
import { KvSlots, type Span, spans } from './kv_slots';
import { PieceSizes, pieceStop } from './piece_sizes';
import { type CacheWork, MovedCaches } from './kv_transfer';
import { allowedOnly } from '../session/ask';
import { sample, type Sampling } from '../session/sampling';
import { shifted } from '../session/position_spans';

export const GAP_ROWS = 2; // idle rows carried along in a decode batch: each costs a third of another call, in Python a quarter
const MAX_REASON = 500; // characters

/** Why a step did not run. The numbers go over the wire. */
export const REFUSALS = {
  missingPosition: 1,
  contextOverflow: 2,
  noSlot: 3,
  notFiniteInput: 4,
  notFiniteOutput: 5,
  failed: 6,
} as const;
export type RefusalReason = (typeof REFUSALS)[keyof typeof REFUSALS];

/** How the head's logits become the token for `position`; of `history` the last `generated` are this answer's. */
export interface Pick {
  readonly sampling: Sampling;
  readonly position: number;
  readonly history: readonly number[];
  readonly generated: number;
  readonly allowed?: readonly number[]; // tokens that may be drawn, as a mask; left out: every token
}

/**
 * T tokens of a session from `position` on: `tokens` (T,) on the shard with the embedding, unless who asks keeps that;
 * else `hidden` (T, hidden).
 *
 * `last`: the last chunk of a prompt, or a decode step; only then does the head run, for the last token, and `pick`
 * is applied. `turn` is given back with the answer. A decode batch with this step has at most `mostRows` rows (0: no
 * bound), so that stages overlap.
 *
 * `prompt`: these tokens are given, not sampled, however few they are. Attention adds up in another order for a single
 * token than for several, so a stream is repeated to the bit when its prompt is sent as prompt again, in any chunks,
 * and its sampled tokens one by one.
 */
export interface Step {
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly tokens: Int32Array | null;
  readonly hidden: Float32Array | null;
  readonly last: boolean;
  readonly pick: Pick | null;
  readonly mostRows: number;
  readonly prompt: boolean;
  readonly behind: boolean; // nobody waits for it: it runs when nothing else does
  readonly shift: number; // by how much places of `tokens` differ from their positions
  readonly wantsLogits?: boolean; // for a check: the answer has them
}

export interface Done {
  readonly kind: 'done';
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly count: number;
  readonly hidden: Float32Array | null; // (count, hidden) unless this shard has the head
  readonly token: number | null;
  readonly logits: Float32Array | null; // where the step wants them
}

/** The step did not run, or its result was thrown away; `have` positions are cached here. */
export interface Refused {
  readonly kind: 'refused';
  readonly session: SessionId;
  readonly turn: number;
  readonly position: number;
  readonly have: number;
  readonly reason: RefusalReason;
  readonly text: string;
}

export type Answer = Done | Refused;

interface Truncate {
  readonly length: number;
}

/** A step of several tokens under way: `done` of them have run. */
interface Prompt {
  readonly step: Step;
  readonly hidden: Float32Array;
  done: number;
  readonly results: Float32Array[];
}

type Queued =
  | { readonly kind: 'step'; readonly step: Step }
  | { readonly kind: 'prompt'; readonly prompt: Prompt }
  | { readonly kind: 'truncate'; readonly truncate: Truncate };

class Refusal extends Error {
  readonly reason: RefusalReason;

  constructor(reason: RefusalReason, text: string) {
    super(text);
    this.reason = reason;
  }
}

/** Values of a row that crosses borders, and of logits. */
export interface Widths {
  readonly hidden: number;
  readonly vocab: number;
}

/** `slots` sessions of up to `context` positions. */
export interface StageRoom {
  readonly slots: number;
  readonly context: number;
}

/** Queues and slots of one loaded shard. `turn()` runs what is due once; its owner calls it while `busy`. */
export class Stage {
  private readonly execution: Execution;
  private readonly widths: Widths;
  private readonly slots: KvSlots;
  private readonly waiting = new Map<SessionId, Queued[]>();
  private answers: Answer[] = [];
  private readonly fronts: KeptFronts;
  private readonly moved: MovedCaches;
  private readonly sizes = new PieceSizes();
  private readonly now: () => number;
  private between: (SessionId | FrontWork | CacheWork)[] = []; // what is released and copied, in the order it came

  /** `now` gives milliseconds. */
  constructor(execution: Execution, widths: Widths, room: StageRoom, now = () => performance.now()) {
    this.now = now;
    this.execution = execution;
    this.widths = widths;
    this.slots = new KvSlots(room.slots, room.context);
    this.fronts = new KeptFronts(execution, this.slots);
    this.moved = new MovedCaches(execution, this.slots, (rows, positions) => this.ensure(rows, positions));
  }

  get busy(): boolean {
    return this.waiting.size > 0 || this.between.length > 0;
  }

  submit(step: Step): void {
    this.queue(step.session, { kind: 'step', step });
  }

  /** Keeps the first `length` positions only; steps submitted before run first. */
  truncate(session: SessionId, length: number): void {
    this.queue(session, { kind: 'truncate', truncate: { length } });
  }

  /** Frees the session's slot; its queued steps are dropped without an answer. */
  release(session: SessionId): void {
    this.waiting.delete(session);
    this.between.push(session);
  }

  /** Keeps, copies or gives up the cache of a front, after what came before. */
  front(work: FrontWork): void {
    this.between.push(work);
  }

  /** Gives or takes the cache of a session, after what came before. */
  cache(work: CacheWork): void {
    this.between.push(work);
  }

  /** Of fronts that are kept. */
  get frontBytes(): number {
    return this.fronts.bytes;
  }

  lengths(): Map<SessionId, number> {
    return this.slots.lengths();
  }

  /**
   * Runs what waits: one decode batch and one piece of a prompt. Gives the answers that came of it. Raises DeviceLost.
   */
  async turn(): Promise<Answer[]> {
    this.settle();
    await this.decodeBatch();
    this.settle();
    await this.promptPiece();
    this.settle();
    const answers = this.answers;
    this.answers = [];
    return answers;
  }

  private queue(session: SessionId, item: Queued): void {
    const queue = this.waiting.get(session);
    if (queue === undefined) this.waiting.set(session, [item]);
    else queue.push(item);
  }

  /** Slots that were freed, fronts and truncations that are due; only between calls of the execution. */
  private settle(): void {
    for (const item of this.between.splice(0)) {
      if (typeof item !== 'string') {
        if ('done' in item) this.copyCache(item);
        else this.copyFront(item);
        continue;
      }
      this.sizes.released(item);
      const move = this.slots.release(item);
      if (move !== null) this.execution.move(move);
    }
    for (const [session, queue] of [...this.waiting]) {
      for (let first = queue[0]; first?.kind === 'truncate'; first = queue[0]) {
        queue.shift();
        if (this.slots.row(session) === null) continue;
        const kept = Math.min(first.truncate.length, this.slots.length(session));
        this.cut(session, Math.max(0, kept));
      }
      if (queue.length === 0) this.waiting.delete(session);
    }
  }

  /** One that cannot be copied is computed: the session's steps say what they lack. */
  private copyFront(work: FrontWork): void {
    try {
      this.fronts.do(work);
    } catch (error) {
      if (error instanceof DeviceLost) throw error;
      this.fronts.clear(); // memory is short
    }
  }

  private copyCache(work: CacheWork): void {
    try {
      this.moved.do(work);
    } catch (error) {
      if (error instanceof DeviceLost) throw error;
      if (work.what === 'read') work.done(null);
      else work.done(false); // memory is short
    }
  }

  /** Room for sessions comes before fronts, which go when it does not fit. */
  private ensure(rows: number, positions: number): void {
    try {
      this.execution.ensure(this.slots, rows, positions);
    } catch (error) {
      if (error instanceof DeviceLost || this.fronts.size === 0) throw error;
      this.fronts.clear();
      this.execution.ensure(this.slots, rows, positions);
    }
  }

  /** The session's first item is answered; what follows it may run, behind the others, so that prompts take turns. */
  private next(session: SessionId, queue: Queued[]): void {
    queue.shift();
    if (this.waiting.get(session) !== queue) return; // released while it ran
    this.waiting.delete(session);
    if (queue.length > 0) this.waiting.set(session, queue);
  }

  /** The sessions to look at now: those that somebody waits for, or all when there are none. */
  private due(): [SessionId, Queued[]][] {
    const all = [...this.waiting];
    const urgent = all.filter(([, queue]) =>
      queue.some((item) => {
        if (item.kind === 'truncate') return false;
        return !(item.kind === 'step' ? item.step : item.prompt.step).behind;
      }),
    );
    return urgent.length > 0 ? urgent : all;
  }

  /** Runs the waiting one-token steps of all sessions, in as few calls as their rows allow. */
  private async decodeBatch(): Promise<void> {
    const ready = new Map<number, Ready>();
    for (const [, queue] of this.due()) {
      const first = queue[0];
      if (first?.kind !== 'step' || !isDecode(first.step, this.widths.hidden)) continue;
      const { step } = first;
      if (step.mostRows > 0 && ready.size >= step.mostRows) continue;
      try {
        const row = this.admit(step);
        ready.set(row, { step, queue });
      } catch (error) {
        this.refuse(step, queue, error);
      }
    }
    const rows = [...ready.keys()].sort((a, b) => a - b);
    if (rows.length === 0) return;
    const urgent = [...ready.values()].filter(({ step }) => !step.behind).map(({ step }) => step.session);
    const begun = this.now();
    for (const span of spans(rows, GAP_ROWS)) await this.decodeSpan(span, ready);
    if (urgent.length > 0) this.sizes.decoded(begun / 1000, this.now() / 1000, urgent);
  }

  private async decodeSpan(span: Span, ready: ReadonlyMap<number, Ready>): Promise<void> {
    const width = this.widths.hidden;
    const count = span.stop - span.start;
    const mine = [...ready].filter(([row]) => row >= span.start && row < span.stop);
    const lengths = Array.from({ length: count }, (_, at) => {
      return ready.get(span.start + at)?.step.position ?? this.slots.lengthOfRow(span.start + at);
    });
    let results: Result[];
    try {
      this.ensure(span.stop, Math.max(...lengths) + 1);
      const hidden = new Float32Array(count * width);
      for (const [row, { step }] of mine) hidden.set(await this.input(step), (row - span.start) * width);
      const made = (await this.execution.decode(hidden, span, lengths)).slice();
      results = await this.withLogits(
        mine.map(([row, one]) => {
          const at = (row - span.start) * width;
          return { ...one, hidden: made.slice(at, at + width), logits: null };
        }),
      );
    } catch (error) {
      for (const [, { step, queue }] of mine) this.fail(step, queue, error);
      return;
    }
    for (const result of results) this.finish(result);
  }

  /** The head's logits for those results that want them, all in one call. */
  private async withLogits(results: Result[]): Promise<Result[]> {
    const wanting = results.filter(({ step }) => step.last && this.execution.hasHead);
    if (wanting.length === 0) return results;
    const width = this.widths.hidden;
    const { vocab } = this.widths;
    const rows = new Float32Array(wanting.length * width);
    wanting.forEach(({ hidden }, at) => rows.set(hidden.subarray(hidden.length - width), at * width));
    const logits = await this.execution.head(rows);
    return results.map((result) => {
      const at = wanting.indexOf(result);
      return at < 0 ? result : { ...result, logits: logits.subarray(at * vocab, (at + 1) * vocab) };
    });
  }

  /** Runs one piece of the first waiting prompt. */
  private async promptPiece(): Promise<void> {
    for (const [session, queue] of this.due()) {
      const first = queue[0];
      if (first === undefined || first.kind === 'truncate') continue;
      const step = first.kind === 'prompt' ? first.prompt.step : first.step;
      if (first.kind === 'step' && isDecode(step, this.widths.hidden)) continue;
      await this.piece(session, queue, step, first.kind === 'prompt' ? first.prompt : null);
      return;
    }
  }

  private async piece(
    session: SessionId,
    queue: Queued[],
    step: Step,
    underWay: Prompt | null,
  ): Promise<void> {
    try {
      let prompt = underWay;
      if (prompt === null) {
        this.admit(step);
        prompt = { step, hidden: await this.input(step), done: 0, results: [] };
        if (this.waiting.get(session) !== queue) return; // released meanwhile
        queue[0] = { kind: 'prompt', prompt };
      }
      await this.runPiece(session, prompt);
      if (this.waiting.get(session) !== queue) return; // released while it ran
      if (prompt.done * this.widths.hidden < prompt.hidden.length) {
        this.waiting.delete(session);
        this.waiting.set(session, queue);
        return;
      }
      const hidden = joined(prompt.results);
      const [result] = await this.withLogits([{ step, queue, hidden, logits: null }]);
      if (result !== undefined) this.finish(result);
    } catch (error) {
      if (error instanceof Refusal) this.refuse(step, queue, error);
      else this.fail(step, queue, error);
    }
  }

  private async runPiece(session: SessionId, prompt: Prompt): Promise<void> {
    const width = this.widths.hidden;
    const begun = this.now();
    const most = this.sizes.next(begun / 1000);
    const row = this.slots.row(session);
    if (row === null) throw new Error('a session under way has a row');
    const start = prompt.step.position + prompt.done;
    const stop = pieceStop(start, start + most, this.execution.widestHead);
    const piece = prompt.hidden.subarray(prompt.done * width, (prompt.done + stop - start) * width);
    const count = piece.length / width;
    this.ensure(row + 1, start + count + 1);
    const result = (await this.execution.prompt(piece, row, start)).slice();
    if (!isFinite(result)) throw notFinite();
    prompt.results.push(result);
    this.sizes.ran(session, count, (this.now() - begun) / 1000);
    prompt.done += count;
    this.slots.setLength(session, start + count);
  }

  /** The session's row, its cache cut to the step's position; or a Refusal that changes nothing. */
  private admit(step: Step): number {
    this.check(step);
    let have = this.slots.length(step.session);
    if (step.position > 0 && step.position < have) have = this.cut(step.session, step.position);
    if (step.position < 0 || step.position > have) {
      const text = `position ${step.position} needs as many cached, have ${have}`;
      throw new Refusal(REFUSALS.missingPosition, text);
    }
    const stop = step.position + tokensOf(step, this.widths.hidden);
    if (stop > this.slots.context) {
      const text = `${stop} positions do not fit the context of ${this.slots.context}`;
      throw new Refusal(REFUSALS.contextOverflow, text);
    }
    const row = this.slots.admit(step.session);
    if (row === null) {
      throw new Refusal(REFUSALS.noSlot, `all ${this.slots.limit} slots are taken; try again later`);
    }
    this.slots.setLength(step.session, step.position);
    return row;
  }

  /**
   * Keeps the first `length` positions of a session that has a row and as many; 0 of them where a window would look at
   * what was dropped. Returns how many are left.
   */
  private cut(session: SessionId, length: number): number {
    const row = this.slots.row(session);
    if (row === null) throw new Error('a session that has a row expected');
    const kept = this.execution.holds(row, length) ? length : 0;
    this.slots.setLength(session, kept);
    return kept;
  }

  /** The input's form; what a broken or hostile neighbour may send. */
  private check({ tokens, hidden }: Step): void {
    const { vocab, hidden: width } = this.widths;
    if (this.execution.hasEmbed && hidden === null) {
      if (tokens === null || tokens.length === 0) {
        throw new Refusal(REFUSALS.failed, 'token ids of shape (T,) expected by the first stage');
      }
      if (!tokens.every((token) => token >= 0 && token < vocab)) {
        throw new Refusal(REFUSALS.failed, `token ids below ${vocab} expected`);
      }
      return;
    }
    if (hidden === null || hidden.length === 0 || hidden.length % width !== 0) {
      throw new Refusal(REFUSALS.failed, `activations of shape (T, ${width}) expected`);
    }
    if (!isFinite(hidden)) {
      throw new Refusal(REFUSALS.notFiniteInput, 'the activation holds NaN or infinity');
    }
  }

  private async input({ tokens, hidden, shift }: Step): Promise<Float32Array> {
    if (hidden !== null) return hidden;
    if (tokens === null) throw new Error('a checked step has its input');
    return shifted(await this.execution.embed(tokens), this.widths.hidden, shift);
  }

  /** Answers the step with its result, unless that is not finite or no token can be drawn. */
  private finish({ step, queue, hidden, logits }: Result): void {
    if (this.waiting.get(step.session) !== queue) return; // released while it ran
    const width = this.widths.hidden;
    let token: number | null = null;
    try {
      if (!isFinite(hidden) || (logits !== null && !isFinite(logits))) throw notFinite();
      if (logits !== null && step.pick !== null) token = drawn(logits, step.pick);
    } catch (error) {
      if (error instanceof Refusal) this.refuse(step, queue, error);
      else this.fail(step, queue, error);
      return;
    }
    const count = hidden.length / width;
    this.slots.setLength(step.session, step.position + count);
    this.next(step.session, queue);
    const { session, turn, position } = step;
    const passed = logits === null ? hidden : null;
    const told = step.wantsLogits === true && logits !== null ? logits.slice() : null;
    this.answers.push({ kind: 'done', session, turn, position, count, hidden: passed, token, logits: told });
  }

  private refuse(step: Step, queue: Queued[], error: unknown): void {
    if (this.waiting.get(step.session) !== queue) return;
    const refusal = error instanceof Refusal ? error : new Refusal(REFUSALS.failed, String(error));
    const have = this.slots.length(step.session);
    this.next(step.session, queue);
    const { session, turn, position } = step;
    const text = refusal.message.slice(0, MAX_REASON);
    this.answers.push({ kind: 'refused', session, turn, position, have, reason: refusal.reason, text });
  }

  /** A step that went wrong is refused. A device that is lost ends the stage: others compute the step again. */
  private fail(step: Step, queue: Queued[], error: unknown): void {
    if (error instanceof DeviceLost) throw error;
    if (this.slots.length(step.session) > step.position) this.cut(step.session, step.position);
    this.refuse(step, queue, new Refusal(REFUSALS.failed, String(error)));
  }
}

interface Ready {
  readonly step: Step;
  readonly queue: Queued[];
}

interface Result {
  readonly step: Step;
  readonly queue: Queued[];
  readonly hidden: Float32Array;
  readonly logits: Float32Array | null;
}

function drawn(logits: Float32Array, { sampling, position, history, generated, allowed = [] }: Pick): number {
  const answer = generated > 0 ? history.slice(-generated) : [];
  return sample(allowedOnly(logits, allowed), sampling, position, history, answer);
}

function notFinite(): Refusal {
  return new Refusal(REFUSALS.notFiniteOutput, 'the result holds NaN or infinity');
}

function joined(parts: readonly Float32Array[]): Float32Array {
  if (parts.length === 1 && parts[0] !== undefined) return parts[0];
  const made = new Float32Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}

/** NaN and infinities make a sum that is not finite, and a sum of finite float32 in float64 cannot overflow. */
function isFinite(values: Float32Array): boolean {
  let sum = 0;
  for (let at = 0; at < values.length; at++) sum += values[at] as number;
  return Number.isFinite(sum);
}

/** One token that was sampled: it may share a call. Tokens of a prompt go by themselves. */
function isDecode(step: Step, width: number): boolean {
  return !step.prompt && tokensOf(step, width) === 1;
}

function tokensOf({ tokens, hidden }: Step, width: number): number {
  return tokens !== null ? tokens.length : hidden === null ? 0 : hidden.length / width;
}
