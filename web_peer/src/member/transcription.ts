/*
 * What is said in a recording, written by a model of the mesh: its encoder by runs, its decoder by sessions (twin of
 * peer/member/transcription.py). Edge.
 *
 * A window of sound is a conversation that begins with the rows of the encoder, which stand in its prompt in place of
 * token ids. Which tokens may come travels with each question, as a mask; the tab keeps no part of the model.
 */

import { CannotServe, NoPlan, RunFailed } from '../errors';
import { cutsOf, framesOf, windowOf } from '../model/sound';
import { allowed, languageMask, promptOf } from '../model/speech_rules';
import { type AskSettings, ASK_SETTINGS, type Conversation } from '../origin/answer_stream';
import type { AnsweringModel } from '../origin/answering_model';
import type { RunClient } from '../origin/run_client';
import { HOP, type Speech } from '../planner/speech';
import { loadFileGraph } from '../runtime/graph_runtime';
import { aligned, type Tensor } from '../wire/tensors';
import type { Offering } from './sight';

const MEL = 'mel'; // the input of an encoder
const ENCODED = 'encoded'; // its output

/** What is used of a mesh. */
export interface Writing extends Offering {
  answering(name: string): Promise<AnsweringModel>;
}

/** What is said in one window, and how far the recording is written, from 0 to 1. */
export interface Written {
  readonly text: string;
  readonly share: number;
}

/**
 * What is said in `samples` (16 kHz, from -1 to 1), a window at a time, without times. `name`: the model that writes.
 * Raises NoPlan, AnswerFailed, RunFailed, CannotServe.
 */
export async function* written(
  mesh: Writing,
  name: string,
  samples: Float32Array,
  signal: AbortSignal,
): AsyncGenerator<Written, void> {
  const answering = await mesh.answering(name);
  const { manifest, text } = answering;
  const speech = manifest?.speech ?? null;
  if (manifest === null || text === null || speech === null) {
    throw new CannotServe(`${name} does not write what is said`);
  }
  const frames = await loadedFrames(mesh, speech, samples, signal);
  const encoder = encoderOf(mesh, name, speech);
  const run = await mesh.openRun(encoder);
  const conversation = answering.conversation();
  const stop = (): void => conversation.stop();
  signal.addEventListener('abort', stop);
  try {
    const cuts = cutsOf(samples, speech);
    const total = Math.max(1, Math.ceil(samples.length / HOP));
    const places = Array.from({ length: speech.rows }, () => speech.start);
    const languages = languageMask(speech, manifest.vocab);
    const first = allowed(speech, manifest.vocab, true);
    const later = allowed(speech, manifest.vocab, false);
    const least = Math.min(...manifest.endTokens);
    let language: number | null = null; // the one that the first window is in
    for (const [seek, end] of cuts) {
      signal.throwIfAborted();
      const until = end < total ? end : frames.count; // a short recording goes on in silence
      const window = windowOf(frames, seek, until, speech.frames);
      const tensor = await encoded(run, window, speech, manifest.hidden, encoder, signal);
      const ask = (prompt: readonly number[], asked: Partial<AskSettings>): Promise<readonly number[]> =>
        drawn(
          conversation,
          [...places, ...prompt],
          { ...ASK_SETTINGS, ...asked, rows: [{ first: 0, tensor }] },
          signal,
        );
      if (speech.languages.size > 0 && language === null) {
        const found = await ask([speech.start], { allowed: languages, maxTokens: 1, ignoreEnd: true });
        language = found[0] ?? null;
      }
      const prompt = promptOf(speech, language);
      const begun = await ask(prompt, { allowed: first, maxTokens: 1 });
      const more = begun.length === 0 ? [] : await ask([...prompt, ...begun], { allowed: later });
      const words = [...begun, ...more].filter((token) => token < least);
      yield { text: text.decode(words), share: end / total };
    }
  } finally {
    signal.removeEventListener('abort', stop);
    conversation.close();
    await run.close();
  }
}

/** The name under which the mesh offers the encoder. Raises NoPlan. */
function encoderOf({ view }: Offering, name: string, { encoder }: Speech): string {
  const names = [...view.state.offers].filter(([, { model }]) => model === encoder).map(([each]) => each);
  const [found] = names.sort();
  if (found !== undefined) return found;
  throw new NoPlan(`this mesh does not run the encoder of ${name}: shoal offer LINK has it run both`);
}

async function loadedFrames(
  mesh: Offering,
  speech: Speech,
  samples: Float32Array,
  signal: AbortSignal,
): ReturnType<typeof framesOf> {
  const runtime = await loadFileGraph(
    await mesh.blobOf(speech.spectrogram, signal),
    { name: 'sound', dtype: 'float32', shape: [1, 'samples'] },
    { name: 'frames', dtype: 'float32', shape: [1, speech.mels, 'frames'] },
    signal,
  );
  try {
    return await framesOf(samples, speech, async (sound) => {
      const given = { shape: [1, sound.length], data: new Uint8Array(sound.buffer) };
      const made = (await runtime.run(new Map([['sound', given]]))).get('frames');
      return floatsOf(made?.data ?? new Uint8Array());
    });
  } finally {
    runtime.close();
  }
}

async function encoded(
  run: RunClient,
  window: Float32Array,
  { mels, frames, rows }: Speech,
  hidden: number,
  name: string,
  signal: AbortSignal,
): Promise<Tensor> {
  const given = { shape: [1, mels, frames], data: new Uint8Array(window.buffer) };
  const made = (await run.run(new Map([[MEL, given]]), signal)).get(ENCODED);
  const data = aligned(made?.data ?? new Uint8Array());
  if (String(made?.shape) !== `1,${rows},${hidden}` || !floatsOf(data).every(Number.isFinite)) {
    throw new RunFailed(`${name} made no finite numbers of shape 1, ${rows}, ${hidden}`);
  }
  return { dtype: 'float32', shape: [rows, hidden], data };
}

const floatsOf = (data: Uint8Array): Float32Array => {
  const bytes = aligned(data);
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
};

/** The tokens that are drawn behind `prompt`, the one that ends them not among them. */
async function drawn(
  conversation: Conversation,
  prompt: readonly number[],
  settings: AskSettings,
  signal: AbortSignal,
): Promise<readonly number[]> {
  const found: number[] = [];
  let why = '';
  for await (const piece of conversation.tokens(prompt, settings)) {
    if (piece.kind === 'finished') why = piece.why;
    else if (piece.token >= 0) found.push(piece.token);
  }
  signal.throwIfAborted();
  return why === 'end' ? found.slice(0, -1) : found;
}
