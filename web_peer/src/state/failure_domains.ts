/*
 * Decides what a peer says of what may take it away, and when it says so again: machine, network, owner, hazard (twin
 * of peer/state/failure_domains.py).
 *
 * Pure. Machine, network and owner are hashes with the mesh's id: equal ones are the same, and they are of no use in
 * another mesh. What a peer does not say is unknown.
 */

import { BadCommand } from '../errors';
import { base32, fromHex } from '../wire/hex';
import { type Codec, matching, maybe, record } from '../wire/json_codec';
import { sha256Hex } from '../wire/sha256';

export type Platform = 'process' | 'tab' | 'phone';
export type Condition = 'background' | 'throttled' | 'battery' | 'metered';
type Place = 'machine' | 'network' | 'owner';

const ID_BYTES = 20;
const MAX_HAZARD_MILLI = 1_000_000; // a peer that leaves every four seconds is worth no plan
const WORSE_MS = 5000; // a higher hazard, or another place, is told when it holds for so long
const BETTER_MS = 60_000; // a lower one: who was in the background a moment ago may be there again soon
const AGAIN_MS = 20_000; // and no sooner after it was told; twice as long each time that the log does not have it
const AGAIN_AT_MOST_MS = 3_600_000;
const HOUR_S = 3600;
const STAY_S: Readonly<Record<Platform, number>> = {
  process: 48 * HOUR_S,
  tab: 2 * HOUR_S,
  phone: HOUR_S / 3,
};
const TIMES: Readonly<Record<Condition, number>> = { background: 3, battery: 2, metered: 2, throttled: 2 };
const CANDIDATE = /^a=candidate:(\S+) \d+ \S+ \d+ (\S+) (\d+) typ (\S+)/gm;

/** What one peer says of itself beyond its speed and memory. */
export interface Surroundings {
  readonly hazardMilli: number | null; // thousandths of leavings an hour; null: unknown
  readonly machine: string; // what ends with it; '': unknown
  readonly network: string; // the public address that it is reached by
  readonly owner: string; // who may take it away
}

export const UNKNOWN: Surroundings = { hazardMilli: null, machine: '', network: '', owner: '' };

/** What it fails with, as the planner tells domains apart. */
export function domainsOf({ machine, network, owner }: Surroundings): readonly string[] {
  const named = { machine, network, owner };
  return Object.entries(named).flatMap(([kind, name]) => (name === '' ? [] : [`${kind} ${name}`]));
}

// --- how likely it leaves

/** Thousandths of leavings an hour, by the priors of the platform and of what holds of `conditions`. */
export function hazardMilli(platform: Platform, conditions: ReadonlySet<string>): number {
  let found = (1000 * HOUR_S) / STAY_S[platform];
  for (const [condition, times] of Object.entries(TIMES)) if (conditions.has(condition)) found *= times;
  return Math.floor(found + 0.5);
}

// --- where it is

/** `name` as only members of `mesh` can compare it; '' stays ''. 32 characters. */
export function hashed(what: Place, mesh: string, name: string): string {
  if (name === '') return '';
  return base32(fromHex(sha256Hex(`shoal ${what}\n${mesh}\n${name}`)).subarray(0, ID_BYTES));
}

/**
 * How this peer is reached from outside, by its own description; '' where that has no public address.
 *
 * The least public IPv4 address, else the least /64 of IPv6. Candidates of relays say nothing of the peer.
 */
export function publicAddress(sdp: string): string {
  const four: string[] = [];
  const six: string[] = [];
  for (const [, , host = '', , kind = ''] of sdp.matchAll(CANDIDATE)) {
    if (kind !== 'host' && kind !== 'srflx') continue;
    const bytes = fourBytes(host);
    const prefix = bytes === null ? sixPrefix(host) : null;
    if (bytes !== null && isPublic(bytes)) four.push(host);
    if (prefix !== null) six.push(`${prefix}/64`);
  }
  return (four.length > 0 ? four : six).sort()[0] ?? '';
}

function fourBytes(host: string): readonly number[] | null {
  if (!/^(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})$/.test(host)) return null;
  const bytes = host.split('.').map(Number);
  return bytes.every((byte) => byte < 256) ? bytes : null;
}

function isPublic([first = 0, second = 0]: readonly number[]): boolean {
  return !(
    first === 0 ||
    first === 10 ||
    first === 127 ||
    first >= 224 ||
    (first === 100 && second >> 6 === 1) ||
    (first === 169 && second === 254) ||
    (first === 172 && second >> 4 === 1) ||
    (first === 192 && second === 168) ||
    (first === 198 && second >> 1 === 9)
  );
}

/** The first 8 bytes in hex of an address of 2000::/3; null for everything else. */
function sixPrefix(host: string): string | null {
  if (!/^[0-9a-f:]{2,39}$/i.test(host)) return null;
  const [head = '', tail, ...more] = host.split('::');
  const groups = (part: string): readonly string[] => (part === '' ? [] : part.split(':'));
  const [before, after] = [groups(head), groups(tail ?? '')];
  const missing = 8 - before.length - after.length;
  if (more.length > 0 || (tail === undefined ? missing !== 0 : missing < 1)) return null;
  const all = [...before, ...Array<string>(missing).fill('0'), ...after];
  if (!all.every((group) => /^[0-9a-f]{1,4}$/i.test(group))) return null;
  const hex = all.map((group) => group.toLowerCase().padStart(4, '0')).join('');
  return parseInt(hex.slice(0, 1), 16) >> 1 === 1 ? hex.slice(0, 16) : null;
}

// --- whether a relay is in the way

/** One end of the pair of addresses that a connection uses. `kind`: that of its ICE candidate. */
export interface End {
  readonly host: string;
  readonly port: number;
  readonly kind: string;
}

/** Whether a connection with these descriptions goes through a relay; null: nobody can tell. `pair`: its ends. */
export function isRelayed(descriptions: readonly string[], pair: readonly End[] | null): boolean | null {
  const relays = new Set<string>(); // addresses that are somebody else's: of TURN relays, of third peers
  for (const sdp of descriptions) {
    for (const [, name = '', host = '', port = '', kind = ''] of sdp.matchAll(CANDIDATE)) {
      if (kind === 'relay' || name.startsWith('third')) relays.add(`${host} ${Number(port.slice(0, 5))}`);
    }
  }
  if (pair === null) return relays.size > 0 ? null : false;
  return pair.some(({ host, port, kind }) => kind === 'relay' || relays.has(`${host} ${port}`));
}

/** Of a link, by what both ends say: one that sees a relay is right, else one that knows there is none. */
export function agreed(mine: boolean | null, theirs: boolean | null): boolean | null {
  if (mine === null || theirs === null) return mine ?? theirs;
  return mine || theirs;
}

// --- when it is told again

/** A change that lasts is told; one that comes and goes does not get into the log. */
export class Telling {
  private fresh = UNKNOWN;
  private sinceMs = 0;
  private notBeforeMs = 0;
  private pauseMs = AGAIN_MS;

  /** Whether `seen` is to be told now; `said`: what the log has. */
  due(nowMs: number, said: Surroundings, seen: Surroundings): boolean {
    if (isSame(seen, said)) {
      this.fresh = said;
      this.pauseMs = AGAIN_MS;
      return false;
    }
    if (!isSame(seen, this.fresh)) {
      this.fresh = seen;
      this.sinceMs = nowMs;
    }
    const lasts = onlyBetter(said, seen) ? BETTER_MS : WORSE_MS;
    if (nowMs < Math.max(this.sinceMs + lasts, this.notBeforeMs)) return false;
    this.notBeforeMs = nowMs + this.pauseMs;
    this.pauseMs = Math.min(2 * this.pauseMs, AGAIN_AT_MOST_MS);
    return true;
  }
}

function samePlace(a: Surroundings, b: Surroundings): boolean {
  return a.machine === b.machine && a.network === b.network && a.owner === b.owner;
}

function isSame(a: Surroundings, b: Surroundings): boolean {
  return samePlace(a, b) && a.hazardMilli === b.hazardMilli;
}

function onlyBetter(said: Surroundings, seen: Surroundings): boolean {
  if (!samePlace(said, seen) || said.hazardMilli === null || seen.hazardMilli === null) return false;
  return seen.hazardMilli < said.hazardMilli;
}

// --- wire

const hazard: Codec<number> = {
  decode(value, where) {
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0 || value > MAX_HAZARD_MILLI) {
      throw new BadCommand(`${where}: expected an integer from 0 to ${MAX_HAZARD_MILLI}`);
    }
    return value + 0;
  },
  encode: (value) => value,
};

const place = matching(/^(?:[a-z2-7]{32})?$/, 'nothing or 32 characters of a to z and 2 to 7');

export const surroundingsCodec = record<Surroundings>('Surroundings', {
  hazardMilli: maybe(hazard),
  machine: place,
  network: place,
  owner: place,
});
