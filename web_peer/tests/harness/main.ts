/*
 * A tab without a page, for tests: `window.shoal` comes in, asks, and says how it stands, in plain values.
 *
 * Opened as /?lends=1&memory=…#<mesh>.<invite> it joins by itself.
 */

import { openDB } from 'idb';

import { ASK_SETTINGS, type Conversation, tokensPerS } from '../../src/origin/answer_stream';
import { PieceCache } from '../../src/model/piece_cache';
import { measure } from '../../src/runtime/self_benchmark';
import { serving } from '../../src/state/mesh_state';
import { awayText } from '../../src/member/reconnect';
import { samplingOf } from '../../src/session/sampling';
import { Tab } from '../../src/member/tab';
import type { Patience } from '../../src/coordination/voter_policy';
import { measureHere } from './measuring';
import { textOf } from '../../src/errors';
import { fromHex, toHex } from '../../src/wire/hex';

interface Status {
  readonly state: string;
  readonly error: string;
  readonly phase: string;
  readonly lending: string;
  readonly viewer: boolean;
  readonly serving: boolean;
  readonly me: string;
  readonly runs: readonly (readonly [number, number])[];
  readonly members: readonly { readonly name: string; readonly status: string }[];
  readonly notices: readonly string[];
  readonly provider: string;
  readonly refused: string;
  readonly longestBlockMs: number;
  readonly tokensHelped: number;
  readonly copied: number; // positions that answers which moved here did not compute anew
  readonly fetchedBytes: number; // over the network, of this page's life
  readonly log: LogStatus;
  readonly asked: Asked;
}

/** The answer under way, or the last one: how many tokens it has, and by which ways they came. */
interface Asked {
  readonly tokens: number;
  readonly ways: readonly Way[];
}

/** Tokens that came one after the other in one session, over one plan. */
interface Way {
  readonly session: string;
  readonly plan: number;
  readonly tokens: number;
}

/** How this tab stands in the group that keeps the log. */
interface LogStatus {
  readonly leader: string;
  readonly leads: boolean;
  readonly voters: readonly string[];
  readonly term: number;
  readonly commit: number;
  readonly epoch: number;
  readonly incarnation: number;
  readonly durable: boolean; // as the log says
  readonly plan: number; // version of the active one
  readonly doubled: boolean; // every stage is served, and held by a standby as well
  readonly conversations: readonly string[];
  readonly away: string;
}

interface Answer {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly why: string;
  readonly tokensPerS: number;
  readonly firstTokenS: number;
}

interface HexArray {
  readonly shape: readonly number[];
  readonly data: string;
}

export interface Harness {
  /** `measured`: by the real measurement, not by made-up figures. */
  start(link: string, lends: boolean, memoryBytes: number, measured?: boolean): Promise<Status>;
  status(): Status;
  ask(question: string, maxTokens: number): Promise<Answer>;
  /** `model`: which one, by name; absent: the mesh’s own. */
  complete(prompt: string, maxTokens: number, model?: string): Promise<Answer>;
  /** Steps that this tab has computed of the further model of that name. */
  steps(model: string): number;
  /** One item through a model that the mesh offers: arrays in and out, their bytes in hexadecimal. */
  run(model: string, inputs: Readonly<Record<string, HexArray>>): Promise<Record<string, HexArray>>;
  /** Stops the answer under way. */
  stop(): void;
  pause(): Promise<void>;
  resume(): Promise<void>;
  leave(): Promise<void>;
  /** Begins the next epoch; its number. */
  recover(): Promise<number>;
  /** Flips a bit of one kept piece; whether there was one. */
  spoil(): Promise<boolean>;
  /** Tells the mesh that steps here take so many times as long. */
  slower(times: number): Promise<void>;
  /** As who coordinates: tries every other member now with a known answer; the verdicts so far, by member. */
  tries(): Promise<Readonly<Record<string, string>>>;
  /** Computes answers that move here anew from now on. */
  copiesNothing(): void;
  /** Acts as a page of another protocol version from now on. */
  version(number: number): void;
}

declare global {
  interface Window {
    shoal: Harness;
  }
}

/** Members vote and come back soon, so that a test need not wait. */
const HASTY: Patience = {
  settleMs: 300,
  longMs: 600,
  lostMs: 2000,
  goneMs: 600_000,
  ailingMs: 30_000,
  calmMs: 300,
  againMs: 1000,
};

const notices: string[] = [];
let tab: Tab | null = null;
let asking: Conversation | null = null;
let asked: Asked = { tokens: 0, ways: [] };
let longestBlockMs = 0;

// Chromium reports tasks of more than 50 ms; Firefox does not, so gaps between timers stand in for them.
let beat = performance.now();
setInterval(() => {
  const now = performance.now();
  longestBlockMs = Math.max(longestBlockMs, now - beat - 10);
  beat = now;
}, 10);

function status(): Status {
  const mesh = tab?.mesh ?? null;
  const state = mesh?.view.state;
  const mine = mesh?.lending.facts();
  const plan = state?.plan ?? null;
  return {
    state: tab?.state.kind ?? 'none',
    error:
      tab !== null && 'error' in tab.state ? `${nameOf(tab.state.error)}: ${textOf(tab.state.error)}` : '',
    phase: tab?.phase.step ?? '',
    lending: mesh?.lending.state.kind ?? '',
    viewer: tab?.viewer ?? false,
    serving:
      plan !== null &&
      plan.stages.every(({ primary, first, stop }) =>
        state?.members.get(primary)?.held.some((run) => run.first === first && run.stop === stop),
      ),
    me: mesh?.view.me ?? '',
    runs: (mine?.runs ?? []).map(({ first, stop }) => [first, stop] as const),
    members: [...(state?.members.values() ?? [])].map((member) => ({
      name: member.name,
      status: member.status,
    })),
    notices,
    provider: mine?.provider ?? '',
    refused: state?.refused ?? '',
    longestBlockMs,
    tokensHelped: mine?.tokensHelped ?? 0,
    copied: mesh?.stage.core.copied ?? 0,
    fetchedBytes: fetchedBytes(),
    log: logStatus(),
    asked,
  };
}

function logStatus(): LogStatus {
  const mesh = tab?.mesh ?? null;
  const { replica, state, me, leader } = mesh?.view ?? {};
  const plan = state === undefined ? null : serving(state);
  const away = mesh?.away ?? null;
  return {
    leader: leader ?? '',
    leads: (mesh?.leadership.current ?? null) !== null,
    voters: replica?.config.voters ?? [],
    term: replica?.term ?? 0,
    commit: replica?.status.commit ?? 0,
    epoch: replica?.epoch ?? 0,
    incarnation: replica?.begin.incarnation ?? 0,
    durable: state?.members.get(me ?? '')?.durable ?? false,
    plan: plan?.version ?? 0,
    doubled:
      plan?.stages.every(({ standbys, first, stop }) =>
        standbys.some((peer) =>
          state?.members.get(peer)?.held.some((run) => run.first === first && run.stop === stop),
        ),
      ) ?? false,
    conversations: [...(state?.conversations.keys() ?? [])],
    away: away === null ? '' : awayText(away),
  };
}

/** Weights that came over HTTP, by what the browser itself counted. */
function fetchedBytes(): number {
  const entries = performance.getEntriesByType('resource') as PerformanceResourceTiming[];
  return entries
    .filter(({ name }) => name.includes('/blobs/'))
    .reduce((sum, { transferSize, encodedBodySize }) => sum + Math.max(transferSize, encodedBodySize), 0);
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : '';
}

function waysAfter(ways: readonly Way[], { session, plan }: Conversation): readonly Way[] {
  const last = ways.at(-1);
  if (last?.session !== session || last.plan !== plan) return [...ways, { session, plan, tokens: 1 }];
  return [...ways.slice(0, -1), { ...last, tokens: last.tokens + 1 }];
}

async function run(
  model: string,
  inputs: Readonly<Record<string, HexArray>>,
): Promise<Record<string, HexArray>> {
  const mesh = tab?.mesh;
  if (mesh === null || mesh === undefined) throw new Error('not in a mesh');
  const given = new Map(
    Object.entries(inputs).map(([name, { shape, data }]) => [name, { shape, data: fromHex(data) }]),
  );
  const client = await mesh.openRun(model);
  try {
    const found = await client.run(given, mesh.signal);
    return Object.fromEntries(
      [...found].map(([name, { shape, data }]) => [name, { shape, data: toHex(data) }]),
    );
  } finally {
    await client.close();
  }
}

async function answer(question: string, maxTokens: number, raw: boolean, model = ''): Promise<Answer> {
  const mesh = tab?.mesh;
  if (mesh === null || mesh === undefined) throw new Error('not in a mesh');
  const conversation = (asking = (await mesh.answering(model)).conversation());
  asked = { tokens: 0, ways: [] };
  const settings = { ...ASK_SETTINGS, sampling: samplingOf({}), maxTokens, ignoreEnd: raw };
  const pieces = raw
    ? conversation.complete(question, settings)
    : conversation.chat([{ role: 'user', content: question }], settings);
  let text = '';
  const tokens: number[] = [];
  longestBlockMs = 0;
  try {
    for await (const piece of pieces) {
      if (piece.kind === 'delta') {
        text += piece.text;
        if (piece.token < 0) continue;
        tokens.push(piece.token);
        asked = { tokens: tokens.length, ways: waysAfter(asked.ways, conversation) };
      } else {
        const { why, firstTokenS } = piece;
        return { text, tokens, why, tokensPerS: tokensPerS(piece), firstTokenS };
      }
    }
  } finally {
    conversation.close();
  }
  throw new Error('the answer had no end');
}

window.shoal = {
  async start(link, lends, memoryBytes, measured) {
    const cache = await PieceCache.open({
      limitBytes: 2 ** 31,
      now: () => Date.now(),
      notice: (text) => notices.push(text),
    });
    const name = navigator.userAgent.includes('Firefox') ? 'Firefox' : 'Chromium';
    let fail: () => void = () => undefined;
    const failed = new Promise<void>((resolve) => (fail = resolve));
    const made = new Tab(
      link,
      {
        name,
        memoryBytes,
        lends,
        cache,
        measure: measured ? measure : measureHere,
        hiddenGraceMs: 200,
        patience: HASTY,
      },
      {
        changed: () => {
          if (made.state.kind === 'waiting') fail();
        },
        notice: (text) => notices.push(text),
      },
    );
    tab = made;
    await Promise.race([made.start(), failed]); // where it failed for now, it goes on trying
    return status();
  },
  status,
  ask: (question, maxTokens) => answer(question, maxTokens, false),
  complete: (prompt, maxTokens, model) => answer(prompt, maxTokens, true, model),
  steps: (model) => tab?.mesh?.decoders.find(model)?.parts.stage.core.stepsRun ?? 0,
  run,
  stop: () => asking?.stop(),
  pause: async () => tab?.pause(),
  resume: async () => tab?.resume(),
  leave: async () => tab?.leave(),
  recover: async () => (await tab?.mesh?.part.recover()) ?? 0,
  spoil: async () => {
    const database = await openDB('shoal-pieces');
    const keys = await database.getAllKeys('pieces');
    const key = keys.at(-1);
    if (key === undefined) return false;
    const bytes = (await database.get('pieces', key)) as Uint8Array;
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
    await database.put('pieces', bytes, key);
    database.close();
    return true;
  },
  slower: async (times) => {
    const { view } = tab?.mesh ?? {};
    const profile = view?.state.members.get(view.me)?.profile ?? null;
    if (view === undefined || profile === null)
      throw new Error('not in a mesh that knows how fast this tab is');
    const scaled = (table: ReadonlyMap<string, number>): ReadonlyMap<string, number> =>
      new Map([...table].map(([kind, ns]) => [kind, Math.round(ns * times)]));
    const { decodeNs, prefillNs, batchNs } = profile;
    const said = { decodeNs: scaled(decodeNs), prefillNs: scaled(prefillNs), batchNs: scaled(batchNs) };
    const command = {
      kind: 'MemberMeasured',
      peer: view.me,
      profile: { ...profile, ...said },
      links: [],
    } as const;
    await view.measured(command);
  },
  tries: async () => {
    const canaries = tab?.mesh?.canaries;
    if (canaries === undefined) throw new Error('not in a mesh');
    canaries.begin({ firstS: [0, 0], againS: [3600, 3600], busyS: [0, 0] });
    await canaries.look();
    return Object.fromEntries(canaries.tried);
  },
  copiesNothing: () => {
    tab?.mesh?.stage.copyBy(null);
  },
  version: (number) => {
    const { stringify } = JSON;
    JSON.stringify = ((value: unknown, ...rest: []) =>
      typeof value === 'object' && value !== null && 'compute' in value && 'protocol' in value
        ? stringify({ ...value, protocol: number }, ...rest)
        : stringify(value, ...rest)) as typeof JSON.stringify;
  },
};
