/*
 * Decides what follows from each step of a peer's operations, and from the records of them after a restart (twin of
 * peer/storage/journal_core.py). Pure. An operation changes one thing: a run of units that is held here, or a session's
 * place at a stage.
 */

import { AlreadyBegun, NotAllowed, NotBegun, TransactionError, WrongRecord } from '../errors';
import {
  type Checkpoint,
  describe,
  type LogRecord,
  MAX_COUNT,
  MAX_RUNS,
  MAX_SESSIONS,
  type Operation,
  type Place,
  type Step,
  type Units,
} from './journal_records';

const CHECKPOINT_OPERATIONS = 256; // begun since the last checkpoint: bounds the records to read after a restart
const CHECKPOINT_TOKENS = 4096; // since the last checkpoint: bounds the tokens that a crash leaves uncounted

/** `kept`: a run that was held before a restart; it is given back, or given up. */
export type Standing = 'absent' | 'present' | 'kept';

// What an operation makes of a thing that stands so: [committed, rolled back]. What is not here may not begin.
const TABLE: Readonly<
  Record<Operation['kind'], Partial<Record<Standing, readonly [committed: Standing, rolledBack: Standing]>>>
> = {
  // Rolled back, a kept run is given up: else what ends the page is tried for ever.
  load: { absent: ['present', 'absent'], kept: ['present', 'absent'] },
  unload: { present: ['absent', 'present'], kept: ['absent', 'kept'] },
  migrate: { present: ['absent', 'present'] },
  open: { absent: ['present', 'absent'] },
  take_over: { absent: ['present', 'absent'], present: ['present', 'present'] }, // by a standby that computed behind
  close: { present: ['absent', 'present'] },
};
const DURABLE: ReadonlySet<Operation['kind']> = new Set(['load', 'unload', 'migrate', 'take_over']);

/** Tokens that this peer helped to make; no record, but it brings the next checkpoint nearer. */
export interface Sampled {
  readonly kind: 'sampled';
  readonly count: number;
}

export type LogEvent = Step | Sampled;
/** `write`: append; `durable`: it must lie on the disk before the operation goes on. `compact`: replace all. */
export type LogEffect =
  | { readonly kind: 'write'; readonly record: LogRecord; readonly durable: boolean }
  | { readonly kind: 'compact'; readonly checkpoint: Checkpoint };
/** `undo`: the operation was half done when the page ended; whatever is left of it is taken back. */
export type Recovery = LogEffect | { readonly kind: 'undo'; readonly operation: Operation };

/** What a peer was doing when it ended. */
export interface Recovered {
  readonly held: readonly Units[]; // in the order they were loaded
  readonly places: readonly Place[]; // sessions whose caches ended with the page
  readonly undone: readonly Operation[];
  readonly tokens: number;
}

export const NOTHING: Recovered = { held: [], places: [], undone: [], tokens: 0 };

interface Entry<T> {
  readonly thing: T;
  readonly standing: Standing;
}

/** The operations of one peer. `step` takes what happened and gives what to write. */
export class Transactions {
  private readonly runs = new Map<string, Entry<Units>>(); // in the order they came; absent ones are not in it
  private readonly seats = new Map<string, Entry<Place>>();
  private readonly underway = new Map<string, Operation>();
  private sampled = 0;
  private operationsSince = 0;
  private tokensSince = 0;

  /**
   * The log of a process that begins where the records end. Throws WrongRecord for an impossible order of them; with
   * `gaps`, where some are missing, those that do not follow are passed over.
   */
  static recover(records: Iterable<LogRecord>, gaps = false): [Transactions, Recovered, readonly Recovery[]] {
    let log = new Transactions();
    for (const record of records) {
      try {
        if (record.kind === 'checkpoint') log = Transactions.restored(record);
        else log.apply(record);
      } catch (error) {
        if (!(error instanceof TransactionError)) throw error;
        if (gaps) continue;
        throw new WrongRecord(`the records contradict each other: ${error.message}`);
      }
    }
    const undone = log.begun;
    for (const operation of undone) log.apply({ kind: 'rolled_back', operation });
    const recovered = {
      held: [...log.runs.values()].map(({ thing }) => thing),
      places: log.places,
      undone,
      tokens: log.tokens,
    };
    log.seats.clear();
    for (const [key, { thing }] of log.runs) log.runs.set(key, { thing, standing: 'kept' });
    const undoing = undone.map((operation): Recovery => ({ kind: 'undo', operation }));
    return [log, recovered, [...undoing, log.compacted()]];
  }

  private static restored(checkpoint: Checkpoint): Transactions {
    const log = new Transactions();
    log.sampled = checkpoint.tokens;
    const add = <T>(entries: Map<string, Entry<T>>, key: string, thing: T, standing: Standing): void => {
      if (entries.has(key)) throw new NotAllowed(`${key} stands twice in a checkpoint`);
      entries.set(key, { thing, standing });
    };
    for (const run of checkpoint.held) add(log.runs, unitsKey(run), run, 'present');
    for (const run of checkpoint.kept) add(log.runs, unitsKey(run), run, 'kept');
    for (const place of checkpoint.places) add(log.seats, placeKey(place), place, 'present');
    for (const operation of checkpoint.begun) log.apply({ kind: 'begun', operation });
    return log;
  }

  /** Runs that are loaded. */
  get held(): readonly Units[] {
    return this.standingSo('present');
  }

  /** Runs that were held before the restart, and neither loaded again nor given up. */
  get kept(): readonly Units[] {
    return this.standingSo('kept');
  }

  /** Sessions that are open here, the oldest first. */
  get places(): readonly Place[] {
    return [...this.seats.values()].map(({ thing }) => thing);
  }

  /** Operations that are under way. */
  get begun(): readonly Operation[] {
    return [...this.underway.values()];
  }

  /** Tokens that this peer helped to make, over all restarts. */
  get tokens(): number {
    return this.sampled;
  }

  /** How a run or a place stands, whatever is under way with it. */
  standing(thing: Units | Place): Standing {
    const entry = 'session' in thing ? this.seats.get(placeKey(thing)) : this.runs.get(unitsKey(thing));
    return entry?.standing ?? 'absent';
  }

  /** Raises AlreadyBegun, NotBegun, NotAllowed, and changes nothing then. */
  step(event: LogEvent): readonly LogEffect[] {
    const effects: LogEffect[] = [];
    switch (event.kind) {
      case 'sampled':
        if (!Number.isSafeInteger(event.count) || event.count < 0) {
          throw new NotAllowed(`expected a number of tokens, got ${event.count}`);
        }
        this.sampled = Math.min(MAX_COUNT, this.sampled + event.count);
        this.tokensSince += event.count;
        break;
      case 'begun':
        this.apply(event);
        this.operationsSince += 1;
        effects.push({ kind: 'write', record: event, durable: DURABLE.has(event.operation.kind) });
        break;
      case 'committed':
      case 'rolled_back':
        this.apply(event);
        effects.push({ kind: 'write', record: event, durable: false });
        break;
      default:
        return event satisfies never;
    }
    const due = this.operationsSince >= CHECKPOINT_OPERATIONS || this.tokensSince >= CHECKPOINT_TOKENS;
    return due ? [this.compacted()] : effects; // the checkpoint says what the record said
  }

  /** Everything so far, in one checkpoint. */
  compacted(): LogEffect {
    this.operationsSince = 0;
    this.tokensSince = 0;
    const { held, kept, places, begun, tokens } = this;
    return { kind: 'compact', checkpoint: { kind: 'checkpoint', held, kept, places, begun, tokens } };
  }

  private standingSo(wanted: Standing): readonly Units[] {
    return [...this.runs.values()].flatMap(({ thing, standing }) => (standing === wanted ? [thing] : []));
  }

  private apply({ kind, operation }: Step): void {
    const standing = this.standing(operation);
    const key = keyOf(operation);
    const underway = this.underway.get(key);
    const outcome = TABLE[operation.kind][standing];
    if (kind === 'begun') {
      if (underway !== undefined) {
        throw new AlreadyBegun(`expected to ${describe(underway)} to its end, got: ${describe(operation)}`);
      }
      if (outcome === undefined) throw new NotAllowed(`cannot ${describe(operation)}: it is ${standing}`);
      this.makeRoom(operation);
      this.underway.set(key, operation);
      return;
    }
    if (underway === undefined || outcome === undefined || !same(underway, operation)) {
      throw new NotBegun(`expected an operation that was begun, got the end of: ${describe(operation)}`);
    }
    this.underway.delete(key);
    this.stands(operation, outcome[kind === 'committed' ? 0 : 1]);
  }

  private stands(operation: Operation, standing: Standing): void {
    const key = keyOf(operation);
    if ('session' in operation) {
      const { session, stage } = operation;
      if (standing === 'absent') this.seats.delete(key);
      else this.seats.set(key, { thing: { session, stage }, standing });
    } else {
      const { first, stop } = operation;
      if (standing === 'absent') this.runs.delete(key);
      else this.runs.set(key, { thing: { first, stop }, standing });
    }
  }

  /** Bounds what a checkpoint can hold. Raises NotAllowed. */
  private makeRoom(operation: Operation): void {
    const isPlace = 'session' in operation;
    const entries: Map<string, unknown> = isPlace ? this.seats : this.runs;
    const most = isPlace ? MAX_SESSIONS : MAX_RUNS;
    const coming = [...this.underway].filter(
      ([key, other]) => 'session' in other === isPlace && !entries.has(key),
    );
    if (entries.has(keyOf(operation)) || entries.size + coming.length < most) return;
    const idle = [...entries.keys()].find((key) => !this.underway.has(key));
    if (!isPlace || idle === undefined) {
      throw new NotAllowed(`expected at most ${most} ${isPlace ? 'places' : 'runs'} at a time`);
    }
    entries.delete(idle);
  }
}

function keyOf(operation: Operation): string {
  return 'session' in operation ? placeKey(operation) : unitsKey(operation);
}

function unitsKey({ first, stop }: Units): string {
  return `${first}-${stop}`;
}

function placeKey({ session, stage }: Place): string {
  return `${session}:${stage}`;
}

/** Both change the same thing. */
function same(one: Operation, other: Operation): boolean {
  return (
    one.kind === other.kind &&
    (one.kind === 'migrate' ? one.peer : '') === (other.kind === 'migrate' ? other.peer : '')
  );
}
