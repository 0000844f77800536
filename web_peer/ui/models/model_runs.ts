/* The offered models as this page has them: manifests of those that somebody looks at, and the run that is asked. */

import { signal } from '@preact/signals';

import { plannerUnits, YARDSTICK_UNITS } from '../../src/coordination/plan_request';
import type { ValueArray } from '../../src/dataflow/value_codec';
import { BadCommand, NoPlan, textOf } from '../../src/errors';
import type { MeshMember } from '../../src/member/mesh_member';
import { TextReader } from '../../src/model/text_inputs';
import type { GraphManifest, Value } from '../../src/planner/graph_manifest';
import { nameOf, names } from '../../src/state/display_names';
import { type GivenInput, type ModelRunView, type OfferedView, type OutputView, TEXTS } from '../app/view';
import { embeds } from './embedding';
import { linesArray, pictureArray, soundArray } from './media';
import { offeredViews, shapeText } from './models_view';
import { arrayOfJson, npyOf, shownValues } from './numbers';

const AGAIN_MS = 5000; // after a manifest that could not be had

/** What the page shows of offered models; `changed` is called when there is more to look at. */
export class ModelRuns {
  readonly offered = signal<readonly OfferedView[]>([]);
  readonly run = signal<ModelRunView>({ kind: 'none' });
  readonly embedder = signal(''); // a model that makes embeddings, as far as manifests are here; "" none
  private readonly changed: () => void;
  private readonly manifests = new Map<string, GraphManifest | string>();
  private readonly asked = new Map<string, number>(); // by model: when its manifest was asked for
  private flops: ReadonlyMap<string, number> = new Map();
  private flopsOf: string | null = null; // the model that answers in words; "": none does
  private stopped = new AbortController();

  constructor(changed: () => void) {
    this.changed = changed;
  }

  /** Another mesh is joined: nothing of the last one is shown. */
  forget(): void {
    this.stop();
    this.manifests.clear();
    this.asked.clear();
    this.offered.value = [];
    this.run.value = { kind: 'none' };
    this.embedder.value = '';
  }

  /** Called often. */
  look(mesh: MeshMember): void {
    const { state, me } = mesh.view;
    const { manifest } = mesh.model;
    const own = state.model?.model ?? '';
    if ((manifest === null) === (own === '') && this.flopsOf !== own) {
      const units = manifest === null ? YARDSTICK_UNITS : plannerUnits(manifest);
      this.flops = new Map(units.map(({ kind, flopsPerToken }) => [kind, flopsPerToken]));
      this.flopsOf = own;
    }
    const next = offeredViews(state, { me, manifests: this.manifests, flops: this.flops });
    if (JSON.stringify(next) !== JSON.stringify(this.offered.value)) this.offered.value = next;
    const makes = [...state.offers].find(([, { model }]) => {
      const manifest = this.manifests.get(model);
      return typeof manifest === 'object' && embeds(manifest);
    });
    this.embedder.value = makes?.[0] ?? '';
  }

  /** Has the manifests of all offered models here, to know which one makes embeddings. */
  lookAtAll(mesh: MeshMember): void {
    for (const name of mesh.view.state.offers.keys()) void this.lookAt(mesh, name);
  }

  /** Has the manifest of an offered model here, to show what it takes and gives. */
  async lookAt(mesh: MeshMember, name: string, now = performance.now()): Promise<void> {
    const model = mesh.view.state.offers.get(name)?.model;
    if (model === undefined || typeof this.manifests.get(model) === 'object') return;
    if (now - (this.asked.get(model) ?? -AGAIN_MS) < AGAIN_MS) return;
    this.asked.set(model, now);
    try {
      this.manifests.set(model, await mesh.manifestOf(model));
    } catch (error) {
      this.manifests.set(model, `What it takes is not known here: ${textOf(error)}`);
    }
    this.changed();
  }

  /** Runs one item; what comes of it is in `run`. A run under way is given up. */
  async ask(mesh: MeshMember, model: string, inputs: ReadonlyMap<string, GivenInput>): Promise<void> {
    this.stop();
    const mine = (this.stopped = new AbortController());
    this.run.value = { kind: 'running', model };
    const outcome = await outcomeOf(mesh, model, inputs, AbortSignal.any([mine.signal, mesh.signal]));
    if (this.stopped === mine && !mine.signal.aborted) this.run.value = outcome;
  }

  /** Gives the run under way up. */
  stop(): void {
    this.stopped.abort();
    if (this.run.value.kind === 'running') this.run.value = { kind: 'none' };
  }
}

async function outcomeOf(
  mesh: MeshMember,
  model: string,
  inputs: ReadonlyMap<string, GivenInput>,
  signal: AbortSignal,
): Promise<ModelRunView> {
  try {
    const offer = mesh.view.state.offers.get(model);
    if (offer === undefined) throw new NoPlan(`the mesh offers no model ${model} any more`);
    const manifest = await mesh.manifestOf(offer.model);
    const { values } = manifest;
    const texts = inputs.get(TEXTS);
    const arrays =
      texts === undefined ? new Map<string, ValueArray>() : await ofTexts(mesh, manifest, texts, signal);
    for (const [name, given] of inputs) {
      if (name === TEXTS) continue;
      const value = values.find((each) => each.name === name);
      if (value === undefined) throw new BadCommand(`${model} takes no input ${name}`);
      arrays.set(name, await arrayOf(given, value));
    }
    const run = await mesh.openRun(model);
    try {
      const began = performance.now();
      const found = await run.run(arrays, signal);
      const tookMs = performance.now() - began;
      const called = names(mesh.view.state.members.values());
      const outputs = values.flatMap((value) => {
        const array = found.get(value.name);
        return array === undefined ? [] : [outputView(array, value)];
      });
      return { kind: 'done', model, tookMs, peers: run.peers.map((peer) => nameOf(peer, called)), outputs };
    } finally {
      await run.close();
    }
  } catch (error) {
    return { kind: 'failed', model, text: textOf(error) };
  }
}

async function ofTexts(
  mesh: MeshMember,
  manifest: GraphManifest,
  given: GivenInput,
  signal: AbortSignal,
): Promise<Map<string, ValueArray>> {
  if (manifest.text === null || given.form !== 'words') {
    throw new BadCommand(`${manifest.name} does not say how texts become its inputs`);
  }
  const reader = new TextReader(manifest, await mesh.blobOf(manifest.text.tokenizer, signal));
  return reader.arrays(given.text.trimEnd().split('\n'));
}

function arrayOf(given: GivenInput, value: Value): ValueArray | Promise<ValueArray> {
  switch (given.form) {
    case 'json':
      return arrayOfJson(given.text, value);
    case 'words':
      return linesArray(given.text, value);
    case 'picture':
      return pictureArray(given.file, value);
    case 'sound':
      return soundArray(given.file, value);
  }
}

function outputView(array: ValueArray, value: Value): OutputView {
  const npy = npyOf(array, value.dtype);
  return {
    name: value.name,
    type: value.dtype,
    shape: shapeText(array.shape),
    values: shownValues(array, value),
    file: npy === null ? null : new Blob([npy], { type: 'application/octet-stream' }),
  };
}
