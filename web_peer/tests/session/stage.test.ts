/* The stages' traces, step by step as Python took them, and a split pipeline against an unsplit one. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import type { OriginEffect, Ran, RunStep, StageEffect } from '../../src/session/effects';
import type { Frame, Open } from '../../src/wire/generated/frames';
import { pick, type PlanStages } from '../../src/session/open_checks';
import { StageCore } from '../../src/session/stage';
import type { Route } from '../../src/session/routes';
import { samplingOf } from '../../src/session/sampling';
import { OriginSession } from '../../src/session/origin';
import { answered, type Op, servingCore, stateOf, TRACES } from './stage_traces';
import { frameOf, type Row } from '../traces';

describe('traces', () => {
  it.each(TRACES)('$name', ({ ops }) => {
    const core = servingCore();
    ops.forEach((op, at) => {
      const made = answered(core, op);
      const after = stateOf(core);
      const { gives, after: expected, found } = op as Op & { found?: unknown };
      expect({ at, op: op.do, ...made, after }).toEqual({
        at,
        op: op.do,
        gives,
        after: expected,
        ...(found === undefined ? {} : { found }),
      });
    });
  });
});

it('one more than a stage has slots may warm', () => {
  const core = servingCore(); // two slots for these units
  const trace = TRACES.find(({ name }) => name.startsWith('an answer moves'));
  const given = trace?.ops.find((op) => op.do === 'open')?.['frame'];
  const opening = frameOf(given as Row) as Open;
  const open = (digit: string, maxTokens: number): string => {
    const effects = core.open(0, 'p0', { ...opening, session: digit.repeat(32), maxTokens });
    const refused = effects.find((item) => item.kind === 'send' && item.frame.kind === 'REFUSE');
    return refused === undefined ? 'a seat' : 'none';
  };
  expect([open('a', 0), open('b', 0), open('c', 0), open('d', 0)]).toEqual([
    'a seat',
    'a seat',
    'a seat',
    'none',
  ]);
  for (const digit of 'abc') core.release('asker', { kind: 'RELEASE', session: digit.repeat(32) });
  expect([open('e', 0), open('f', 9), open('1', 9), open('2', 9)]).toEqual([
    'a seat',
    'a seat',
    'a seat',
    'none',
  ]);
  core.release('asker', { kind: 'RELEASE', session: 'e'.repeat(32) });
  expect([open('3', 9), open('4', 0), open('5', 0)]).toEqual(['none', 'a seat', 'none']);
});

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
