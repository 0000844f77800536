/* How plans are made: what the mesh wishes, in a line each, and for its owners the choice of another wish. */

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';

import type { Goal, PlanStrategy } from '../../src/state/generated/commands';
import { ALL_GOALS, ALL_STRATEGIES, goalMeans, type Meaning, strategyMeans } from './plan_goal_view';
import type { View, WishView } from '../app/view';

const ON_THE_COMMAND_LINE = 'Groups are named on the command line, with shoal wish.';

interface ChoicesProps<T extends string> {
  readonly legend: string;
  readonly name: string;
  readonly of: readonly Meaning<T>[];
  readonly now: T; // what the mesh wishes
  readonly chosen: T;
  readonly choose: (choice: T) => void;
  readonly unable?: (choice: T) => string; // why it cannot be chosen; "" where it can
}

function Choices<T extends string>({ legend, name, of, now, chosen, choose, unable }: ChoicesProps<T>) {
  return (
    <fieldset class="wishes">
      <legend>{legend}</legend>
      {of.map(({ name: choice, means }) => {
        const why = unable?.(choice) ?? '';
        return (
          <label key={choice} class={why === '' ? '' : 'is-unable'}>
            <input
              type="radio"
              name={name}
              value={choice}
              checked={chosen === choice}
              disabled={why !== ''}
              onChange={() => choose(choice)}
            />
            <span>
              <strong>{choice}</strong>
              {now === choice && <span class="tag">now</span>}
              <span class="means">
                {means} {why}
              </span>
            </span>
          </label>
        );
      })}
    </fieldset>
  );
}

function Form({ wish, view }: { wish: WishView; view: View }) {
  const [draft, setDraft] = useState<{ readonly strategy?: PlanStrategy; readonly goal?: Goal }>({});
  const { strategy, goal } = { strategy: wish.strategy, goal: wish.goal, ...draft };
  // What was chosen here is the mesh's wish now: from here on the choice follows the mesh again. Before anybody can
  // choose: an effect that comes after the first frame would forget what was chosen within it.
  useLayoutEffect(() => {
    if (strategy === wish.strategy && goal === wish.goal) setDraft({});
  }, [wish.strategy, wish.goal]);
  return (
    <form
      class="wish-form"
      onSubmit={(event) => {
        event.preventDefault();
        view.actions.wishPlan(strategy, goal);
      }}
    >
      <Choices
        legend="Strategy: where units are cut"
        name="wish-strategy"
        of={ALL_STRATEGIES}
        now={wish.strategy}
        chosen={strategy}
        choose={(choice) => setDraft({ ...draft, strategy: choice })}
        unable={(choice) => (choice === 'component' && !wish.hasGroups ? ON_THE_COMMAND_LINE : '')}
      />
      <Choices
        legend="Goal: what plans are good at"
        name="wish-goal"
        of={ALL_GOALS}
        now={wish.goal}
        chosen={goal}
        choose={(choice) => setDraft({ ...draft, goal: choice })}
      />
      {wish.groups.length > 0 && strategy !== 'component' && (
        <p class="hint">
          With another strategy the mesh forgets the groups. This page brings them back if you choose
          component again before you close it.
        </p>
      )}
      <div class="buttons">
        <button type="submit" class="primary">
          Apply
        </button>
      </div>
    </form>
  );
}

function Now({ wish }: { wish: WishView }): ComponentChildren {
  return (
    <>
      <p>
        Strategy: <strong>{wish.strategy}</strong> · Goal: <strong>{wish.goal}</strong>
      </p>
      {!wish.mayWish && (
        <p class="hint">
          {strategyMeans(wish.strategy)} {goalMeans(wish.goal)}
        </p>
      )}
      {wish.groups.length > 0 && (
        <ul class="why">
          {wish.groups.map(({ name, units, prefers }) => (
            <li key={name}>
              {name}: {units}
              {prefers !== '' && `, on ${prefers} if it can`}
            </li>
          ))}
        </ul>
      )}
      {wish.byHand && (
        <p class="hint">The split is fixed by hand (--cuts): these settings apply once it is not.</p>
      )}
    </>
  );
}

/** The section about the wish; nothing while none is known. */
export function PlanWish({ view }: { view: View }) {
  const wish = view.wish.value;
  if (wish === null) return null;
  return (
    <section class="wish">
      <h3>How plans are made</h3>
      <Now wish={wish} />
      {wish.mayWish ? (
        <Form wish={wish} view={view} />
      ) : (
        <p class="hint">
          Only owners of the mesh change this: its founder with <code>shoal wish</code>, and whom it makes an
          owner with <code>shoal role</code>.
        </p>
      )}
      <p class={`wish-outcome is-${wish.tone}`} role="status">
        {wish.outcome}
      </p>
    </section>
  );
}
