/* The two sides of the browser benchmark, called by drive.js: this tab's runtime, and wllama on the same GGUF. */

import { Wllama } from '@wllama/wllama';
import wllamaUrl from '@wllama/wllama/esm/wasm/wllama.wasm?url';

import './numerics';

import { blobsOf, decodeManifest, graphsOf } from '../src/planner/manifest';
import { abilities, candidate } from '../src/runtime/self_benchmark';
import { type Answer, StageRuntime } from '../src/runtime/worker_handle';
import { GREEDY } from '../src/session/sampling';

interface Round {
  readonly prefill: number; // tokens per second
  readonly decode: number;
  readonly found: number; // tokens made
  readonly tokens?: readonly number[];
  readonly prompt?: number | undefined; // tokens of the prompt, as the other side counts them
}

/** What the other side measures itself. */
interface Timings {
  readonly prompt_n: number;
  readonly prompt_per_second: number;
  readonly predicted_n: number;
  readonly predicted_per_second: number;
}

interface Prompt {
  readonly ids: readonly number[];
  readonly text: string; // the same, for a side that tokenizes itself
}

/** Runs a round: the prompt, then greedy tokens up to `count` in all. */
type Side = (prompt: Prompt, count: number) => Promise<Round>;

declare global {
  interface Window {
    openShoal(model: string, context: number, provider: 'wasm' | 'webgpu', threads?: number): Promise<object>;
    openWllama(url: string, context: number): Promise<object>;
    /** What `provider` reaches by the short measurement that joining makes. */
    measureShoal(model: string, provider: 'wasm' | 'webgpu'): Promise<object>;
    round(prompt: Prompt, count: number): Promise<Round>;
  }
}

let side: Side | null = null;

window.round = (prompt, count) => {
  if (side === null) throw new Error('no side is open');
  return side(prompt, count);
};

const fetched = async (path: string): Promise<Uint8Array<ArrayBuffer>> =>
  new Uint8Array(await (await fetch(path)).arrayBuffer());

window.measureShoal = async (model, provider) => {
  const manifest = decodeManifest(await fetched(`/models/${model}/manifest.json`));
  const graphs = new Map<string, Uint8Array>();
  for (const { sha256 } of graphsOf(manifest)) graphs.set(sha256, await fetched(`/blobs/${sha256}`));
  const found = await abilities();
  const started = performance.now();
  const times = await candidate({ manifest, graphs }, provider, found.threads, new AbortController().signal);
  const table = (of: ReadonlyMap<string, number>): object => Object.fromEntries(of);
  return {
    ...{ ...times, decodeNs: table(times.decodeNs), prefillNs: table(times.prefillNs) },
    ...{ batchNs: table(times.batchNs), tookMs: performance.now() - started, gpu: found.gpu },
  };
};

window.openShoal = async (model, context, provider, threads = 1) => {
  const started = performance.now();
  const manifest = decodeManifest(await fetched(`/models/${model}/manifest.json`));
  const stop = manifest.units.length;
  const blobs = new Map<string, Uint8Array>();
  for (const { sha256 } of blobsOf(manifest, 0, stop)) blobs.set(sha256, await fetched(`/blobs/${sha256}`));
  const ready = performance.now();
  const waiting: ((answer: Answer) => void)[] = [];
  const runtime = await StageRuntime.load(
    { manifest, first: 0, stop, blobs },
    { provider, threads, slots: 1, context },
    {
      answers: (answers) => answers.forEach((answer) => waiting.shift()?.(answer)),
      lost: (text) => {
        throw new Error(text);
      },
    },
  );
  const step = (tokens: readonly number[], position: number): Promise<Answer> => {
    const pick = { sampling: GREEDY, position: position + tokens.length, history: [], generated: 0 };
    const settings = {
      session: '00',
      turn: 0,
      hidden: null,
      last: true,
      pick,
      prompt: false,
      behind: false,
      shift: 0,
      mostRows: 0,
    };
    runtime.submit({ ...settings, position, tokens: Int32Array.from(tokens) });
    return new Promise((resolve) => waiting.push(resolve));
  };
  side = async ({ ids }, count) => {
    const begun = performance.now();
    const found = [tokenOf(await step(ids, 0))];
    const filled = performance.now();
    while (found.length < count) {
      found.push(tokenOf(await step(found.slice(-1), ids.length + found.length - 1)));
    }
    return { ...rates(ids.length, found.length, begun, filled, performance.now()), tokens: found };
  };
  return { fetchMs: ready - started, loadMs: performance.now() - ready, memory: runtime.memoryBytes() };
};

window.openWllama = async (url, context) => {
  const wllama = new Wllama({ default: wllamaUrl }, { suppressNativeLog: true });
  // Without a GPU, on one thread, as the other side.
  const settings = { n_ctx: context, n_threads: 1, n_gpu_layers: 0, n_parallel: 1, useCache: false };
  await wllama.loadModelFromUrl(url, settings);
  side = async ({ ids, text }, count) => {
    let filled = 0;
    let pieces = 0;
    let timings: Timings | undefined;
    const begun = performance.now();
    await wllama.createCompletion({
      prompt: text,
      max_tokens: count,
      temperature: 0,
      stream: true,
      ...{ cache_prompt: false, ignore_eos: true },
      onData: (chunk) => {
        if (pieces === 0) filled = performance.now();
        pieces += 1;
        timings = chunk.timings ?? timings;
      },
    });
    const clocked = rates(ids.length, pieces, begun, filled, performance.now());
    // Its own clock where that is kinder: it leaves out tokenizing and the way to the page.
    return {
      found: timings?.predicted_n ?? clocked.found,
      prefill: Math.max(clocked.prefill, timings?.prompt_per_second ?? 0),
      decode: Math.max(clocked.decode, timings?.predicted_per_second ?? 0),
      prompt: timings?.prompt_n,
    };
  };
  return { threads: wllama.getNumThreads(), version: Wllama.getLibllamaVersion() };
};

function tokenOf(answer: Answer): number {
  if (answer.kind === 'refused') throw new Error(`refused: ${answer.text}`);
  if (answer.token === null) throw new Error('a token expected');
  return answer.token;
}

function rates(prompt: number, found: number, begun: number, filled: number, ended: number): Round {
  return {
    prefill: (prompt / (filled - begun)) * 1000,
    decode: ((found - 1) / (ended - filled)) * 1000,
    found,
  };
}
