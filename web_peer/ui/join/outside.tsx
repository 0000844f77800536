/* The page while this tab is in no mesh: no link, a wrong one, one that does not answer yet, or after leaving. */

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

import { Mark } from '../kit/icons';
import { JoinOptions } from './join_options';
import { RelaySwitch } from './relay_switch';
import type { Trouble, View } from '../app/view';
import { secondsText } from '../kit/formatting';

function OpenLink({ view, label }: { view: View; label: string }) {
  const text = useSignal('');
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      class="open"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.value.trim() !== '') view.actions.open(text.value.trim());
      }}
    >
      <label class="field">
        <span>{label}</span>
        <input
          ref={field}
          autoComplete="off"
          spellcheck={false}
          placeholder="https://…/#mesh.invite"
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="primary" disabled={text.value.trim() === ''}>
        Join
      </button>
    </form>
  );
}

/** `text` with what stands between backticks as code. */
function withCode(text: string): ComponentChildren {
  const parts = text.split('`');
  if (parts.length % 2 === 0) return text; // one is left open
  return parts.map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
}

function TroubleText({ trouble }: { trouble: Trouble }) {
  return (
    <div class="trouble" role="alert">
      <h1>{trouble.title}</h1>
      <p>{withCode(trouble.text)}</p>
    </div>
  );
}

/** The page without a link, or with a wrong one: what Shoal is, and where to paste a link. */
export function NoLink({ view, trouble }: { view: View; trouble: Trouble | null }) {
  return (
    <main class="card">
      {trouble === null ? (
        <>
          <Mark />
          <h1>One model, run together</h1>
          <p>
            Shoal runs one AI model across the browsers and machines of a group of people. Whoever opens an
            invite link lends some memory and compute, and everyone can ask the model.
          </p>
        </>
      ) : (
        <TroubleText trouble={trouble} />
      )}
      <OpenLink view={view} label="Invite link" />
      {view.lastLink !== '' && (
        <div class="buttons">
          <button type="button" class="secondary" onClick={() => view.actions.open(view.lastLink)}>
            Open your last mesh
          </button>
        </div>
      )}
      <p class="hint">
        No link? Ask someone whose mesh is running, or start one with Python: <code>shoal serve</code>.
      </p>
      <JoinOptions view={view} />
    </main>
  );
}

/** The page of a tab that could not come in yet and tries again by itself: why, and when. */
export function Waiting({ view, trouble, leftS }: { view: View; trouble: Trouble; leftS: number }) {
  return (
    <main class="card" aria-label="Waiting to join">
      <TroubleText trouble={trouble} />
      <p class="hint">{leftS > 0 ? `Tries again in ${secondsText(leftS)}.` : 'Trying again…'}</p>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => view.actions.retry()}>
          Try now
        </button>
        <button type="button" class="secondary" onClick={() => view.actions.leave()}>
          Stop trying
        </button>
      </div>
      <RelaySwitch view={view} />
    </main>
  );
}

/** The page of a tab that is out of its mesh: why, and the way back where there is one. */
export function Outside({ view, trouble }: { view: View; trouble: Trouble }) {
  return (
    <main class="card">
      <TroubleText trouble={trouble} />
      {trouble.remedy === 'retry' && (
        <div class="buttons">
          <button type="button" class="primary" onClick={() => view.actions.retry()}>
            Join again
          </button>
        </div>
      )}
      {trouble.remedy === 'reload' && (
        <div class="buttons">
          <button
            type="button"
            class="primary"
            onClick={() => {
              location.reload();
            }}
          >
            Reload the page
          </button>
        </div>
      )}
      {trouble.remedy === 'link' && <OpenLink view={view} label="Another invite link" />}
      {trouble.remedy !== 'reload' && <RelaySwitch view={view} />}
    </main>
  );
}
