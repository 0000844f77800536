/* The plan as a picture, live: stages and hops, one token in time, memory, and what each loss would mean. */

import { useEffect } from 'preact/hooks';

import { Dialog } from '../kit/dialog';
import { HeadingNote } from '../kit/heading_note';
import { Front } from './plan_pareto';
import { PlanWish } from './plan_goal_form';
import type { HopView, LossView, MemoryView, PlanView, StageView, View } from '../app/view';
import { bytesText, countText, delayText, rateText } from '../kit/formatting';

const LEAST_SHARE = 0.004; // of a bar: what is there is seen
const SMALL_STEP_MS = 10;

/** "12.4 ms", "54 ms". */
const msText = (ms: number): string =>
  ms < SMALL_STEP_MS ? delayText(ms) : `${ms.toFixed(ms < 100 ? 1 : 0)} ms`;
const perToken = (ms: number | null): string => (ms === null ? 'not known yet' : `${msText(ms)} a token`);

interface Part {
  readonly look: string;
  readonly what: string;
  readonly size: number;
}

/** A bar of parts that add up to at most `whole`; what is left stays empty. */
function Bar({ parts, whole, mark = 0 }: { parts: readonly Part[]; whole: number; mark?: number }) {
  return (
    <span class="bar" aria-hidden="true">
      {parts.map(
        ({ look, what, size }, at) =>
          size > 0 && (
            <i
              key={at}
              class={`part is-${look}`}
              title={what}
              style={{ width: `${(100 * Math.max(LEAST_SHARE, size / Math.max(1e-9, whole))).toFixed(2)}%` }}
            />
          ),
      )}
      {mark > 0 && (
        <b class="mark-now" style={{ left: `${(100 * Math.min(1, mark / whole)).toFixed(2)}%` }} />
      )}
    </span>
  );
}

function Figure({ label, value, more }: { label: string; value: string; more: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
      <dd class="more">{more}</dd>
    </div>
  );
}

function Figures({ plan }: { plan: PlanView }) {
  const { measuredMs, tokenMs } = plan;
  return (
    <dl class="plan-figures">
      <Figure
        label="Predicted for one answer"
        value={perToken(tokenMs)}
        more={tokenMs > 0 ? rateText(1000 / tokenMs) : ''}
      />
      <Figure
        label="Measured in your last answer"
        value={measuredMs === null ? 'none yet' : perToken(measuredMs)}
        more={measuredMs === null ? 'ask something' : rateText(1000 / measuredMs)}
      />
      <Figure
        label={`Predicted for ${plan.sessions} at once`}
        value={rateText(plan.allPerS)}
        more={`conversations of ${countText(plan.context)} tokens`}
      />
      <Figure label="Strategy" value={plan.strategy} more={`for ${plan.goal}`} />
    </dl>
  );
}

function Standbys({ stage }: { stage: StageView }) {
  if (stage.standbys.length === 0) return <p class="by is-none">No standby</p>;
  const said = stage.standbys.map(({ name, ready }) => (ready ? name : `${name} (still loading)`));
  return <p class="by">Standby: {said.join(', ')}</p>;
}

function Stage({ stage, at, slowestMs }: { stage: StageView; at: number; slowestMs: number }) {
  const { predictedMs, measuredMs } = stage;
  return (
    <div class={stage.here ? 'stage' : 'stage is-missing'}>
      <p class="stage-name">
        <span class="number" aria-hidden="true">
          {at + 1}
        </span>
        <strong>{stage.name}</strong>
        {stage.you && <span class="tag">you</span>}
      </p>
      <p class="stage-units">{stage.here ? stage.units : `${stage.units}: not here yet`}</p>
      <dl class="stage-times">
        {(
          [
            ['predicted', predictedMs, 'plain'],
            ['measured', measuredMs, 'strong'],
          ] as const
        ).map(([label, ms, look]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <Bar parts={ms === null ? [] : [{ look, what: perToken(ms), size: ms }]} whole={slowestMs} />
              <span>{ms === null ? '–' : msText(ms)}</span>
            </dd>
          </div>
        ))}
      </dl>
      <Standbys stage={stage} />
    </div>
  );
}

function hopFacts(hop: HopView): readonly string[] {
  const facts = [
    hop.predictedMs === null ? 'no link is known' : `${msText(hop.predictedMs)} one way`,
    hop.roundTripMs === null ? '' : `round trip ${delayText(hop.roundTripMs)}`,
    hop.bytes > 0 ? `${smallBytesText(hop.bytes)} a token` : '',
    hop.bytesPerS > 0 ? `at ${bytesText(hop.bytesPerS)}/s` : '',
  ];
  return facts.filter((fact) => fact !== '');
}

/** "4 B", "2.3 kB": what a token carries is told more exactly than memory. */
const smallBytesText = (bytes: number): string =>
  bytes >= 1000 && bytes < 10_000 ? `${(bytes / 1000).toFixed(1)} kB` : bytesText(bytes);

function Hop({ hop }: { hop: HopView }) {
  return (
    <p class={hop.back ? 'hop is-back' : 'hop'}>
      <span class="arrow" aria-hidden="true" />
      <span>
        {hop.back ? `The token goes back to ${hop.to}: ` : <span class="visually-hidden">to {hop.to}: </span>}
        {hopFacts(hop).map((fact, at) => (
          <span key={at} class="fact">
            {at > 0 && <span class="visually-hidden">, </span>}
            {fact}
          </span>
        ))}
      </span>
    </p>
  );
}

function Chain({ plan }: { plan: PlanView }) {
  const slowestMs = Math.max(
    1e-6,
    ...plan.stages.flatMap(({ predictedMs, measuredMs }) => [predictedMs ?? 0, measuredMs ?? 0]),
  );
  const back = plan.hops.at(-1);
  return (
    <section>
      <h3>
        Who computes what<HeadingNote>time per token</HeadingNote>
      </h3>
      <ol class="chain">
        {plan.stages.map((stage, at) => {
          const hop = plan.hops[at];
          return (
            <li key={at}>
              <Stage stage={stage} at={at} slowestMs={slowestMs} />
              {hop !== undefined && !hop.back && <Hop hop={hop} />}
            </li>
          );
        })}
      </ol>
      {back !== undefined && <Hop hop={back} />}
    </section>
  );
}

/** One token from left to right, by what is predicted. */
function OneToken({ plan }: { plan: PlanView }) {
  const parts = plan.stages.flatMap((stage, at): Part[] => {
    const hop = plan.hops[at];
    const computes = {
      look: `stage-${at % 2}`,
      what: `${stage.name}: ${perToken(stage.predictedMs)}`,
      size: stage.predictedMs ?? 0,
    };
    const goes = {
      look: 'hop',
      what: hop === undefined ? '' : `to ${hop.to}: ${hopFacts(hop).join(', ')}`,
      size: hop?.predictedMs ?? 0,
    };
    return [computes, goes];
  });
  const wholeMs = parts.reduce((all, { size }) => all + size, 0);
  if (wholeMs <= 0) return null;
  const computesMs = plan.stages.reduce((all, { predictedMs }) => all + (predictedMs ?? 0), 0);
  const share = Math.round((100 * computesMs) / wholeMs);
  return (
    <section>
      <h3>
        One token in time<HeadingNote>{msText(wholeMs)}, as each peer measured itself</HeadingNote>
      </h3>
      <Bar parts={parts} whole={wholeMs} />
      <ul class="key">
        <li class="is-stage-0">computing, {share}%</li>
        {plan.hops.length > 0 && <li class="is-hop">on its way, {100 - share}%</li>}
      </ul>
    </section>
  );
}

const MEMORY_PARTS = [
  ['weights', 'weights'],
  ['kv', 'memory of conversations (KV)'],
  ['standby', 'for whom it stands by'],
  ['scratch', 'computing itself'],
] as const;

function Memory({ of }: { of: readonly MemoryView[] }) {
  const most = Math.max(1, ...of.map(({ pledge }) => pledge));
  return (
    <section>
      <h3>
        Memory<HeadingNote>lent and planned</HeadingNote>
      </h3>
      <ul class="memory">
        {of.map((one) => {
          const parts = MEMORY_PARTS.map(([look, what]) => ({
            look,
            what: `${what}: ${bytesText(one[look])}`,
            size: one[look],
          }));
          const used = parts.reduce((all, { size }) => all + size, 0);
          const share = Math.round((100 * used) / Math.max(1, one.pledge));
          const planned =
            used === 0
              ? `lends ${bytesText(one.pledge)}, has no part`
              : `${bytesText(used)} of ${bytesText(one.pledge)} (${share}%)`;
          const now = one.inUse > 0 ? `, ${bytesText(one.inUse)} in use now` : '';
          return (
            <li key={one.peer}>
              <span class="whose">
                {one.name}
                {one.you && <span class="tag">you</span>}
              </span>
              <span class="pledge" style={{ width: `${((100 * one.pledge) / most).toFixed(2)}%` }}>
                <Bar parts={parts} whole={one.pledge} mark={one.inUse} />
              </span>
              <span class="said-of">
                {planned}
                {now}
                {used > 0 && (
                  <span class="visually-hidden">
                    :{' '}
                    {parts
                      .filter(({ size }) => size > 0)
                      .map(({ what }) => what)
                      .join(', ')}
                  </span>
                )}
              </span>
            </li>
          );
        })}
      </ul>
      <ul class="key">
        {MEMORY_PARTS.map(
          ([look, what]) =>
            of.some((one) => one[look] > 0) && (
              <li key={look} class={`is-${look}`}>
                {what}
              </li>
            ),
        )}
        <li class="is-now">in use now</li>
      </ul>
    </section>
  );
}

const OUTCOMES: Readonly<Record<LossView['outcome'], string>> = {
  unnoticed: 'goes on',
  covered: 'goes on',
  waits: 'waits',
  stops: 'stops',
};

function Losses({ plan }: { plan: PlanView }) {
  const most = Math.max(1e-6, plan.nowMs, ...plan.losses.map(({ tokenMs }) => tokenMs ?? 0));
  if (plan.losses.length === 0) return null;
  return (
    <section>
      <h3>
        If a peer left
        <HeadingNote>time per token afterwards; the line is now, {msText(plan.nowMs)}</HeadingNote>
      </h3>
      <ul class="losses">
        {plan.losses.map((loss) => (
          <li key={loss.peer} class={`is-${loss.outcome}`}>
            <span class="whose">
              {loss.name}
              {loss.you && <span class="tag">you</span>}
            </span>
            <span class="then">
              <Bar
                parts={[{ look: loss.outcome, what: loss.text, size: loss.tokenMs ?? most }]}
                whole={most * 1.04}
                mark={plan.nowMs}
              />
              <span>{loss.tokenMs === null ? OUTCOMES[loss.outcome] : msText(loss.tokenMs)}</span>
            </span>
            <span class="said-of">{loss.text}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The sheet; the plan is watched as long as it is open. */
export function PlanSheet({ view, close }: { view: View; close: () => void }) {
  useEffect(() => {
    view.actions.watchPlan(true);
    return () => view.actions.watchPlan(false);
  }, []);
  const plan = view.plan.value;
  const { whyNot } = view.mesh.value;
  return (
    <Dialog title={plan === null ? 'The plan' : `Plan ${plan.version}`} close={close} wide>
      {plan === null ? (
        <div class="plan">
          <p>{whyNot === '' ? 'Nothing is planned yet.' : whyNot}</p>
          <PlanWish view={view} />
        </div>
      ) : (
        <div class="plan">
          <p class="plan-state">
            <span class={`pill ${plan.serves ? 'is-ready' : 'is-loading'}`}>
              <span class="status" aria-hidden="true" />
              {plan.serves ? 'in force' : 'cannot serve now'}
            </span>
            {!plan.serves && <span>{whyNot}</span>}
            {plan.next !== '' && <span>{plan.next}</span>}
          </p>
          <Figures plan={plan} />
          <Chain plan={plan} />
          <OneToken plan={plan} />
          <Memory of={plan.memory} />
          <Losses plan={plan} />
          <Front choices={plan.choices} comparedBy={plan.comparedBy} />
          <PlanWish view={view} />
          {plan.why.length > 0 && (
            <section>
              <h3>Why this plan</h3>
              <ul class="why">
                {plan.why.map((said) => (
                  <li key={said}>{said}</li>
                ))}
              </ul>
            </section>
          )}
        </div>
      )}
    </Dialog>
  );
}
