/* How traces of a peer's stages are replayed: what they are told, and what they answer, as the vectors write it. */

import { type NotRan, type Ran, type StageEffect, reasonOf } from '../../src/session/effects';
import type { Cancel, Feed, Open, Release, Step, Token, Where } from '../../src/wire/generated/frames';
import type { Run } from '../../src/state/plan_record';
import type { Loaded, PlanStages } from '../../src/session/open_checks';
import { StageCore, type StageRules } from '../../src/session/stage';
import { samplingToWire } from '../../src/session/sampling';
import { frameOf, type Row, shown } from '../traces';
import { vectors } from '../vectors';

type Pair = [number, number];
export interface Op extends Row {
  readonly do: string;
  readonly now: number;
  readonly gives: Row[];
  readonly after: unknown[];
}
export interface StageTrace {
  readonly name: string;
  readonly ops: readonly Op[];
}
interface Vectors {
  readonly plans: [number, [string[], Pair][]][];
  readonly slots: [Pair, number][];
  readonly log_bytes: [number, number];
  readonly traces: readonly StageTrace[];
}

const VECTORS = vectors('pipeline') as Vectors;
export const TRACES = VECTORS.traces;
const runOf = ([first, stop]: Pair): Run => ({ first, stop });
const PLANS: ReadonlyMap<number, PlanStages> = new Map(
  VECTORS.plans.map(([version, stages]) => [
    version,
    stages.map(([peers, run]) => ({ peers, run: runOf(run) })),
  ]),
);
const LOADED: readonly Loaded[] = VECTORS.slots.map(([run, slots]) => ({ run: runOf(run), slots }));

/** What a stage is told when it asks, as the steps of a trace set it. */
class Answers implements StageRules {
  authors: ReadonlyMap<string, string> = new Map();
  can = false;
  readonly mayAsk = (): string => '';
  readonly owedMilli = (): number => 0;
  readonly positionBytes: () => number;

  constructor(positionBytes: number) {
    this.positionBytes = () => positionBytes;
  }

  authorOf(session: string): string | null {
    return this.authors.get(session) ?? null;
  }

  bring(): boolean {
    return this.can;
  }
}

function answersOf({ rules }: StageCore): Answers {
  if (!(rules instanceof Answers)) throw new Error('expected a stage of a trace');
  return rules;
}

/** With the plans of the traces. */
export function servingCore(positionBytes = 0): StageCore {
  const core = new StageCore('p1', new Answers(positionBytes), ...VECTORS.log_bytes);
  core.serve(PLANS, LOADED);
  return core;
}

/** What the stages answer to `op`, as a trace writes it; `found` where it asks which session an answer has. */
export function answered(core: StageCore, op: Op): { readonly gives: unknown[]; readonly found?: unknown } {
  if (op.do !== 'same_answer') return { gives: perform(core, op).map(effect) };
  const run = runOf(op['run'] as Pair);
  const found = core.sameAnswer(op['session'] as string, run, op['origin'] as string);
  return { gives: [], found: found === null ? null : [found.session, found.computed] };
}

/** What a trace says of stages after each step. */
export function stateOf(core: StageCore): unknown[] {
  return [
    ...[core.sessions(), core.active(), core.tokensSampled, core.stepsRun],
    ...[core.lag(), core.logBytes, core.replayedBytes, core.takenOver],
    core.notes().map(({ what, session, stage }) => `${what} at ${stage}: ${session}`),
  ];
}

export function perform(core: StageCore, op: Op): StageEffect[] {
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
      answersOf(core).authors = new Map(Object.entries(op['sessions'] as Record<string, string>));
      return [];
    }
    case 'brings':
      answersOf(core).can = op['can'] as boolean;
      return [];
    case 'brought': {
      const effects = core.brought(
        now,
        op['session'] as string,
        op['stage'] as number,
        op['count'] as number,
      );
      if (core.copied !== op['copied']) throw new Error(`${core.copied} copied positions`);
      return effects;
    }
    case 'tick':
      return core.tick(now);
    case 'keep_only':
      core.protect(op['held'] as boolean, core.logSessionBytes, core.logTotalBytes);
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

export function effect(item: StageEffect): unknown {
  switch (item.kind) {
    case 'send':
      return { send: item.peer, frame: shown(item.frame) };
    case 'spare':
      return { spare: item.peer, frame: shown(item.frame) };
    case 'freeSlot':
      return { free_slot: [item.run.first, item.run.stop], session: item.session };
    case 'prefixWork': {
      const { what, run, session, digest, count } = item;
      return { prefix_work: what, run: [run.first, run.stop], session, digest, count };
    }
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
        shift: item.shift,
      };
    default:
      return item satisfies never;
  }
}
