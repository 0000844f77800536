/*
 * Gets manifests and blobs piece by piece from the first source that has them: what this browser keeps, other peers,
 * the model store over HTTP. A wrong piece is refused and its source is not asked again. Edge.
 */

import { type PieceCache, sha256 } from './piece_cache';
import { CannotServe, NotNow, textOf } from '../errors';
import { decodeGraphManifest, type GraphManifest } from '../planner/graph_manifest';
import { type BlobRef, PIECE_BYTES, pieceBytes } from '../planner/blob_ref';
import { MAX_MANIFEST_BYTES } from '../planner/checked_fields';
import { decodeManifest, type Manifest, MOST_ENVELOPE_BYTES } from '../planner/manifest';
import { giveBack } from './release_arrays';

const PARALLEL_PIECES = 4; // enough to fill a link whose round trip is long, few enough for a phone's memory
const ATTEMPTS = 4; // rounds over all sources, with growing pauses; the store may be restarting
const FIRST_PAUSE_MS = 200;
const PIECE_TIMEOUT_MS = 120_000; // 4 MiB in this time is 35 KB/s, slower than any link worth using
const SPEED_WINDOW_MS = 3000; // the speed shown is that of the last seconds

type Bytes = Uint8Array<ArrayBuffer>;

/** Somebody who may have pieces. `piece` gives them away, or rejects when it has none, or cannot give it now. */
export interface PieceSource {
  readonly name: string;
  piece(ref: BlobRef, index: number, signal: AbortSignal): Promise<Bytes>;
}

/** Totals over all blobs asked for, in bytes; `networkBytes` of them came from elsewhere in this call. */
export interface FetchProgress {
  readonly hereBytes: number;
  readonly totalBytes: number;
  readonly networkBytes: number;
  readonly bytesPerS: number; // 0 while unknown
  readonly leftS: number | null;
}

export interface FetcherSettings {
  /** Those who may have pieces now, preferred first; they come and go. */
  readonly sources: () => readonly PieceSource[];
  readonly manifestFrom: (model: string, signal: AbortSignal) => Promise<Bytes>;
  readonly now: () => number; // milliseconds
  /** A source gave bytes that are not those of the hash. */
  readonly wrongPiece: (source: string) => void;
}

/** Fetches the pieces of a model, from other peers and from the server, and checks each by its hash. */
export class Fetcher {
  /** Bytes of pieces that came over the network since the page opened; 0 when everything was here already. */
  networkBytes = 0;
  private readonly cache: PieceCache;
  private readonly settings: FetcherSettings;
  private readonly banned = new Set<string>();
  private turn = 0;

  constructor(cache: PieceCache, settings: FetcherSettings) {
    this.cache = cache;
    this.settings = settings;
  }

  /** The manifest of `model`, kept or fetched; its hash is the id. Raises CannotServe, or NotNow. */
  async manifest(model: string, signal: AbortSignal): Promise<Manifest> {
    return decodeManifest(await this.manifestBytes(model, signal));
  }

  /** The same of a model that is a graph of units. */
  async graphManifest(model: string, signal: AbortSignal): Promise<GraphManifest> {
    return decodeGraphManifest(await this.manifestBytes(model, signal));
  }

  private async manifestBytes(model: string, signal: AbortSignal): Promise<Bytes> {
    const kept = await this.cache.manifest(model);
    if (kept !== null && (await sha256(kept)) === model) return kept;
    const bytes = await this.settings.manifestFrom(model, signal);
    if (bytes.length > MAX_MANIFEST_BYTES || (await sha256(bytes)) !== model) {
      throw new CannotServe(
        `the server's manifest is not that of model ${model.slice(0, 12)}; do not use this server`,
      );
    }
    await this.cache.putManifest(model, bytes);
    return bytes;
  }

  /** Every blob of `refs`, whole, by hash. Raises NotNow when no source gives a piece, CannotServe for wrong ones. */
  async blobs(
    refs: readonly BlobRef[],
    signal: AbortSignal,
    progress: (of: FetchProgress) => void = () => undefined,
  ): Promise<Map<string, Bytes>> {
    const made = new Map(refs.map((ref) => [ref.sha256, new Uint8Array(ref.bytes)]));
    const wanted = refs.flatMap((ref) => ref.pieces.map((_, index) => ({ ref, index })));
    const meter = new Meter(refs, this.settings.now, progress);
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    const worker = async (): Promise<void> => {
      for (let next = wanted.shift(); next !== undefined; next = wanted.shift()) {
        either.throwIfAborted();
        const { ref, index } = next;
        const hash = ref.pieces[index] ?? '';
        const kept = await this.cache.read(hash);
        const bytes = kept ?? (await this.fromSources(ref, index, either));
        made.get(ref.sha256)?.set(bytes, index * PIECE_BYTES);
        meter.more(bytes.length, kept === null);
        giveBack(bytes);
      }
    };
    const workers = Array.from({ length: PARALLEL_PIECES }, worker);
    try {
      await Promise.all(workers);
    } catch (error) {
      stop.abort();
      await Promise.allSettled(workers);
      throw error;
    }
    return made;
  }

  /** Whether this browser keeps every piece of `refs`. */
  keeps(refs: readonly BlobRef[]): Promise<boolean> {
    return this.cache.hasAll(refs.flatMap(({ pieces }) => pieces));
  }

  private async fromSources(ref: BlobRef, index: number, signal: AbortSignal): Promise<Bytes> {
    const hash = ref.pieces[index] ?? '';
    let trouble = 'nobody has it';
    let isWrong = false;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (attempt > 0) await pause(FIRST_PAUSE_MS * 2 ** attempt, signal);
      for (const source of this.inTurn()) {
        signal.throwIfAborted();
        try {
          const limit = AbortSignal.any([signal, AbortSignal.timeout(PIECE_TIMEOUT_MS)]);
          const bytes = await source.piece(ref, index, limit);
          this.networkBytes += bytes.length;
          if (bytes.length === pieceBytes(ref, index) && (await this.cache.write(hash, bytes))) return bytes;
          this.banned.add(source.name);
          this.settings.wrongPiece(source.name);
          trouble = `${source.name} gave other bytes than were asked for`;
          isWrong = true;
        } catch (error) {
          signal.throwIfAborted();
          trouble = `${source.name}: ${textOf(error)}`;
          isWrong = false;
        }
      }
    }
    const text = `cannot fetch piece ${index} of ${ref.sha256.slice(0, 12)}: ${trouble}; is the mesh still up?`;
    throw isWrong ? new CannotServe(text) : new NotNow(text);
  }

  /** The sources in order of preference; those but the last take turns, so that peers share the work. */
  private inTurn(): PieceSource[] {
    const good = this.settings.sources().filter(({ name }) => !this.banned.has(name));
    const peers = good.slice(0, -1);
    const at = peers.length === 0 ? 0 : this.turn++ % peers.length;
    return [...peers.slice(at), ...peers.slice(0, at), ...good.slice(-1)];
  }
}

/** The model store of a signaling server, by HTTP Range. `base` is "" for the server this page came from. */
export class HttpStore implements PieceSource {
  readonly name: string;
  private readonly base: string;

  constructor(base: string) {
    this.base = base.replace(/\/$/, '');
    this.name = base === '' ? 'the server of this page' : base;
  }

  async piece(ref: BlobRef, index: number, signal: AbortSignal): Promise<Bytes> {
    const first = index * PIECE_BYTES;
    const size = pieceBytes(ref, index);
    const headers = { Range: `bytes=${first}-${first + size - 1}` };
    // Pieces are kept by hash already: a second copy in the HTTP cache helps nobody.
    const response = await fetch(`${this.base}/blobs/${ref.sha256}`, { headers, signal, cache: 'no-store' });
    if (response.status !== 206 && !(response.status === 200 && size === ref.bytes)) {
      await response.body?.cancel();
      throw new Error(`it answered ${response.status}`);
    }
    return bounded(response, size);
  }

  async manifest(model: string, signal: AbortSignal): Promise<Bytes> {
    const response = await fetch(`${this.base}/models/${model}/manifest.json`, { signal }).catch(
      (error: unknown) => {
        signal.throwIfAborted();
        throw new NotNow(`${this.name} does not answer: ${textOf(error)}`);
      },
    );
    if (!response.ok) {
      const text = `the server has no model ${model.slice(0, 12)}: it answered ${response.status}`;
      throw response.status >= 500 ? new NotNow(text) : new CannotServe(text);
    }
    return bounded(response, MAX_MANIFEST_BYTES);
  }

  /** How long rows of `model` are, as it was recorded; null where it was not, or the server does not answer. */
  async envelopes(model: string, signal: AbortSignal): Promise<Bytes | null> {
    try {
      const response = await fetch(`${this.base}/models/${model}/envelopes.json`, { signal });
      return response.ok ? await bounded(response, MOST_ENVELOPE_BYTES) : null;
    } catch {
      return null;
    }
  }
}

/** The body, of at most `limit` bytes. */
async function bounded(response: Response, limit: number): Promise<Bytes> {
  const made: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part?.value !== undefined; part = await reader?.read()) {
    size += part.value.length;
    if (size > limit) {
      await reader?.cancel();
      throw new Error(`it sent more than the ${limit} bytes asked for`);
    }
    made.push(part.value);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of made) {
    whole.set(part, at);
    at += part.length;
    giveBack(part);
  }
  return whole;
}

/** Counts bytes and reports them with speed and time left. */
class Meter {
  private here = 0;
  private network = 0;
  private readonly total: number;
  private readonly now: () => number;
  private readonly report: (of: FetchProgress) => void;
  private readonly arrived: { at: number; bytes: number }[] = [];

  constructor(refs: readonly BlobRef[], now: () => number, report: (of: FetchProgress) => void) {
    this.total = refs.reduce((sum, ref) => sum + ref.bytes, 0);
    this.now = now;
    this.report = report;
    this.arrived.push({ at: now(), bytes: 0 });
    this.tell(0);
  }

  more(bytes: number, fromNetwork: boolean): void {
    this.here += bytes;
    if (fromNetwork) this.network += bytes;
    this.arrived.push({ at: this.now(), bytes });
    while (this.arrived.length > 2 && this.now() - (this.arrived[0]?.at ?? 0) > SPEED_WINDOW_MS) {
      this.arrived.shift();
    }
    const since = this.now() - (this.arrived[0]?.at ?? 0);
    const recent = this.arrived.slice(1).reduce((sum, one) => sum + one.bytes, 0);
    this.tell(since > 0 ? (recent / since) * 1000 : 0);
  }

  private tell(bytesPerS: number): void {
    this.report({
      hereBytes: this.here,
      totalBytes: this.total,
      networkBytes: this.network,
      bytesPerS,
      leftS: bytesPerS > 0 ? (this.total - this.here) / bytesPerS : null,
    });
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', end);
      resolve();
    }, ms);
    signal.addEventListener('abort', end, { once: true });
  });
}
