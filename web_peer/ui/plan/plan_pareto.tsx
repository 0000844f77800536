/* Plans side by side: to the left is faster for one answer, upwards more for all. */

import type { ChoiceView, PlanView } from '../app/view';
import { HeadingNote } from '../kit/heading_note';
import { bytesText, rateText } from '../kit/formatting';

const TICKS = 5; // about
const SAID_BESIDE = /^[\d.]+ (?:ms a token|tokens\/s), /; // the figure that a reason repeats

/** Round values from 0 to at most `most`. */
function ticksTo(most: number): readonly number[] {
  const rough = most / TICKS;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough) ?? rough;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
}

const percent = (share: number): string => `${(100 * share).toFixed(2)}%`;
const figure = (value: number): string => String(Number(value.toPrecision(3)));

/** "prompt 8.9 ms a token", "445 MB on one peer", "0.35 ms more": what is known beside the two figures. */
function more({ able, promptMs, memoryBytes, whyNot }: ChoiceView): string {
  const reason = whyNot.replace(SAID_BESIDE, '');
  const facts = [
    promptMs > 0 ? `prompt ${figure(promptMs)} ms a token` : '',
    memoryBytes > 0 ? `${bytesText(memoryBytes)} on the fullest peer` : '',
    able && reason !== '' ? `not taken: ${reason}` : reason,
  ];
  return facts.filter((fact) => fact !== '').join(' · ');
}

const looksOf = ({ able, onFront, knee }: ChoiceView): string =>
  [able ? '' : 'is-unable', onFront ? 'is-front' : '', knee ? 'is-knee' : '']
    .filter((name) => name !== '')
    .join(' ');

/** The picture of the plans that are able; nothing where there is no choice. */
export function Front({ choices, comparedBy }: Pick<PlanView, 'choices' | 'comparedBy'>) {
  const able = choices.filter((choice) => choice.able);
  if (choices.length < 2 || able.length === 0) return null;
  const mostMs = 1.08 * Math.max(...able.map(({ tokenMs }) => tokenMs), 1e-6);
  const mostPerS = 1.15 * Math.max(...able.map(({ perS }) => perS), 1e-6);
  const hint =
    comparedBy === 'planner'
      ? 'as the planner compared them; filled: none beats it in both; square: a bit of both'
      : 'as this tab reckons them; filled: none beats it in both';
  return (
    <section>
      <h3>
        Other plans<HeadingNote>{hint}</HeadingNote>
      </h3>
      <div class="front" aria-hidden="true">
        <span class="axis-up">tokens a second, all conversations</span>
        <div class="field-of">
          {ticksTo(mostPerS).map((value) => (
            <i key={`y${value}`} class="tick is-y" style={{ bottom: percent(value / mostPerS) }}>
              <span>{figure(value)}</span>
            </i>
          ))}
          {ticksTo(mostMs).map((value) => (
            <i key={`x${value}`} class="tick is-x" style={{ left: percent(value / mostMs) }}>
              <span>{figure(value)}</span>
            </i>
          ))}
          {able.map((choice, at) => (
            <b
              key={at}
              class={`point ${looksOf(choice)}${choice.chosen ? ' is-chosen' : ''}`}
              title={choice.words}
              style={{ left: percent(choice.tokenMs / mostMs), bottom: percent(choice.perS / mostPerS) }}
            >
              {at + 1}
            </b>
          ))}
        </div>
        <span class="axis-along">milliseconds a token, one answer</span>
      </div>
      <ol class="choices-of">
        {[...able, ...choices.filter((choice) => !choice.able)].map((choice, at) => (
          <li key={at} class={choice.chosen ? 'is-chosen' : ''}>
            <span class={`number-of ${looksOf(choice)}`} aria-hidden="true">
              {choice.able ? at + 1 : '×'}
            </span>
            <span>
              <strong>{choice.words}</strong>
              {choice.chosen && <span class="tag">in force</span>}
            </span>
            <span class="with">
              {choice.able ? `${figure(choice.tokenMs)} ms · ${rateText(choice.perS)}` : 'cannot run'}
            </span>
            {choice.route !== '' && <span class="does">{choice.route}</span>}
            {more(choice) !== '' && <span class="does">{more(choice)}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}
