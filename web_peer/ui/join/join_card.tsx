/* The way in: four steps, with what each really waits for. */

import { Icon } from '../kit/icons';
import { PinSwitch } from './pinned_ends_switch';
import { Privacy } from './privacy';
import { RelaySwitch } from './relay_switch';
import { secondsLeft } from './join_steps';
import type { JoinStep, StepName, View } from '../app/view';
import { bytesText, secondsText } from '../kit/formatting';

const TITLES: Readonly<Record<StepName, string>> = {
  connect: 'Connect',
  measure: 'Measure',
  fetch: 'Fetch',
  ready: 'Ready',
};
const ABOUT: Readonly<Record<StepName, string>> = {
  connect: 'Find the mesh and prove the invite',
  measure: 'See how fast this machine and its links are',
  fetch: 'Get this tab’s share of the weights, once',
  ready: 'Load it and take part',
};

function rateLine(step: JoinStep): string {
  const left = secondsLeft(step);
  const parts = [`${bytesText(step.done)} of ${bytesText(step.total)}`];
  if (step.perSecond > 0) parts.push(`${bytesText(step.perSecond)}/s`);
  if (left !== null) parts.push(`${secondsText(left)} left`);
  return parts.join(' · ');
}

function Step({ step, at }: { step: JoinStep; at: number }) {
  const measured = step.state === 'doing' && step.total > 0;
  return (
    <li class={`is-${step.state}`} aria-current={step.state === 'doing' ? 'step' : undefined}>
      <span class="bullet" aria-hidden="true">
        {step.state === 'done' ? <Icon name="done" /> : at + 1}
      </span>
      <div>
        <p class="title">
          {TITLES[step.name]}
          {step.state === 'done' && <span class="visually-hidden"> (done)</span>}
        </p>
        <p>{step.state === 'doing' && step.detail !== '' ? step.detail : ABOUT[step.name]}</p>
        {step.state === 'doing' && (
          <progress
            aria-label={TITLES[step.name]}
            {...(measured ? { value: Math.min(step.done, step.total), max: step.total } : {})}
          />
        )}
        {measured && <p class="rate">{rateLine(step)}</p>}
      </div>
    </li>
  );
}

/** Whether this tab is on its way to lend. */
export function isGettingReady(view: View): boolean {
  return (
    view.mine.value.lending.kind === 'starting' && view.steps.value.some((step) => step.state !== 'done')
  );
}

/** The steps as a list. */
export function JoiningSteps({ view }: { view: View }) {
  return (
    <ol class="steps">
      {view.steps.value.map((step, at) => (
        <Step key={step.name} step={step} at={at} />
      ))}
    </ol>
  );
}

/** What stands in place of the mesh until the first state of it is here. */
export function JoiningCard({ view }: { view: View }) {
  return (
    <main class="card" aria-label="Joining">
      <h1>Joining the mesh</h1>
      <p>
        This tab becomes a peer: it lends a share of memory and compute, and everyone here can ask the model.
      </p>
      <JoiningSteps view={view} />
      <RelaySwitch view={view} />
      <PinSwitch view={view} />
      <Privacy open />
      <div class="buttons">
        <button type="button" class="secondary" onClick={() => view.actions.leave()}>
          Cancel
        </button>
      </div>
    </main>
  );
}
