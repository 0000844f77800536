/* Dictation: a button, and while it records or writes, how long, how loud and how to end it. */

import { useEffect, useRef } from 'preact/hooks';

import type { DictationView, View } from '../app/view';
import { Icon } from '../kit/icons';

/** The button that begins it. */
export function Dictate({ view }: { view: View }) {
  const { kind } = view.dictation.value;
  return (
    <button
      type="button"
      class="quiet round dictate"
      aria-label="Dictate"
      title={`Dictate: ${view.mesh.value.writes} writes what you say`}
      disabled={kind !== 'idle' && kind !== 'failed'}
      onClick={() => view.actions.dictate()}
    >
      <Icon name="mic" />
    </button>
  );
}

/** What goes on, in the place above the field; nothing while nothing does. */
export function DictationBar({ view }: { view: View }) {
  const state = view.dictation.value;
  const stop = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (state.kind === 'recording') stop.current?.focus();
  }, [state.kind]);
  if (state.kind === 'idle') return null;
  const isRecording = state.kind === 'recording';
  return (
    <div
      class={`dictation is-${state.kind}`}
      role="group"
      aria-label="Dictation"
      onKeyDown={(event) => {
        if (event.key !== 'Escape') return;
        event.preventDefault();
        event.stopPropagation();
        if (isRecording) view.actions.stopDictating();
        else view.actions.dropDictation();
      }}
    >
      <p role="status">{saidOf(state)}</p>
      {isRecording && (
        <>
          <span class="clock">{clockText(state.seconds)}</span>
          <span class="level" aria-hidden="true">
            <i style={{ width: `${Math.round(100 * state.level)}%` }} />
          </span>
          <button
            ref={stop}
            type="button"
            class="primary"
            title="Stop (Escape)"
            onClick={() => view.actions.stopDictating()}
          >
            Stop
          </button>
        </>
      )}
      <button
        type="button"
        class="quiet round"
        aria-label={state.kind === 'failed' ? 'Close' : 'Discard the recording'}
        title={state.kind === 'failed' ? 'Close' : 'Discard'}
        onClick={() => view.actions.dropDictation()}
      >
        <Icon name="close" />
      </button>
    </div>
  );
}

function saidOf(state: Exclude<DictationView, { kind: 'idle' }>): string {
  switch (state.kind) {
    case 'asking':
      return 'The browser asks whether this page may use the microphone.';
    case 'recording':
      return 'Recording…';
    case 'writing':
      return state.share > 0
        ? `Writing what you said: ${Math.round(100 * state.share)}%`
        : 'Writing what you said…';
    case 'failed':
      return state.text;
  }
}

/** "1:05". */
export function clockText(seconds: number): string {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}

/** `text` with `said` in the place of what is selected, and where the caret is behind it. */
export function inserted(
  text: string,
  said: string,
  start: number,
  stop: number,
): { readonly text: string; readonly caret: number } {
  const [before, after] = [text.slice(0, start), text.slice(stop)];
  const lead = before === '' || /\s$/.test(before) ? '' : ' ';
  const tail = after === '' || /^[\s.,;:!?]/.test(after) ? '' : ' ';
  const made = `${before}${lead}${said}`;
  return { text: `${made}${tail}${after}`, caret: made.length };
}
