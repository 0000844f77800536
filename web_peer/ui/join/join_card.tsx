/* The way in: what the person is called, then four steps, with what each really waits for. */

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';

import { Icon } from '../kit/icons';
import { JoinOptions } from './join_options';
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
  connect: 'Find the mesh and check the invite',
  measure: 'See how fast this machine and its links are',
  fetch: 'Get this tab’s share of the weights, once',
  ready: 'Load it into memory',
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

/** What comes of joining by this link. */
function Joins({ view }: { view: View }) {
  return (
    <p>
      This tab lends some memory and compute, and everyone here can ask the model.
      {view.isInvited && ' Your link leads into a conversation, too.'}
    </p>
  );
}

/** Asks what this person is called, before the first visit to a mesh. */
export function AskName({ view }: { view: View }) {
  const name = useSignal('');
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <main class="card" aria-label="Join the mesh">
      <h1>Join the mesh</h1>
      <Joins view={view} />
      <form
        class="open"
        onSubmit={(event) => {
          event.preventDefault();
          view.actions.join(name.value);
        }}
      >
        <label class="field">
          <span>Your name? (optional)</span>
          <input
            ref={field}
            autoComplete="nickname"
            maxLength={40}
            placeholder="How others see you"
            value={name.value}
            onInput={(event) => (name.value = event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="primary">
          Join
        </button>
      </form>
      <p class="hint">This browser remembers it. Without one, others see the kind of browser.</p>
      <JoinOptions view={view} />
    </main>
  );
}

/** What stands in place of the mesh until the first state of it is here. */
export function JoiningCard({ view }: { view: View }) {
  return (
    <main class="card" aria-label="Joining">
      <h1>Joining the mesh</h1>
      <Joins view={view} />
      <JoiningSteps view={view} />
      <JoinOptions view={view} />
      <div class="buttons">
        <button type="button" class="secondary" onClick={() => view.actions.leave()}>
          Cancel
        </button>
      </div>
    </main>
  );
}
