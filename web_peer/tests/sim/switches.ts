/* Decides which defects can be put into the cores for a while, to prove that the simulated runs find them. */

import { ActivationLog } from '../../src/session/activation_log';
import type { Ran, StageEffect } from '../../src/session/effects';
import type { Open, Step, Token } from '../../src/wire/generated/frames';
import { type Loaded, pick, type PlanStages } from '../../src/session/open_checks';
import { StageCore } from '../../src/session/stage';
import { Over, Seat } from '../../src/session/seat';
import { OriginSession } from '../../src/session/origin';
import type { Tensor } from '../../src/wire/tensors';
import { runtime } from './worker';

/** What a defect reaches into: methods of the cores, private ones too. */
type Method = (...args: never[]) => unknown;
type Insides = Record<string, Method>;

/** One defect: what it does, in words, and how it gets in; that returns how it gets out. */
export interface Switch {
  readonly what: string;
  readonly apply: () => () => void;
}

/** Replaces one method by what `make` makes of it. */
function replace(owner: object, name: string, make: (original: Method) => Method): () => void {
  const insides = owner as Insides;
  const original = insides[name];
  if (original === undefined) throw new Error(`there is no ${name} to replace`);
  const own = Object.hasOwn(insides, name);
  insides[name] = make(original);
  return () => {
    if (own) insides[name] = original;
    else Reflect.deleteProperty(insides, name);
  };
}

function all(...undo: (() => void)[]): () => void {
  return () => {
    for (const one of undo) one();
  };
}

const stage = StageCore.prototype;
const seat = Seat.prototype;
const log = ActivationLog.prototype;
const origin = OriginSession.prototype;

interface Stage {
  readonly seats: ReadonlyMap<string, Seat>;
  ofRun(session: string, run: Ran['run']): Seat | undefined;
}

/** A method that looks at each token before the original does. */
function tokens(look: (core: OriginSession, sender: string, frame: Token) => [string, Token]): () => void {
  return replace(
    origin,
    'token',
    (original) =>
      function (this: OriginSession, now: number, sender: string, frame: Token) {
        const [by, seen] = look(this, sender, frame);
        return original.call(this, now as never, by as never, seen as never);
      },
  );
}

export const SWITCHES: Readonly<Record<string, Switch>> = {
  acceptsGaps: {
    what: 'a stage computes a step though a position before it is missing',
    apply: () =>
      all(
        replace(
          seat,
          'nextStep',
          (original) =>
            function (this: Seat) {
              if (!this.waiting.has(this.submitted) && this.waiting.size > 0) {
                this.submitted = Math.min(...this.waiting.keys());
                this.received = Math.max(this.received, this.submitted);
              }
              return original.call(this);
            },
        ),
        replace(runtime, 'lacks', () => () => false),
      ),
  },
  forgetsDuplicates: {
    what: 'a stage computes again what came twice',
    apply: () =>
      replace(
        seat,
        'take',
        (original) =>
          function (this: Seat, step: Step) {
            if (step.position < this.received) this.received = this.submitted = step.position;
            return original.call(this, step as never);
          },
      ),
  },
  replaysShifted: {
    what: 'a log is sent again from the wrong position',
    apply: () =>
      replace(
        log,
        'since',
        (original) =>
          function (this: ActivationLog, position: number) {
            const found = original.call(this, (position + 1) as never) as
              { position: number; tensor: Tensor }[] | null;
            return found?.map((entry) => ({ ...entry, position: entry.position - 1 })) ?? null;
          },
      ),
  },
  keepsSlots: {
    what: 'a slot stays taken after its session was let go',
    apply: () =>
      replace(
        stage,
        'free',
        (original) =>
          function (this: StageCore, freed: Seat) {
            const effects = original.call(this, freed as never) as StageEffect[];
            return effects.filter(({ kind }) => kind !== 'freeSlot');
          },
      ),
  },
  samplesByItself: {
    what: 'the tail draws tokens from chance of its own',
    apply: () => {
      let drawn = 0;
      return replace(runtime, 'pick', () => (...args: Parameters<typeof pick>) => {
        drawn += 1;
        const [spec, logits] = args;
        return pick({ ...spec, sampling: { ...spec.sampling, seed: spec.sampling.seed + drawn } }, logits);
      });
    },
  },
  trustsOldPlans: {
    what: 'a stage serves the units of an older plan',
    apply: () =>
      replace(
        stage,
        'serve',
        (original) =>
          function (this: StageCore, plans: ReadonlyMap<number, PlanStages>, loaded: readonly Loaded[]) {
            const oldest = new Map<number, PlanStages>();
            const trusted = new Map<number, PlanStages>();
            for (const [version, plan] of [...plans].sort(([a], [b]) => a - b)) {
              const known = oldest.get(plan.length) ?? plan;
              oldest.set(plan.length, known);
              trusted.set(version, known);
            }
            return original.call(this, trusted as never, loaded as never);
          },
      ),
  },
  replaysAsPrompt: {
    what: 'sampled positions are computed again as given ones',
    apply: () =>
      replace(
        seat,
        'isGiven',
        () =>
          function (this: Seat, position: number) {
            return position < this.opening.promptTokens;
          },
      ),
  },
  takesStepsOfAnybody: {
    what: 'a stage listens to peers before it in no route',
    apply: () =>
      replace(
        stage,
        'step',
        (original) =>
          function (this: StageCore, now: number, sender: string, frame: Step) {
            const { seats } = this as unknown as Stage;
            const mine = [...seats.values()].find(
              ({ session, opening }) => session === frame.session && opening.stage === frame.stage,
            );
            return original.call(this, now as never, (mine?.upstream ?? sender) as never, frame as never);
          },
      ),
  },
  takesTokensOfAnybody: {
    what: 'an asker shows tokens of a peer that is no tail',
    apply: () => tokens((core, sender, frame) => [core.route.at(-1) ?? sender, frame]),
  },
  takesOverWithHoles: {
    what: 'a standby takes over without the positions that it lacks',
    apply: () =>
      all(
        replace(stage, 'askUpstream', () => (_now: number, taken: Seat) => {
          if (taken.received < taken.opening.start) taken.received = taken.submitted = taken.opening.start;
          return [];
        }),
        replace(runtime, 'lacks', () => () => false),
      ),
  },
  tailRepeatsNothing: {
    what: 'a tail does not say again what the asker did not hear',
    apply: () =>
      replace(
        stage,
        'continueTail',
        (original) =>
          function (this: StageCore, taken: Seat) {
            original.call(this, taken as never);
            return [];
          },
      ),
  },
  evictsTheNewest: {
    what: 'a full log gives up the newest instead of the oldest',
    apply: () =>
      replace(
        log,
        'dropOldest',
        () =>
          function (this: ActivationLog) {
            const { entries } = this as unknown as { entries: { tensor: Tensor }[] };
            this.bytes -= entries.pop()?.tensor.data.length ?? 0;
          },
      ),
  },
  takesTokensOfOldAnswers: {
    what: 'an asker shows tokens of an answer that is over',
    apply: () => tokens((core, sender, frame) => [sender, { ...frame, turn: core.turn }]),
  },
  takesFramesOfOldTurns: {
    what: 'a stage listens to frames of turns that are over',
    apply: () =>
      replace(
        stage,
        'seat',
        () =>
          function (this: StageCore, session: string, place: number) {
            const { seats } = this as unknown as Stage;
            return [...seats.values()].find((one) => one.session === session && one.opening.stage === place);
          },
      ),
  },
  takesTokensAtAnyPosition: {
    what: 'an asker shows a token whatever its position',
    apply: () => tokens((core, sender, frame) => [sender, { ...frame, position: core.tokens.length }]),
  },
  ignoresCancel: {
    what: 'a stage goes on after it was told to stop',
    apply: () => replace(stage, 'cancel', () => () => []),
  },
  forgetsWhatWasGenerated: {
    what: 'a tail that takes over counts no earlier token of the answer',
    apply: () =>
      replace(
        stage,
        'continueTail',
        (original) =>
          function (this: StageCore, taken: Seat) {
            const effects = original.call(this, taken as never);
            taken.generated = 0;
            return effects;
          },
      ),
  },
  countsTwice: {
    what: 'tokens before a takeover count twice against the most',
    apply: () =>
      replace(
        stage,
        'open',
        (original) =>
          function (this: StageCore, now: number, sender: string, frame: Open) {
            const maxTokens = Math.max(1, frame.maxTokens - frame.generated);
            return original.call(this, now as never, sender as never, { ...frame, maxTokens } as never);
          },
      ),
  },
  leasesNeverEnd: {
    what: 'sessions that nobody continues stay for ever',
    apply: () => replace(stage, 'tick', () => () => []),
  },
  logsWithoutBound: {
    what: 'logs of activations only grow',
    apply: () =>
      all(
        replace(
          log,
          'append',
          (original) =>
            function (this: ActivationLog, position: number, tensor: Tensor) {
              (this as unknown as { limit: number }).limit = Infinity;
              return original.call(this, position as never, tensor as never);
            },
        ),
        replace(stage, 'boundLogs', () => () => undefined),
      ),
  },
  takesResultsOfAnotherEpoch: {
    what: 'a stage hands on what was computed before it went back',
    apply: () =>
      replace(
        stage,
        'ran',
        (original) =>
          function (this: StageCore, now: number, result: Ran) {
            const epoch = (this as unknown as Stage).ofRun(result.session, result.run)?.epoch ?? result.epoch;
            return original.call(this, now as never, { ...result, epoch } as never);
          },
      ),
  },
  letsLateOpensIn: {
    what: 'an OPEN that comes after the end takes a seat',
    apply: () => replace(Over.prototype, 'note', () => () => undefined),
  },
};
