/* What the person chose, kept in this browser: memory to lend, how answers are drawn. Checked when read. */

import type { SamplingDefaults } from '../../src/planner/sampling_defaults';
import type { AskSettings } from '../app/view';

const SETTINGS_KEY = 'shoal.settings';
const PLEDGE_KEY = 'shoal.pledge';
const NAME_KEY = 'shoal.name';
const PIN_KEY = 'shoal.pin-ends';
const RELAY_KEY = 'shoal.relay-only';
const LINK_KEY = 'shoal.link';
const PRESETS_KEY = 'shoal.presets';
const PINNED_KEY = 'shoal.pinned';
const MAX_NAME = 40; // characters
const MAX_PINNED = 200;
const MAX_PRESETS = 50;

/** How answers are drawn where nothing was chosen: as the model has it. */
export function modelSettings(defaults: SamplingDefaults): AskSettings {
  return { ...defaults, maxTokens: null, seed: null, instructions: '' };
}

/** Instructions for the model under a name. */
export interface Preset {
  readonly name: string;
  readonly text: string;
}
const GIGABYTE = 1e9;

/** What a machine may lend, and lends unless told otherwise. */
export interface PledgeRange {
  readonly usual: number;
  readonly most: number;
}

/** By kind of device: a tab of a phone is killed early. `memoryGb`: as the browser tells, rounded; null when not. */
export function pledgeRange(isPhone: boolean, memoryGb: number | null): PledgeRange {
  const share = (memoryGb ?? (isPhone ? 4 : 8)) * GIGABYTE * 0.25;
  return isPhone
    ? { usual: Math.min(0.3 * GIGABYTE, share), most: Math.min(0.5 * GIGABYTE, 2 * share) }
    : { usual: Math.min(GIGABYTE, share), most: Math.min(1.5 * GIGABYTE, 2 * share) };
}

/** Bytes to lend: what was chosen, at most `range.most`; `range.usual` where nothing was. */
export function keptPledge(range: PledgeRange): number {
  const value = Number(read(PLEDGE_KEY) ?? Number.NaN);
  return Number.isSafeInteger(value) && value > 0 ? Math.min(value, range.most) : range.usual;
}

/** Keeps how many bytes are lent. */
export function keepPledge(bytes: number): void {
  write(PLEDGE_KEY, String(bytes));
}

/** Whether this device's address is kept from others: of nobody who did not ask for it. */
export function keptRelayOnly(): boolean {
  return read(RELAY_KEY) === 'yes';
}

/** Keeps whether connections go through relays only. */
export function keepRelayOnly(only: boolean): void {
  write(RELAY_KEY, only ? 'yes' : 'no');
}

/** Whether new conversations stay in this tab: of nobody who did not ask for it. */
export function keptPinEnds(): boolean {
  return read(PIN_KEY) === 'yes';
}

/** Keeps whether words stay in this tab. */
export function keepPinEnds(on: boolean): void {
  write(PIN_KEY, on ? 'yes' : 'no');
}

/** The link of the mesh that this browser was in last; "": none. */
export function keptLink(): string {
  return read(LINK_KEY) ?? '';
}

/** Keeps the link of the mesh that this browser is in. It is a secret, as the keys that are kept beside it. */
export function keepLink(link: string): void {
  write(LINK_KEY, link);
}

/** Instructions that this person saved, by name. */
export function keptPresets(): readonly Preset[] {
  try {
    const kept: unknown = JSON.parse(read(PRESETS_KEY) ?? '[]');
    return Array.isArray(kept) ? kept.filter(isPreset).slice(0, MAX_PRESETS) : [];
  } catch {
    return [];
  }
}

/** Keeps saved instructions: the last ones of many. */
export function keepPresets(presets: readonly Preset[]): void {
  write(PRESETS_KEY, JSON.stringify(presets.slice(-MAX_PRESETS)));
}

function isPreset(value: unknown): value is Preset {
  const { name, text } = (typeof value === 'object' && value !== null ? value : {}) as Record<
    string,
    unknown
  >;
  return typeof name === 'string' && typeof text === 'string' && name !== '' && text.length <= 4000;
}

/** Ids of conversations that stand first in the list. */
export function keptPins(): string[] {
  return (read(PINNED_KEY) ?? '').split(' ').filter((id) => id !== '');
}

/** Keeps which conversations stand first: the last ones of many. */
export function keepPins(ids: readonly string[]): void {
  write(PINNED_KEY, ids.slice(-MAX_PINNED).join(' '));
}

/** What this person is called in conversations; null: nothing was chosen. */
export function keptName(): string | null {
  const name = cleanName(read(NAME_KEY) ?? '');
  return name === '' ? null : name;
}

/** Whether this person was asked for a name, and told one or none. */
export function wasAskedName(): boolean {
  return read(NAME_KEY) !== null;
}

/** Keeps the name of the person, cleaned; "": they told none. */
export function keepName(name: string): void {
  write(NAME_KEY, cleanName(name));
}

function cleanName(name: string): string {
  const shown = name.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '').trim();
  return [...shown].slice(0, MAX_NAME).join('').trim();
}

/** What this person chose of how answers are drawn; the rest is as the model has it. */
export function keptSettings(): Partial<AskSettings> {
  try {
    return choicesOf(JSON.parse(read(SETTINGS_KEY) ?? 'null'));
  } catch {
    return {};
  }
}

/** Keeps what this person chose of how answers are drawn. */
export function keepSettings(chosen: Partial<AskSettings>): void {
  write(SETTINGS_KEY, JSON.stringify(chosen));
}

const RANGES = {
  temperature: [0, 2],
  topP: [0.05, 1],
  topK: [0, 200],
  minP: [0, 0.5],
  repetitionPenalty: [1, 2],
} as const;

/** Settings in anything: what is missing or out of range was not chosen. */
export function choicesOf(kept: unknown): Partial<AskSettings> {
  const found = typeof kept === 'object' && kept !== null ? (kept as Record<string, unknown>) : {};
  const chosen: Record<string, number | string | null> = {};
  for (const [key, [low, high]] of Object.entries(RANGES)) {
    const value = found[key];
    const fits = typeof value === 'number' && value >= low && value <= high;
    if (fits) chosen[key] = key === 'topK' ? Math.round(value) : value;
  }
  for (const [key, least] of [['maxTokens', 1] as const, ['seed', 0] as const]) {
    const value = found[key];
    const fits = typeof value === 'number' && Number.isSafeInteger(value) && value >= least;
    if (fits || value === null) chosen[key] = value;
  }
  const { instructions } = found;
  if (typeof instructions === 'string') chosen['instructions'] = instructions.slice(0, 4000);
  return chosen;
}

function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // storage refused: choices last as long as the page
  }
}

function write(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // As above.
  }
}
