/* The sheet that sets how answers are drawn. Changes count from the next question. */

import { useSignal } from '@preact/signals';

import { Dialog } from '../kit/dialog';
import { looks, type Looks } from '../kit/theme';
import { keepPresets, keptPresets, type Preset } from './saved_choices';
import type { AskSettings, View } from '../app/view';

const BUILT_IN: readonly Preset[] = [
  { name: 'Short answers', text: 'Answer in one short paragraph.' },
  { name: 'Explain simply', text: 'Explain so that a child of ten understands it. Use examples.' },
  {
    name: 'Proofread',
    text: 'Correct spelling and grammar of what I write. Return the corrected text only.',
  },
  { name: 'Translate to English', text: 'Translate what I write into English. Return the translation only.' },
  {
    name: 'Review code',
    text: 'Review the code that I send: name defects first, then what could be simpler.',
  },
];
const NAME_CHARS = 40;

interface SliderProps {
  readonly id: string;
  readonly label: string;
  readonly hint: string;
  readonly value: number;
  readonly model: number; // what the model has
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly set: (value: number) => void;
}

function Slider({ id, label, hint, value, model, min, max, step, set }: SliderProps) {
  return (
    <div class="setting">
      <label for={id}>{label}</label>
      <output for={id}>{value}</output>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-describedby={`${id}-hint`}
        onInput={(event) => set(Number(event.currentTarget.value))}
      />
      <p id={`${id}-hint`} class="hint">
        {value === model ? hint : `${hint} The model’s is ${model}.`}
      </p>
    </div>
  );
}

/** A whole number, or null when the field is empty. */
function whole(text: string, least: number): number | null {
  const value = Number(text);
  return text.trim() === '' || !Number.isSafeInteger(value) || value < least ? null : value;
}

/** What the model is told before every question, with presets to begin from. */
function Instructions({ text, set }: { text: string; set: (text: string) => void }) {
  const own = useSignal(keptPresets());
  const all = [...BUILT_IN, ...own.value];
  const chosen = all.findIndex((preset) => preset.text === text);
  const isOwn = chosen >= BUILT_IN.length;
  const keep = (presets: readonly Preset[]): void => {
    own.value = presets;
    keepPresets(presets);
  };
  return (
    <section class="instructions" aria-label="Instructions">
      <label class="field">
        <span>Instructions for the model</span>
        <textarea
          rows={2}
          maxLength={4000}
          placeholder="e.g. Answer in one short paragraph."
          value={text}
          onChange={(event) => set(event.currentTarget.value)}
        />
      </label>
      <div class="buttons">
        <select
          aria-label="Preset"
          value={String(chosen)}
          onChange={(event) => set(all[Number(event.currentTarget.value)]?.text ?? '')}
        >
          <option value="-1">
            {text === '' ? 'Choose a preset' : chosen < 0 ? 'Custom' : 'No instructions'}
          </option>
          {all.map(({ name }, at) => (
            <option key={at} value={String(at)}>
              {name}
            </option>
          ))}
        </select>
        {text.trim() !== '' && chosen < 0 && (
          <button
            type="button"
            class="secondary"
            onClick={() => keep([...own.value, { name: text.trim().slice(0, NAME_CHARS), text }])}
          >
            Save as preset
          </button>
        )}
        {isOwn && (
          <button
            type="button"
            class="secondary"
            onClick={() => keep(own.value.filter((preset) => preset.text !== text))}
          >
            Delete preset
          </button>
        )}
      </div>
    </section>
  );
}

/** The sheet with a slider for each setting. */
export function SettingsSheet({ view, close }: { view: View; close: () => void }) {
  const settings = view.settings.value;
  const model = view.modelSettings.value;
  const set = (change: Partial<AskSettings>): void => view.actions.setSettings(change);
  return (
    <Dialog title="Settings" close={close}>
      <p class="hint">Answers are drawn with the model’s own values until you change them.</p>
      <Slider
        id="temperature"
        label="Temperature"
        hint="0 always takes the likeliest token; higher is freer."
        value={settings.temperature}
        model={model.temperature}
        min={0}
        max={2}
        step={0.05}
        set={(temperature) => set({ temperature })}
      />
      <Slider
        id="top-p"
        label="Top-p"
        hint="Draws from the likeliest tokens that make up this share. 1 is off."
        value={settings.topP}
        model={model.topP}
        min={0.05}
        max={1}
        step={0.05}
        set={(topP) => set({ topP })}
      />
      <Slider
        id="min-p"
        label="Min-p"
        hint="Leaves out tokens below this share of the likeliest one. 0 is off."
        value={settings.minP}
        model={model.minP}
        min={0}
        max={0.5}
        step={0.01}
        set={(minP) => set({ minP })}
      />
      <Slider
        id="top-k"
        label="Top-k"
        hint="Draws from this many likeliest tokens. 0 is off."
        value={settings.topK}
        model={model.topK}
        min={0}
        max={200}
        step={5}
        set={(topK) => set({ topK })}
      />
      <Slider
        id="repetition"
        label="Repetition penalty"
        hint="Above 1, words that came before become less likely."
        value={settings.repetitionPenalty}
        model={model.repetitionPenalty}
        min={1}
        max={2}
        step={0.05}
        set={(repetitionPenalty) => set({ repetitionPenalty })}
      />
      <div class="pair">
        <label class="field">
          <span>Longest answer, tokens</span>
          <input
            type="number"
            min={1}
            placeholder="as long as fits"
            value={settings.maxTokens ?? ''}
            onChange={(event) => set({ maxTokens: whole(event.currentTarget.value, 1) })}
          />
        </label>
        <label class="field">
          <span>Seed</span>
          <input
            type="number"
            min={0}
            placeholder="random"
            value={settings.seed ?? ''}
            onChange={(event) => set({ seed: whole(event.currentTarget.value, 0) })}
          />
        </label>
      </div>
      <Instructions text={settings.instructions} set={(instructions) => set({ instructions })} />
      <fieldset class="choices">
        <legend>Appearance</legend>
        {(['system', 'light', 'dark'] as const).map((choice: Looks) => (
          <label key={choice}>
            <input
              type="radio"
              name="looks"
              checked={looks.value === choice}
              onChange={() => {
                looks.value = choice;
              }}
            />
            <span>{choice === 'system' ? 'System' : choice === 'light' ? 'Light' : 'Dark'}</span>
          </label>
        ))}
      </fieldset>
      <div class="buttons">
        <button type="button" class="secondary" onClick={() => view.actions.resetSettings()}>
          Reset to the model’s
        </button>
      </div>
    </Dialog>
  );
}
