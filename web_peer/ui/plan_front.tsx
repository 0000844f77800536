/* Plans side by side: to the left is faster for one answer, upwards more for all. */

import type { ChoiceView } from './plan_choices';
import { rateText } from './words';

const TICKS = 5; // about

/** Round values from 0 to at most `most`. */
function ticksTo(most: number): readonly number[] {
  const rough = most / TICKS;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough) ?? rough;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
}

const percent = (share: number): string => `${(100 * share).toFixed(2)}%`;
const figure = (value: number): string => String(Number(value.toPrecision(3)));

export function Front({ choices }: { choices: readonly ChoiceView[] }) {
  if (choices.length < 2) return null;
  const mostMs = 1.08 * Math.max(...choices.map(({ tokenMs }) => tokenMs));
  const mostPerS = 1.15 * Math.max(...choices.map(({ perS }) => perS));
  return (
    <section>
      <h3>
        Other plans <span class="hint">as this tab reckons them; filled: none beats it in both</span>
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
          {choices.map((choice, at) => (
            <b
              key={at}
              class={`point${choice.onFront ? ' is-front' : ''}${choice.chosen ? ' is-chosen' : ''}`}
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
        {choices.map((choice, at) => (
          <li key={at} class={choice.chosen ? 'is-chosen' : ''}>
            <span class="number-of" aria-hidden="true">
              {at + 1}
            </span>
            <span>
              <strong>{choice.words}</strong>
              {choice.chosen && <span class="tag">in force</span>}
              <span class="does">{choice.route}</span>
            </span>
            <span class="with">
              {figure(choice.tokenMs)} ms · {rateText(choice.perS)}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}
