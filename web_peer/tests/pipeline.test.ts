/* The stages' traces, step by step as Python took them, and a split pipeline against an unsplit one. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { NotRan, OriginEffect, Ran, RunStep, StageEffect } from '../src/effects';
import { reasonOf } from '../src/effects';
import type { Cancel, Feed, Frame, Open, Release, Step, Token, Where } from '../src/frames';
import type { Run } from '../src/mesh_state';
import { type Loaded, pick, type PlanStages } from '../src/openings';
import { StageCore } from '../src/pipeline';
import type { Route } from '../src/routes';
import { samplingOf, samplingToWire } from '../src/sampling';
import { OriginSession } from '../src/session';
import { frameOf, type Row, shown } from './traces';
import { vectors } from './vectors';

type Pair = [number, number];
interface Op extends Row {
  readonly do: string;
  readonly now: number;
  readonly gives: Row[];
  readonly after: unknown[];
}
interface Vectors {
  readonly plans: [number, [string[], Pair][]][];
  readonly slots: [Pair, number][];
  readonly log_bytes: [number, number];
  readonly traces: { name: string; ops: Op[] }[];
}

const VECTORS = vectors('pipeline') as Vectors;
const runOf = ([first, stop]: Pair): Run => ({ first, stop });
const PLANS: ReadonlyMap<number, PlanStages> = new Map(
  VECTORS.plans.map(([version, stages]) => [
    version,
    stages.map(([peers, run]) => ({ peers, run: runOf(run) })),
  ]),
);
const LOADED: readonly Loaded[] = VECTORS.slots.map(([run, slots]) => ({ run: runOf(run), slots }));

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ ops }) => {
    const core = new StageCore('p1', ...VECTORS.log_bytes);
    core.serve(PLANS, LOADED);
    ops.forEach((op, at) => {
      const gives = perform(core, op).map(effect);
      const after = [
        ...[core.sessions(), core.active(), core.tokensSampled, core.stepsRun],
        ...[core.lag(), core.logBytes, core.replayedBytes, core.takenOver],
        core.notes().map(({ what, session, stage }) => `${what} at ${stage}: ${session}`),
      ];
      expect({ at, op: op.do, gives, after }).toEqual({ at, op: op.do, gives: op.gives, after: op.after });
    });
  });
});

describe('the front of a prompt that OPEN names', () => {
  it.each([
    ['after settings', samplingToWire(samplingOf({}))],
    ['after settings that steer', [...samplingToWire(samplingOf({})), 0, 0, 0]],
    ['of an asker that keeps its ends', []],
  ])('is kept by no tab, %s: it asks for what it lacks and tells nobody', (_, sampling) => {
    const core = new StageCore('p1', ...VECTORS.log_bytes);
    core.serve(PLANS, LOADED);
    const opening: Open = {
      ...{ kind: 'OPEN', session: '01'.repeat(16), turn: 1, plan: 1, route: ['p0', 'p1', 'p2'], stage: 1 },
      ...{ origin: 'asker', start: 80, promptTokens: 90, maxTokens: 9, sampling: [...sampling, 80, 1, 2, 3] },
      ...{ endTokens: [], generated: 0, role: 0, answer: 1, before: 0, keep: 0, spans: [90] },
      ...{ shadowStages: [], shadows: [], history: new Int32Array() },
    };
    const effects = core.open(0, 'p0', opening);
    const frames = effects.map((each) => (each.kind === 'send' ? each.frame : null));
    expect(frames).toEqual([
      { ...opening, stage: 2, sampling },
      { kind: 'FEED', session: opening.session, turn: 1, stage: 1, position: 0 },
    ]);
  });
});

function perform(core: StageCore, op: Op): StageEffect[] {
  const { now } = op;
  const sender = op['sender'] as string;
  const frame = op['frame'] === undefined ? undefined : frameOf(op['frame'] as Row);
  const result = op['result'] as Row;
  switch (op.do) {
    case 'open':
      return core.open(now, sender, frame as Open);
    case 'step':
      return core.step(now, sender, frame as Step);
    case 'token':
      return core.token(now, sender, frame as Token);
    case 'feed':
      return core.feed(now, sender, frame as Feed);
    case 'where':
      return core.where(sender, frame as Where);
    case 'cancel':
      return core.cancel(sender, frame as Cancel);
    case 'release':
      return core.release(sender, frame as Release);
    case 'ran':
      return core.ran(now, {
        ...result,
        run: runOf(result['run'] as Pair),
        hidden: Float32Array.from(result['hidden'] as number[]),
      } as unknown as Ran);
    case 'not_ran':
      return core.notRan(now, {
        ...result,
        run: runOf(result['run'] as Pair),
        reason: reasonOf(result['reason'] as number),
      } as unknown as NotRan);
    case 'peer_gone':
      return core.peerGone(now, op['peer'] as string);
    case 'congestion':
      return core.congestion(op['peer'] as string, op['full'] as boolean);
    case 'drop':
      return core.drop(runOf(op['run'] as Pair));
    case 'serve':
      core.serve(PLANS, LOADED);
      return [];
    case 'authors': {
      const sessions = new Map(Object.entries(op['sessions'] as Record<string, string>));
      core.authorOf = (session) => sessions.get(session) ?? null;
      return [];
    }
    case 'tick':
      return core.tick(now);
    case 'keep_only':
      core.keepOnly = op['held'] as boolean;
      return [];
    case 'come_back':
      core.comeBack();
      return [];
    case 'leave':
      return core.leave();
    default:
      throw new Error(`unknown operation ${op.do}`);
  }
}

function effect(item: StageEffect): unknown {
  switch (item.kind) {
    case 'send':
      return { send: item.peer, frame: shown(item.frame) };
    case 'spare':
      return { spare: item.peer, frame: shown(item.frame) };
    case 'freeSlot':
      return { free_slot: [item.run.first, item.run.stop], session: item.session };
    case 'runStep':
      return {
        run_step: [item.run.first, item.run.stop],
        session: item.session,
        epoch: item.epoch,
        position: item.position,
        tokens: shown(item.tokens),
        hidden: shown(item.hidden),
        last: item.last,
        pick:
          item.pick === null
            ? null
            : [
                samplingToWire(item.pick.sampling),
                item.pick.position,
                [...item.pick.history],
                item.pick.generated,
              ],
        prompt: item.prompt,
        most_rows: item.mostRows,
        behind: item.behind,
      };
    default:
      return item satisfies never;
  }
}

// --- a toy model whose tokens depend on all earlier ones, over ordered links that deliver in any order

const VOCABULARY = 97;
const UNITS = 8;

function favourite(tokens: readonly number[]): number {
  return tokens.reduce((value, token) => (value * 31 + token + 1) % 1_000_003, 17) % VOCABULARY;
}

class World {
  readonly emitted: number[] = [];
  ended = '';
  readonly origin = new OriginSession('ab'.repeat(16), 'asker');
  private readonly cores = new Map<string, StageCore>();
  private readonly caches = new Map<string, number[]>();
  private readonly links = new Map<string, (() => void)[]>();
  private readonly gone = new Set<string>();

  constructor(version: number, stages: PlanStages) {
    for (const { peers, run } of stages) {
      for (const peer of peers) {
        const core = new StageCore(peer);
        core.serve(new Map([[version, stages]]), [{ run, slots: 2 }]);
        this.cores.set(peer, core);
      }
    }
  }

  /** Delivers everything; `choose` says which link goes next. Before delivery `at`, `event` happens. */
  deliver(choose: (links: number) => number, at: number, event: () => void): void {
    for (let turn = 0; turn < 10_000; turn++) {
      if (turn === at) event();
      const waiting = [...this.links.values()].filter((queue) => queue.length > 0);
      if (waiting.length === 0) return;
      waiting[choose(waiting.length)]?.shift()?.();
    }
    throw new Error('no end');
  }

  /** `peer` is no more; the session goes on over `route` if it needed it. */
  lose(peer: string, route: Route): void {
    this.gone.add(peer);
    const effects = this.origin.peerGone(0, peer, 'gone');
    if (effects.length === 0) return;
    expect(effects.map(({ kind }) => kind)).toEqual(['findRoute']);
    this.asked(this.origin.reroute(0, route));
  }

  asked(effects: readonly OriginEffect[]): void {
    for (const item of effects) {
      if (item.kind === 'send' || item.kind === 'spare') this.post('asker', item.peer, item.frame);
      else if (item.kind === 'emit') this.emitted.push(item.token);
      else if (item.kind === 'ended') this.ended = item.why;
      else throw new Error(`unexpected ${item.kind}`);
    }
  }

  private post(src: string, dst: string, frame: Frame): void {
    this.later(`${src} ${dst}`, () => this.arrive(src, dst, frame));
  }

  private later(link: string, act: () => void): void {
    const queue = this.links.get(link) ?? [];
    queue.push(act);
    this.links.set(link, queue);
  }

  private arrive(src: string, dst: string, frame: Frame): void {
    const core = this.cores.get(dst);
    if (this.gone.has(src) || this.gone.has(dst)) return;
    if (frame.kind === 'TOKEN' && dst === 'asker') this.asked(this.origin.token(0, src, frame));
    if (frame.kind === 'FEED' && dst === 'asker') this.asked(this.origin.feed(0, src, frame));
    if (core === undefined) return;
    if (frame.kind === 'OPEN') this.staged(dst, core.open(0, src, frame));
    else if (frame.kind === 'STEP') this.staged(dst, core.step(0, src, frame));
    else if (frame.kind === 'TOKEN') this.staged(dst, core.token(0, src, frame));
    else if (frame.kind === 'FEED') this.staged(dst, core.feed(0, src, frame));
    else if (frame.kind === 'CANCEL') this.staged(dst, core.cancel(src, frame));
    else throw new Error(`unexpected ${frame.kind}`);
  }

  private staged(peer: string, effects: readonly StageEffect[]): void {
    for (const item of effects) {
      if (item.kind === 'send' || item.kind === 'spare') this.post(peer, item.peer, item.frame);
      else if (item.kind === 'runStep') {
        const result = this.ran(peer, item); // in submission order, as the worker does
        this.later(`worker ${peer}`, () => this.staged(peer, this.cores.get(peer)?.ran(0, result) ?? []));
      }
    }
  }

  /** The state of a position is (token, units passed): a stage skipped or run twice is seen. */
  private ran(peer: string, step: RunStep): Ran {
    const cache = this.caches.get(peer) ?? [];
    expect(step.position).toBeLessThanOrEqual(cache.length);
    const hidden = new Float32Array(step.count * 2);
    for (let at = 0; at < step.count; at++) {
      hidden[at * 2] = step.tokens?.[at] ?? step.hidden?.[at * 2] ?? -1;
      expect(step.hidden?.[at * 2 + 1] ?? 0).toBe(step.run.first);
      hidden[at * 2 + 1] = step.run.stop;
    }
    cache.splice(step.position, cache.length, ...hidden.filter((_, at) => at % 2 === 0));
    this.caches.set(peer, cache);
    let token: number | null = null;
    if (step.pick !== null) {
      const logits = new Float32Array(VOCABULARY);
      logits[favourite(cache)] = 5;
      token = pick(step.pick, logits);
    }
    return {
      run: step.run,
      session: step.session,
      epoch: step.epoch,
      position: step.position,
      count: step.count,
      hidden,
      token,
    };
  }
}

it('split equals unsplit, whatever arrives first and whoever is lost', () => {
  fc.assert(
    fc.property(
      fc.subarray([1, 2, 3, 4, 5, 6, 7], { maxLength: 3 }),
      fc.array(fc.nat(VOCABULARY - 1), { minLength: 1, maxLength: 80 }),
      fc.integer({ min: 1, max: 12 }),
      fc.nat(200),
      fc.nat(3),
      fc.boolean(),
      fc.infiniteStream(fc.nat(1000)),
      (cuts, prompt, maxTokens, lossAt, place, shadowed, choices) => {
        const borders = [0, ...cuts, UNITS];
        const stages = borders.slice(0, -1).map((first, at) => ({
          peers: [`p${at}`, `s${at}`],
          run: { first, stop: borders[at + 1] ?? UNITS },
        }));
        const world = new World(1, stages);
        const shadows = shadowed ? stages.map((_, stage) => ({ stage, peer: `s${stage}` })) : [];
        const peers = stages.map((_, at) => `p${at}`);
        const ask = { prompt, maxTokens, sampling: samplingOf({}), endTokens: [13] };
        world.asked(world.origin.begin(0, { plan: 1, peers, shadows }, ask));
        const lost = place % stages.length;
        const other = peers.map((peer, at) => (at === lost ? `s${at}` : peer));
        world.deliver(
          (links) => (choices.next().value as number) % links,
          lossAt,
          () => world.lose(`p${lost}`, { plan: 1, peers: other, shadows: [] }),
        );
        const tokens = [...prompt];
        do tokens.push(favourite(tokens));
        while (tokens.at(-1) !== 13 && tokens.length < prompt.length + maxTokens);
        expect(world.emitted).toEqual(tokens.slice(prompt.length));
        expect(world.ended).toBe(tokens.at(-1) === 13 ? 'end' : 'length');
      },
    ),
    { numRuns: 120 },
  );
});
