/* A person's speech on its way to words: recorded by the browser, written by a model of the mesh. */

import { signal } from '@preact/signals';

import { textOf } from '../../src/errors';
import { RATE } from '../../src/planner/speech';
import type { DictatedView, DictationView } from '../app/view';

export const MOST_SECONDS = 300; // of one recording
const LOOK_MS = 100; // between looks at the level
const NO_SOUND = 'Nothing was recorded: hold the microphone nearer, or choose another one, and try again.';

/** Writes what is said in `samples` (16 kHz, from -1 to 1), piece by piece. Raises PeerError. */
export type Transcribe = (
  samples: Float32Array,
  signal: AbortSignal,
) => AsyncIterable<{ readonly text: string; readonly share: number }>;

interface Recording {
  readonly recorder: MediaRecorder;
  readonly context: AudioContext;
  readonly stream: MediaStream;
  readonly timer: ReturnType<typeof setInterval>;
}

/** The dictation of one page; one at a time. */
export class Dictation {
  readonly view = signal<DictationView>({ kind: 'idle' });
  readonly dictated = signal<DictatedView>({ id: 0, text: '' }); // what is to go into the field, each id once
  private recording: Recording | null = null;
  private ended = new AbortController();

  /** Asks for the microphone and records until `stop` or `drop`. */
  async start(transcribe: Transcribe): Promise<void> {
    if (this.view.value.kind !== 'idle' && this.view.value.kind !== 'failed') return;
    const mine = (this.ended = new AbortController());
    const why = whyNot();
    if (why !== '') {
      this.view.value = { kind: 'failed', text: why };
      return;
    }
    this.view.value = { kind: 'asking' };
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
      if (mine.signal.aborted) {
        release(stream);
        return;
      }
      this.record(stream, mine, transcribe);
    } catch (error) {
      if (!mine.signal.aborted) this.view.value = { kind: 'failed', text: refusalText(error) };
    }
  }

  /** The recording is over: it is written now. */
  stop(): void {
    this.recording?.recorder.stop();
  }

  /** Nothing of it is written; also while it is being written, and after an error. */
  drop(): void {
    this.ended.abort();
    this.end();
    this.view.value = { kind: 'idle' };
  }

  private record(stream: MediaStream, mine: AbortController, transcribe: Transcribe): void {
    const context = new AudioContext();
    const analyser = context.createAnalyser();
    context.createMediaStreamSource(stream).connect(analyser);
    const recorder = new MediaRecorder(stream);
    const parts: Blob[] = [];
    const began = performance.now();
    const heard = new Float32Array(analyser.fftSize);
    const look = (): void => {
      analyser.getFloatTimeDomainData(heard);
      const seconds = (performance.now() - began) / 1000;
      this.view.value = { kind: 'recording', seconds, level: levelOf(heard) };
      if (seconds >= MOST_SECONDS) this.stop();
    };
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onstop = () => {
      this.end();
      if (!mine.signal.aborted) {
        void this.write(new Blob(parts, { type: recorder.mimeType }), transcribe, mine.signal);
      }
    };
    this.recording = { recorder, context, stream, timer: setInterval(look, LOOK_MS) };
    recorder.start();
    look();
  }

  private async write(sound: Blob, transcribe: Transcribe, ended: AbortSignal): Promise<void> {
    this.view.value = { kind: 'writing', share: 0 };
    try {
      const samples = await samplesOf(sound);
      let said = '';
      for await (const { text, share } of transcribe(samples, ended)) {
        if (ended.aborted) return;
        said = `${said.trim()} ${text.trim()}`.trim();
        this.view.value = { kind: 'writing', share };
      }
      if (ended.aborted) return;
      if (said !== '') this.dictated.value = { id: this.dictated.value.id + 1, text: said };
      this.view.value =
        said === '' ? { kind: 'failed', text: 'No words were heard: speak, then stop.' } : { kind: 'idle' };
    } catch (error) {
      if (!ended.aborted) this.view.value = { kind: 'failed', text: textOf(error) };
    }
  }

  /** The microphone is given back. */
  private end(): void {
    const { recording } = this;
    this.recording = null;
    if (recording === null) return;
    clearInterval(recording.timer);
    if (recording.recorder.state !== 'inactive') recording.recorder.stop();
    release(recording.stream);
    void recording.context.close();
  }
}

/** Why this browser records nothing; "" where it may. */
export function whyNot(): string {
  const { mediaDevices } = navigator as { readonly mediaDevices?: MediaDevices }; // absent without a secure context
  if (!isSecureContext || mediaDevices === undefined) {
    return 'Browsers give the microphone to secure pages alone: open this mesh by https, or on its own machine.';
  }
  return 'MediaRecorder' in globalThis ? '' : 'This browser cannot record sound: use a newer one.';
}

/** In words for people, what getUserMedia refused with. */
export function refusalText(error: unknown): string {
  const name = error instanceof DOMException ? error.name : '';
  switch (name) {
    case 'NotAllowedError':
    case 'SecurityError':
      return 'The browser does not let this page use the microphone: allow it beside the page’s address, then try again.';
    case 'NotFoundError':
    case 'OverconstrainedError':
      return 'No microphone was found: connect one, then try again.';
    case 'NotReadableError':
    case 'AbortError':
      return 'The microphone cannot be used now: close the program that has it, then try again.';
    default:
      return `The microphone cannot be used: ${error instanceof DOMException ? error.message : textOf(error)}.`;
  }
}

/** How loud it is, from 0 to 1: the root of the mean square, in 60 decibels. */
export function levelOf(heard: Float32Array): number {
  const power = heard.reduce((sum, each) => sum + each * each, 0) / Math.max(1, heard.length);
  return Math.min(1, Math.max(0, 1 + Math.log10(Math.max(power, 1e-12)) / 6));
}

/** One channel of 16 kHz. */
async function samplesOf(sound: Blob): Promise<Float32Array> {
  const context = new OfflineAudioContext(1, 1, RATE);
  let decoded: AudioBuffer;
  try {
    decoded = await context.decodeAudioData(await sound.arrayBuffer());
  } catch {
    throw new Error(NO_SOUND);
  }
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, at) => decoded.getChannelData(at));
  const mixed = new Float32Array(decoded.length);
  for (const channel of channels) {
    for (let at = 0; at < mixed.length; at += 1)
      mixed[at] = (mixed[at] ?? 0) + (channel[at] ?? 0) / channels.length;
  }
  if (mixed.length === 0) throw new Error(NO_SOUND);
  return mixed;
}

function release(stream: MediaStream): void {
  for (const track of stream.getTracks()) track.stop();
}
