/*
 * Decides which computed fronts of prompts a stage keeps, and which sessions begin with one of them (twin of
 * peer/session/prefix_cache.py). Pure.
 *
 * A front is known by what goes into a stage: a hash over its inputs for positions [0, count), the token ids at the
 * first stage, activations at later ones. OPEN names it to the first stage; a stage that has it tells the next one the
 * hash of what it hands on. So nobody is believed: a front is used where a session's own inputs would be the same to
 * the bit.
 */

import { rows, rowsIn } from './activation_log';
import type { PrefixWork } from './effects';
import type { Open } from '../wire/generated/frames';
import { fromHex, toHex } from '../wire/hex';
import { type Run, runKey } from '../state/plan_record';
import type { Seat } from './seat';
import { sha256 } from '../wire/sha256';
import type { Tensor } from '../wire/tensors';
import { type Prefix, MARK, marksOf } from './prefix';

export const MOST_BYTES = 64 * 1024 * 1024; // of all fronts that a peer keeps
export const LENT_SHARE = 16; // and no more than this part of what it lends
export const ENTRY_BYTES = 1024; // what a front takes besides, and
export const MARK_ENTRY_BYTES = 64; // each of its marks
const WORDS = 4; // of `sampling`, behind the settings: how many positions, and the hash
const WORD_BYTES = 6;
const HASH_BYTES = (WORDS - 1) * WORD_BYTES;
const NOT_SAID = '00'.repeat(HASH_BYTES);
const SETTINGS: readonly number[] = [0, 8, 11]; // how many integers of `sampling` there are without these words

/** An OPEN that names a front, where its first positions are one. */
export function named(frame: Open, prefix: Prefix | null): Open {
  if (prefix === null || !fits(frame, prefix.count)) return frame;
  const bytes = fromHex(prefix.digest);
  const hashed = Array.from({ length: WORDS - 1 }, (_, at) =>
    bytes.subarray(at * WORD_BYTES, (at + 1) * WORD_BYTES).reduce((word, byte) => word * 256 + byte, 0),
  );
  return { ...frame, sampling: [...frame.sampling, prefix.count, ...hashed] };
}

/** An OPEN as it is without a front, and the front that it names. What is no front stays among the settings. */
export function split(frame: Open): readonly [Open, Prefix | null] {
  const left = frame.sampling.length - WORDS;
  if (!SETTINGS.includes(left) || SETTINGS.includes(frame.sampling.length)) return [frame, null];
  const [count = 0, ...hashed] = frame.sampling.slice(left);
  if (!fits(frame, count) || hashed.some((word) => !(word >= 0 && word < 2 ** (8 * WORD_BYTES)))) {
    return [frame, null];
  }
  const digest = hashed.map((word) => word.toString(16).padStart(2 * WORD_BYTES, '0')).join('');
  return [
    { ...frame, sampling: frame.sampling.slice(0, left) },
    { count, digest },
  ];
}

/** Whether `count` positions at the beginning were given, and something follows them. */
function fits({ promptTokens, spans }: Open, count: number): boolean {
  return count > 0 && count < promptTokens && count <= (spans[0] ?? 0);
}

/** Of what goes into a stage, by the mark of each row. */
export function hashOf(marks: readonly Uint8Array[]): string {
  const all = new Uint8Array(marks.length * MARK);
  marks.forEach((mark, at) => all.set(mark, at * MARK));
  return toHex(sha256(all).subarray(0, HASH_BYTES));
}

/** What a stage kept of one: the marks of its inputs, and what it handed on. */
interface Front {
  readonly run: Run;
  readonly digest: string;
  readonly count: number;
  readonly marks: readonly Uint8Array[];
  readonly outputs: readonly { readonly position: number; readonly tensor: Tensor }[];
  readonly onward: string; // hash over what goes into the next stage; NOT_SAID at the last one
  readonly bytes: number;
}

/** The fronts that one peer keeps, least recently used first. Their caches lie with the runtime. */
export class Prefixes {
  mostBytes: number;
  private readonly units: { positionBytes(run: Run): number };
  reused = 0; // positions that were not computed again
  private readonly all = new Map<string, Front>(); // by units and digest

  /** `units` tell the bytes of cache for one position of one session. */
  constructor(units: { positionBytes(run: Run): number }, mostBytes = MOST_BYTES) {
    this.units = units;
    this.mostBytes = mostBytes;
  }

  /** Of activations alone. */
  get logBytes(): number {
    let sum = 0;
    for (const { outputs } of this.all.values()) for (const { tensor } of outputs) sum += tensor.data.length;
    return sum;
  }

  /** Of caches and activations that are kept. */
  get keptBytes(): number {
    let sum = 0;
    for (const { bytes } of this.all.values()) sum += bytes;
    return sum;
  }

  get size(): number {
    return this.all.size;
  }

  /** A session takes a seat: what is known of its front is copied, and need not be computed. */
  begin(seat: Seat, prefix: Prefix | null): PrefixWork[] {
    if (prefix === null || seat.warms) return [];
    seat.prefix = { count: prefix.count, digest: NOT_SAID };
    const front = this.all.get(keyOf(seat.run, prefix.digest));
    if (front?.count !== prefix.count) return [];
    this.used(front);
    seat.computed = front.count;
    seat.rewind(front.count, seat.epoch);
    seat.log.clear(front.outputs.length > 0 ? 0 : front.count);
    for (const { position, tensor } of front.outputs) seat.log.append(position, tensor);
    seat.marks = [...front.marks];
    seat.onward = [];
    seat.prefix = { count: front.count, digest: front.onward };
    seat.frontKept = true;
    this.reused += front.count;
    return [workOf('share', seat.run, seat.session, front.digest, front.count)];
  }

  /** Another answer begins on a seat: maybe with another front. */
  again(seat: Seat, prefix: Prefix | null): void {
    seat.prefix = prefix === null ? null : { count: prefix.count, digest: NOT_SAID };
    seat.frontKept = false;
  }

  /** A seat computed more: keeps its front once that is there. */
  computed(seat: Seat): PrefixWork[] {
    const { prefix, run, session } = seat;
    if (prefix === null || seat.frontKept) return [];
    const { count } = prefix;
    if (!seat.isTail) markOnward(seat, count);
    if (seat.computed < count) return [];
    seat.frontKept = true;
    const marks = count <= seat.marks.length ? seat.marks.slice(0, count) : null;
    const outputs = seat.isTail ? [] : frontOf(seat, count);
    if (marks === null || outputs === null) return [];
    const digest = hashOf(marks);
    const known = this.all.get(keyOf(run, digest));
    if (known !== undefined) {
      this.used(known);
      seat.prefix = { count, digest: known.onward };
      return [];
    }
    const kept = outputs.reduce((sum, { tensor }) => sum + tensor.data.length, 0);
    const bytes = kept + count * (this.units.positionBytes(run) + MARK_ENTRY_BYTES) + ENTRY_BYTES;
    if (bytes > this.mostBytes) return [];
    const onward = outputs.length > 0 ? hashOf(seat.onward.slice(0, count)) : NOT_SAID;
    seat.prefix = { count, digest: onward };
    this.all.set(keyOf(run, digest), { run, digest, count, marks, outputs, onward, bytes });
    return [workOf('keep', run, session, digest, count), ...this.bound(this.mostBytes)];
  }

  /** Keeps no more than `mostBytes` from now on; what was used least goes first. */
  bound(mostBytes: number): PrefixWork[] {
    this.mostBytes = mostBytes;
    const work: PrefixWork[] = [];
    let left = this.keptBytes;
    for (const [key, { run, digest, bytes }] of this.all) {
      if (left <= mostBytes) break;
      this.all.delete(key);
      left -= bytes;
      work.push(workOf('drop', run, '', digest, 0));
    }
    return work;
  }

  /** Units `run` are unloaded, and with them what is cached for them. */
  forget(run: Run): void {
    for (const [key, front] of this.all) if (runKey(front.run) === runKey(run)) this.all.delete(key);
  }

  private used(front: Front): void {
    const key = keyOf(front.run, front.digest);
    this.all.delete(key);
    this.all.set(key, front);
  }
}

function keyOf(run: Run, digest: string): string {
  return `${runKey(run)}/${digest}`;
}

function workOf(
  what: PrefixWork['what'],
  run: Run,
  session: string,
  digest: string,
  count: number,
): PrefixWork {
  return { kind: 'prefixWork', what, run, session, digest, count };
}

/** Marks what was handed on since the last time: a whole front at once would hold up the page. */
function markOnward({ log, onward }: Seat, count: number): void {
  for (const { position, tensor } of log.since(onward.length) ?? []) {
    if (position !== onward.length || position >= count) return;
    onward.push(...marksOf(rows(tensor, 0, Math.min(rowsIn(tensor), count - position))));
  }
}

/** What the seat handed on for positions [0, count); null where its log has not all of it. */
function frontOf(seat: Seat, count: number): Front['outputs'] | null {
  const found = seat.log.since(0);
  if (found === null || seat.log.stop < count) return null;
  return found
    .filter(({ position }) => position < count)
    .map(({ position, tensor }) => ({
      position,
      tensor: rows(tensor, 0, Math.min(rowsIn(tensor), count - position)),
    }));
}
