/* One simulated server: a core with its disk, state machine, clock, and what it said and heard lately. */

import type { Message } from '../../src/consensus/messages';
import { Config, type Entry } from '../../src/consensus/records';
import type { Effect, Event, RoleName } from '../../src/consensus/events';
import { parseConfig } from '../../src/consensus/message_codec';
import { Disk, Log, Machine } from './disk';

/** The core under test. */
export interface AnyCore {
  step(nowMs: number, event: Event): readonly Effect[];
}

const NOBODY = new Config();
const parsed = new WeakMap<Uint8Array, Config>();

export function configOf({ data }: Entry): Config {
  let found = parsed.get(data);
  if (found === undefined) {
    found = parseConfig(data);
    parsed.set(data, found);
  }
  return found;
}

/** A configuration, and the place of its entry; the first one is that of the snapshot. */
export interface Placed {
  readonly index: number;
  readonly config: Config;
}

/** `incarnation` is that of the life it lives now; there is no `core` while it is down. */
export class Member {
  readonly id: string;
  incarnation = 1;
  disk = new Disk();
  core: AnyCore | null = null;
  boots = 0;
  clockMs = 0; // what its clock is ahead of virtual time
  pausedUntil = 0;
  inbox: { readonly sender: string; readonly message: Message }[] = [];
  slowUntil = 0;
  excusedUntil = 0; // on its own clock: it stood still, and may lead for a heartbeat before it knows
  diskFreeAt = 0;
  wakeAt = -1; // when the next wake is queued
  deadline = 0; // on its own clock
  trap: { readonly downMs: number; readonly number: number } | null = null; // it crashes at the next write
  // since boot
  newestMs = -Infinity; // the newest that its own clock said: a core's clock does not go back
  log = new Log(); // as the core sees it: durable or not
  configs: Placed[] = [];
  snapshotAt = { index: 0, term: 0 };
  machine = new Machine();
  saidApplied = 0;
  role: RoleName = 'follower';
  term = 0;
  led = { term: 0, last: 0 }; // the last term that it led since boot, and where its log ended then
  leading: Placed[] = []; // the configurations of that term
  issued = { term: 0, vote: '' }; // the newest that it wanted to be stored
  toldToCampaign = false;
  heard = new Map<string, number>(); // as a leader: when it heard from whom

  constructor(id: string) {
    this.id = id;
  }

  get config(): Config {
    return this.configs.at(-1)?.config ?? NOBODY;
  }

  get life(): string {
    return `${this.id}${this.incarnation}`;
  }

  /** Returns the time by which the core counts: the newest that this server's clock said since boot. */
  coreClock(now: number): number {
    this.newestMs = Math.max(this.newestMs, now + this.clockMs);
    return this.newestMs;
  }

  /** The term of its entry; 0 where it has none. */
  termAt(index: number): number {
    const entry = this.log.at(index);
    if (entry !== undefined) return entry.term;
    return index === this.snapshotAt.index ? this.snapshotAt.term : 0;
  }

  live(now: number): boolean {
    return this.core !== null && this.pausedUntil <= now;
  }

  /** Nothing of the run before is left in memory. */
  reborn(): void {
    const { disk } = this;
    this.boots += 1;
    this.newestMs = -Infinity;
    this.inbox = [];
    this.pausedUntil = this.diskFreeAt = this.deadline = 0;
    this.wakeAt = -1;
    // An empty log begins anywhere: a crash may have come before it was cut to begin behind its snapshot.
    if (disk.log.entries.length === 0) disk.log = new Log((disk.snapshot?.index ?? 0) + 1);
    this.log = new Log(disk.log.first, disk.log.entries);
    this.configs = [];
    this.snapshotAt = { index: 0, term: 0 };
    if (disk.snapshot !== null) {
      const { index, term, config } = disk.snapshot;
      this.snapshotAt = { index, term };
      this.configs.push({ index, config });
    }
    for (const entry of this.log.entries) {
      if (entry.kind === 'config' && entry.index > this.snapshotAt.index) {
        this.configs.push({ index: entry.index, config: configOf(entry) });
      }
    }
    this.machine = new Machine();
    this.saidApplied = 0;
    this.role = 'follower';
    this.term = disk.term;
    this.led = { term: 0, last: 0 };
    this.leading = [];
    this.issued = disk.hardState;
    this.toldToCampaign = false;
    this.heard = new Map();
  }
}
