/* The stages' traces, step by step as Python took them, and a split pipeline against an unsplit one. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { Cancel, Frame, Open, Release, Step, Token } from '../src/frames';
import type { PlanRecord, Run } from '../src/mesh_state';
import {
  type Loaded,
  type NotRan,
  pick,
  type PlanStages,
  type Ran,
  type RunStep,
  StageCore,
  type StageEffect,
} from '../src/pipeline';
import { samplingOf, samplingToWire } from '../src/sampling';
import { type OriginEffect, OriginSession, reasonOf } from '../src/session';
import { frameOf, type Row, shown } from './traces';
import { vectors } from './vectors';

type Pair = [number, number];
interface Op extends Row {
  readonly do: string;
  readonly now: number;
  readonly gives: Row[];
  readonly after: number[];
}
interface Vectors {
  readonly plans: [number, [string, Pair][]][];
  readonly slots: [Pair, number][];
  readonly traces: { name: string; ops: Op[] }[];
}

const VECTORS = vectors('pipeline') as Vectors;
const runOf = ([first, stop]: Pair): Run => ({ first, stop });
const PLANS: ReadonlyMap<number, PlanStages> = new Map(
  VECTORS.plans.map(([version, stages]) => [
    version,
    stages.map(([peer, run]) => ({ peer, run: runOf(run) })),
  ]),
);
const LOADED: readonly Loaded[] = VECTORS.slots.map(([run, slots]) => ({ run: runOf(run), slots }));

describe('traces', () => {
  it.each(VECTORS.traces)('$name', ({ ops }) => {
    const core = new StageCore('p1');
    core.serve(PLANS, LOADED);
    ops.forEach((op, at) => {
      const gives = perform(core, op).map(effect);
      const after = [core.sessions(), core.active(), core.tokensSampled, core.stepsRun];
      expect({ at, op: op.do, gives, after }).toEqual({ at, op: op.do, gives: op.gives, after: op.after });
    });
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
    case 'cancel':
      return core.cancel(sender, frame as Cancel);
    case 'release':
      return core.release(sender, frame as Release);
    case 'ran':
      return core.ran(now, {
        ...result,
        hidden: Float32Array.from(result['hidden'] as number[]),
      } as unknown as Ran);
    case 'not_ran':
      return core.notRan({ ...result, reason: reasonOf(result['reason'] as number) } as unknown as NotRan);
    case 'peer_gone':
      return core.peerGone(op['peer'] as string);
    case 'congestion':
      return core.congestion(op['peer'] as string, op['full'] as boolean);
    case 'drop':
      return core.drop(runOf(op['run'] as Pair));
    case 'serve':
      core.serve(PLANS, LOADED);
      return [];
    case 'tick':
      return core.tick(now);
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
    case 'freeSlot':
      return { free_slot: [item.run.first, item.run.stop], session: item.session };
    case 'runStep':
      return {
        run_step: [item.run.first, item.run.stop],
        session: item.session,
        turn: item.turn,
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

  constructor(plan: PlanRecord) {
    const stages = plan.stages.map(({ primary, first, stop }) => ({ peer: primary, run: { first, stop } }));
    for (const { peer, run } of stages) {
      const core = new StageCore(peer);
      core.serve(new Map([[plan.version, stages]]), [{ run, slots: 2 }]);
      this.cores.set(peer, core);
    }
  }

  /** Delivers everything; `choose` says which link goes next. */
  deliver(choose: (links: number) => number): void {
    for (let turn = 0; turn < 10_000; turn++) {
      const waiting = [...this.links.values()].filter((queue) => queue.length > 0);
      if (waiting.length === 0) return;
      waiting[choose(waiting.length)]?.shift()?.();
    }
    throw new Error('no end');
  }

  asked(effects: readonly OriginEffect[]): void {
    for (const item of effects) {
      if (item.kind === 'send') this.post('asker', item.peer, item.frame);
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
    if (frame.kind === 'TOKEN' && dst === 'asker') this.asked(this.origin.token(0, src, frame));
    if (core === undefined) return;
    if (frame.kind === 'OPEN') this.staged(dst, core.open(0, src, frame));
    else if (frame.kind === 'STEP') this.staged(dst, core.step(0, src, frame));
    else if (frame.kind === 'TOKEN') this.staged(dst, core.token(0, src, frame));
    else if (frame.kind === 'CANCEL') this.staged(dst, core.cancel(src, frame));
    else throw new Error(`unexpected ${frame.kind}`);
  }

  private staged(peer: string, effects: readonly StageEffect[]): void {
    for (const item of effects) {
      if (item.kind === 'send') this.post(peer, item.peer, item.frame);
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
      session: step.session,
      turn: step.turn,
      position: step.position,
      count: step.count,
      hidden,
      token,
    };
  }
}

it('split equals unsplit, whatever arrives first', () => {
  fc.assert(
    fc.property(
      fc.subarray([1, 2, 3, 4, 5, 6, 7], { maxLength: 3 }),
      fc.array(fc.nat(VOCABULARY - 1), { minLength: 1, maxLength: 80 }),
      fc.integer({ min: 1, max: 12 }),
      fc.infiniteStream(fc.nat(1000)),
      (cuts, prompt, maxTokens, choices) => {
        const borders = [0, ...cuts, UNITS];
        const stages = borders.slice(0, -1).map((first, at) => ({
          first,
          stop: borders[at + 1] ?? UNITS,
          primary: `p${at}`,
          standbys: [],
          weightBytes: 0,
          kvBytes: 0,
          overheadBytes: 0,
        }));
        const plan = { version: 1, stages, predictedTokenUs: 0, predictedRateMilli: 0, why: [] };
        const world = new World(plan);
        const ask = { prompt, maxTokens, sampling: samplingOf({}), endTokens: [13] };
        world.asked(world.origin.begin(0, plan, ask));
        world.deliver((links) => (choices.next().value as number) % links);
        const tokens = [...prompt];
        do tokens.push(favourite(tokens));
        while (tokens.at(-1) !== 13 && tokens.length < prompt.length + maxTokens);
        expect(world.emitted).toEqual(tokens.slice(prompt.length));
        expect(world.ended).toBe(tokens.at(-1) === 13 ? 'end' : 'length');
      },
    ),
    { numRuns: 60 },
  );
});
