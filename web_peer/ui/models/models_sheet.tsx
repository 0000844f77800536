/* The models of the mesh: a choice, what each takes and gives, who runs it and when, and a run of it. */

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import {
  type GivenInput,
  type InputForm,
  type ModelRunView,
  type OfferedView,
  type OutputView,
  type PlaceView,
  type PortView,
  TEXTS,
  type TimesView,
  type View,
} from '../app/view';
import { Dialog } from '../kit/dialog';
import { bytesText, delayText } from '../kit/formatting';
import { HeadingNote } from '../kit/heading_note';

const FORMS: Readonly<Record<InputForm, string>> = {
  picture: 'a picture',
  sound: 'a sound file',
  words: 'lines of text',
  json: 'numbers as JSON',
};

const TEXT_PORT: PortView = { name: TEXTS, type: '', shape: '', forms: ['words'] };

/** The sheet. */
export function ModelsSheet({ view, close }: { view: View; close: () => void }) {
  return (
    <Dialog title="Models" close={close} wide>
      <Models view={view} />
    </Dialog>
  );
}

/** In the place of the conversation, where no model answers in words. */
export function ModelsPlace({ view }: { view: View }) {
  return (
    <section class="models-place" aria-label="Models to run" tabIndex={0}>
      <h2>Models to run</h2>
      <Models view={view} />
    </section>
  );
}

function introduction(count: number): string {
  if (count === 0) return 'No model is offered yet. An owner of the mesh offers one with “shoal offer”.';
  const runs = count === 1 ? 'It runs one model' : `It runs ${count} models`;
  return `No model of this mesh answers in words. ${runs}, which whoever is here can use.`;
}

function Models({ view }: { view: View }) {
  const offered = view.offered.value;
  const chosen = useSignal(offered[0]?.name ?? '');
  const model = offered.find(({ name }) => name === chosen.value) ?? offered[0];
  useEffect(() => {
    if (model !== undefined) view.actions.lookAtModel(model.name);
  }, [model?.name]);
  const { inWords, model: answering, models } = view.mesh.value;
  return (
    <div class="plan models">
      {inWords ? (
        <p class="hint">
          <strong>{answering}</strong> {models.length > 1 ? 'and others answer' : 'answers'} questions. The
          mesh runs {offered.length} more beside: whoever is here can use them.
        </p>
      ) : (
        <p class="hint">{introduction(offered.length)}</p>
      )}
      {(inWords || offered.length > 0) && (
        <div class="field">
          <label for="model-choice">Model</label>
          <select
            id="model-choice"
            value={model?.name ?? ''}
            onChange={(event) => {
              chosen.value = event.currentTarget.value;
            }}
          >
            {offered.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </div>
      )}
      {model === undefined ? (
        inWords && <p>The mesh offers no other model any more.</p>
      ) : (
        <Model key={model.name} model={model} view={view} />
      )}
    </div>
  );
}

function Model({ model, view }: { model: OfferedView; view: View }) {
  const run = view.modelRun.value;
  return (
    <>
      {model.whyNot !== '' && <p class="trouble-line">{model.whyNot}</p>}
      {model.takes.length > 0 && model.places.length > 0 && (
        <section>
          <h3>Try it</h3>
          <Ask model={model} view={view} isRunning={run.kind === 'running'} />
          <div role="status">{run.kind !== 'none' && run.model === model.name && <Outcome run={run} />}</div>
        </section>
      )}
      {model.takes.length > 0 && (
        <section>
          <h3>What it takes and gives</h3>
          <Ports model={model} />
        </section>
      )}
      {model.places.length > 0 && (
        <section>
          <h3>
            Who runs it
            <HeadingNote>
              expected: {delayText(model.runMs)} a run, {model.perS.toFixed(1)} runs a second in a stream
            </HeadingNote>
          </h3>
          {model.times === null ? (
            <Places places={model.places} />
          ) : (
            <Lanes model={model} times={model.times} />
          )}
        </section>
      )}
    </>
  );
}

interface AskProps {
  readonly model: OfferedView;
  readonly view: View;
  readonly isRunning: boolean;
}

function Ask({ model, view, isRunning }: AskProps) {
  const given = useSignal<ReadonlyMap<string, GivenInput>>(new Map());
  const forms = useSignal<ReadonlyMap<string, InputForm>>(new Map());
  const asTexts = useSignal(true);
  const byTexts = model.takesTexts && asTexts.value;
  const inputs = byTexts ? [TEXT_PORT] : model.takes;
  const isWhole = inputs.every(({ name }) => given.value.has(name));
  const give = (name: string, input: GivenInput | null): void => {
    const next = new Map(given.value);
    if (input === null) next.delete(name);
    else next.set(name, input);
    given.value = next;
  };
  return (
    <form
      class="model-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (isRunning) view.actions.stopModel();
        else if (isWhole) view.actions.runModel(model.name, given.value);
      }}
    >
      {model.takesTexts && (
        <select
          aria-label="How its inputs are given"
          value={byTexts ? 'texts' : 'arrays'}
          onChange={(event) => {
            asTexts.value = event.currentTarget.value === 'texts';
            given.value = new Map();
          }}
        >
          <option value="texts">lines of text</option>
          <option value="arrays">an array for each input</option>
        </select>
      )}
      {inputs.map((port, at) => (
        <Input
          key={port.name}
          id={`model-input-${at}`}
          port={port}
          form={forms.value.get(port.name) ?? port.forms[0] ?? 'json'}
          choose={(form) => {
            forms.value = new Map(forms.value).set(port.name, form);
            give(port.name, null);
          }}
          give={(input) => give(port.name, input)}
        />
      ))}
      <div class="buttons">
        <button type="submit" class={isRunning ? 'secondary' : 'primary'} disabled={!isRunning && !isWhole}>
          {isRunning ? 'Stop' : 'Run'}
        </button>
      </div>
    </form>
  );
}

interface InputProps {
  readonly id: string;
  readonly port: PortView;
  readonly form: InputForm;
  readonly choose: (form: InputForm) => void;
  readonly give: (input: GivenInput | null) => void;
}

function Input({ id, port, form, choose, give }: InputProps) {
  return (
    <div class="field">
      <label for={id}>
        {port === TEXT_PORT ? (
          'Texts, one a line'
        ) : (
          <>
            {port.name} <span class="hint">{`${port.type}, ${port.shape}`}</span>
          </>
        )}
      </label>
      {port.forms.length > 1 && (
        <select
          aria-label={`How ${port.name} is given`}
          value={form}
          onChange={(event) => choose(event.currentTarget.value as InputForm)}
        >
          {port.forms.map((each) => (
            <option key={each} value={each}>
              {FORMS[each]}
            </option>
          ))}
        </select>
      )}
      {form === 'picture' || form === 'sound' ? (
        <input
          key={form}
          id={id}
          type="file"
          accept={form === 'picture' ? 'image/*' : 'audio/*'}
          onChange={(event) => {
            const file = event.currentTarget.files?.[0];
            give(file === undefined ? null : { form, file });
          }}
        />
      ) : (
        <textarea
          key={form}
          id={id}
          rows={3}
          placeholder={form === 'words' ? 'One text a line' : '[[1, 2], [3, 4]]'}
          onInput={(event) => {
            const text = event.currentTarget.value;
            give(text.trim() === '' ? null : { form, text });
          }}
        />
      )}
    </div>
  );
}

function Outcome({ run }: { run: Exclude<ModelRunView, { kind: 'none' }> }) {
  switch (run.kind) {
    case 'running':
      return <p class="hint">It runs…</p>;
    case 'failed':
      return <p class="trouble-line">{run.text}</p>;
    case 'done':
      return (
        <>
          <p class="hint">
            Took {delayText(run.tookMs)}, over {run.peers.join(', ')}.
          </p>
          {run.outputs.map((output) => (
            <Output key={output.name} output={output} />
          ))}
        </>
      );
  }
}

function Output({ output: { name, type, shape, values, file } }: { output: OutputView }) {
  return (
    <div class="model-output">
      <div class="model-output-head">
        <strong>{name}</strong>
        <span class="hint">{`${type}, ${shape}`}</span>
        {file !== null && (
          <button
            type="button"
            class="secondary"
            aria-label={`Download ${name} as .npy`}
            onClick={() => download(file, `${name.replace(/[^\w.-]+/g, '_')}.npy`)}
          >
            .npy
          </button>
        )}
      </div>
      <pre role="region" tabIndex={0} aria-label={`Values of ${name}`}>
        {values}
      </pre>
    </div>
  );
}

function download(file: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function Ports({ model: { takes, gives } }: { model: OfferedView }) {
  const rows = [
    ...takes.map((port) => ({ ...port, way: 'takes' })),
    ...gives.map((port) => ({ ...port, way: 'gives' })),
  ];
  return (
    <div class="model-table" role="region" aria-label="Inputs and outputs" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">It</th>
            <th scope="col">Name</th>
            <th scope="col">Type</th>
            <th scope="col">Shape</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ way, name, type, shape }) => (
            <tr key={`${way} ${name}`}>
              <td>{way}</td>
              <td>{name}</td>
              <td>{type}</td>
              <td>{shape}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function placeText({ peer, you, units, bytes, standbys }: PlaceView): string {
  const behind = standbys.length > 0 ? `; ${standbys.join(', ')} stands by` : '';
  return `${you ? 'this tab' : peer} holds ${units}, ${bytesText(bytes)}${behind}`;
}

function Places({ places }: { places: readonly PlaceView[] }) {
  return (
    <ul class="model-places">
      {places.map((place) => (
        <li key={place.units}>{placeText(place)}</li>
      ))}
    </ul>
  );
}

/** A lane for each peer; the same in words below. */
function Lanes({ model, times }: { model: OfferedView; times: TimesView }) {
  const whole = Math.max(times.endsMs, 1e-6);
  const share = (ms: number): string => `${((100 * ms) / whole).toFixed(2)}%`;
  return (
    <>
      <div class="lanes" aria-hidden="true">
        {times.lanes.map(({ peer, you, spans }) => (
          <div key={peer} class="lane">
            <span class="lane-name">{you ? 'this tab' : peer}</span>
            <span class="lane-bar">
              {spans.map(({ units, beginsMs, endsMs, critical }) => (
                <i
                  key={units}
                  class={critical ? 'is-critical' : ''}
                  title={`${units}: ${delayText(endsMs - beginsMs)}`}
                  style={{ left: share(beginsMs), width: share(endsMs - beginsMs) }}
                >
                  <span>{units}</span>
                </i>
              ))}
            </span>
          </div>
        ))}
      </div>
      <ul class="model-places">
        {model.places.map((place) => (
          <li key={place.units}>{placeText(place)}</li>
        ))}
        {times.crossings.map(({ from, to, bytes }) => (
          <li key={`${from} ${to}`}>
            {from} sends {bytesText(bytes)} to {to} in each run
          </li>
        ))}
      </ul>
      <p class="hint">
        One run alone, as this tab reckons it from what peers measured: {delayText(times.endsMs)}. The
        critical path, with a line below, is {times.critical.join(', then ')}: only who makes that shorter
        makes the run shorter.
      </p>
    </>
  );
}
