/* What this tab gives: memory, tokens helped with, stored weights; and how to give less, or go. */

import { useSignal } from '@preact/signals';

import { NameField } from './name_field';
import { PinSwitch } from '../join/pinned_ends_switch';
import type { MyPart as Part, View } from '../app/view';
import { bytesText, countText, rateText, runsText } from '../kit/formatting';

const STEP_BYTES = 50_000_000;
const LEAST_BYTES = 100_000_000;

function lendingText(part: Part): string {
  switch (part.lending.kind) {
    case 'starting':
      return 'Getting ready to lend';
    case 'lending':
      return `Lending ${bytesText(part.pledgeBytes)}`;
    case 'paused':
      return part.lending.why === '' ? 'Paused' : `Paused: ${part.lending.why}`;
    case 'asks':
      return part.lending.why;
  }
}

const STORED_WORDS: Readonly<Record<Part['stored']['where'], string>> = {
  kept: 'kept for your next visit',
  'may-go': 'kept, unless this browser needs the space',
  memory: 'in memory only: gone when this tab closes',
};

function Pledge({ view }: { view: View }) {
  const part = view.mine.value;
  const moved = useSignal<number | null>(null); // while the slider is dragged: the mesh re-plans only at its end
  const shown = moved.value ?? part.pledgeBytes;
  return (
    <div class="setting">
      <label for="pledge">Memory this tab may use</label>
      <output for="pledge">{bytesText(shown)}</output>
      <input
        id="pledge"
        type="range"
        min={LEAST_BYTES}
        max={Math.max(part.pledgeMostBytes, LEAST_BYTES + STEP_BYTES)}
        step={STEP_BYTES}
        value={shown}
        aria-valuetext={bytesText(shown)}
        aria-describedby="pledge-hint"
        onInput={(event) => (moved.value = Number(event.currentTarget.value))}
        onChange={(event) => {
          moved.value = null;
          view.actions.setPledge(Number(event.currentTarget.value));
        }}
      />
      <p class="hint" id="pledge-hint">
        {part.usedBytes > 0 ? `${bytesText(part.usedBytes)} in use now. ` : ''}The mesh never uses more.
      </p>
    </div>
  );
}

/** The section about what this tab gives. */
export function MyPart({ view }: { view: View }) {
  const part = view.mine.value;
  const { units, hasOwn, members } = view.mesh.value;
  const beside = members.find(({ you }) => you)?.runs ?? '';
  const asking = useSignal<'leave' | 'delete' | null>(null);
  const { lending } = part;
  return (
    <section class="mine" aria-label="My part">
      <h2>My part</h2>
      <p class={`lending is-${lending.kind}`}>
        <span class="status" aria-hidden="true" />
        {lendingText(part)}
      </p>
      {lending.kind !== 'asks' && (
        <dl class="facts-grid">
          {hasOwn && (
            <div>
              <dt>Tokens helped</dt>
              <dd>{countText(part.tokensHelped)}</dd>
            </div>
          )}
          {hasOwn && (
            <div>
              <dt>Speed</dt>
              <dd>{part.tokensPerS > 0 ? rateText(part.tokensPerS) : '–'}</dd>
            </div>
          )}
          <div>
            <dt>Holds</dt>
            <dd>{(hasOwn ? runsText(part.holds, units) : beside) || 'nothing yet'}</dd>
          </div>
          <div>
            <dt>Runs on</dt>
            <dd>{part.runsOn || '–'}</dd>
          </div>
        </dl>
      )}
      {lending.kind !== 'asks' && <Pledge view={view} />}
      <p class="stored">
        {part.stored.bytes === 0 ? (
          <span>No weights stored</span>
        ) : (
          <span>
            <strong>{bytesText(part.stored.bytes)}</strong> of weights {STORED_WORDS[part.stored.where]}
          </span>
        )}
        {part.stored.bytes > 0 && part.stored.where !== 'memory' && (
          <button type="button" class="link" onClick={() => (asking.value = 'delete')}>
            Delete
          </button>
        )}
      </p>
      <NameField name={part.name} set={(name) => view.actions.callMe(name)} />
      {hasOwn && <PinSwitch view={view} />}
      {asking.value === null ? (
        <div class="buttons">
          {lending.kind === 'lending' && (
            <button type="button" class="secondary" onClick={() => view.actions.pause()}>
              Pause lending
            </button>
          )}
          {lending.kind === 'paused' && (
            <button type="button" class="primary" onClick={() => view.actions.resume()}>
              Resume lending
            </button>
          )}
          <button type="button" class="secondary" onClick={() => (asking.value = 'leave')}>
            Leave
          </button>
        </div>
      ) : (
        <div class="sure" role="group" aria-label="Are you sure?">
          <p>
            {asking.value === 'leave'
              ? 'Leave the mesh? Answers under way move to others where they can.'
              : 'Delete the stored weights? Your next visit downloads them again.'}
          </p>
          <div class="buttons">
            <button
              type="button"
              class="danger"
              onClick={() => {
                if (asking.value === 'leave') view.actions.leave();
                else view.actions.deleteStored();
                asking.value = null;
              }}
            >
              {asking.value === 'leave' ? 'Leave' : 'Delete'}
            </button>
            <button type="button" class="secondary" onClick={() => (asking.value = null)}>
              Cancel
            </button>
          </div>
        </div>
      )}
    </section>
  );
}
