/*
 * What this tab caches of sessions is given to peers that their answers move to, and taken from others (twin of
 * peer/stage/kv_transfer_service.py). Edge.
 *
 * A copy goes to no one but a member that the plan gives those units anyway; a peer that cannot get one computes.
 * Numbers are hashed, checked and put in their places by the workers; the page passes them on.
 */

import { BadCommand, CannotServe } from '../errors';
import type { SessionId } from '../wire/generated/frames';
import {
  arraysOf,
  cacheBytes,
  remembered,
  type Source,
  sourcesOf,
  toldOf,
  wishRequest,
  wishOf,
} from '../session/kv_transfer_rules';
import type { Manifest } from '../planner/manifest';
import type { PlanRecord } from '../state/generated/commands';
import type { ModelView } from '../replication/decoder_view';
import type { PeerLinks } from '../transport/peer_links';
import type { StageHost } from './stage_host';
import type { LocalModel } from '../model/local_model';
import { OPEN_LENT } from '../model/piece_exchange';
import { MOST_BYTES } from '../session/prefix_cache';
import type { GivenPart } from '../runtime/worker_messages';
import { type Seat, sameRun } from '../session/seat';
import { nowS } from '../transport/ticker';
import { KV_COPY, type KvCopyAnswer, type KvCopyRequest } from '../wire/generated/requests';

const COPY_WITHIN_MS = 20_000;
const AT_ONCE = 2; // answers whose caches are copied here at the same time: one on the way, one being asked for

interface Part {
  readonly have: number;
  readonly part: GivenPart | null; // null: these units cache nothing
}

/** What giving and taking caches needs of a peer. */
interface Parts {
  readonly links: Pick<PeerLinks, 'me' | 'call'>;
  readonly view: Pick<ModelView, 'state' | 'subscribe'>;
  readonly model: Pick<LocalModel, 'pieces'>;
  readonly stage: StageHost;
}

/** The copies of caches that this tab gives and takes, within its pledge of bytes; ends with `signal`. */
export class Caches {
  private readonly parts: Parts;
  private readonly manifest: Manifest;
  private readonly pledgeBytes: () => number;
  private readonly signal: AbortSignal;
  private plans: readonly PlanRecord[] = [];
  private heldBytes = 0; // of copies that are on their way, in either direction
  private readonly turns: (() => void)[] = []; // who waits for its turn
  private busy = 0;

  /** `pledgeBytes()`: what this tab lends. */
  constructor(parts: Parts, manifest: Manifest, pledgeBytes: () => number, signal: AbortSignal) {
    this.parts = parts;
    this.manifest = manifest;
    this.pledgeBytes = pledgeBytes;
    this.signal = signal;
  }

  /** Gives and takes until the membership ends. */
  follow(): void {
    const { signal } = this;
    const { view, stage } = this.parts;
    const look = (): void => {
      this.plans = remembered(this.plans, view.state);
    };
    const end = view.subscribe(look);
    look();
    stage.copyBy({ bring: (seat) => this.bring(seat), lend: (peer, said) => this.lend(peer, said) });
    signal.addEventListener('abort', () => {
      end();
      stage.copyBy(null);
    });
  }

  /** The answer to `kv_copy`. Raises BadCommand. */
  async lend(peer: string, said: KvCopyRequest): Promise<KvCopyAnswer> {
    const { session, run, units } = wishOf(said, peer, this.parts.view.state);
    const { core, units: runs } = this.parts.stage;
    const found = core.sameAnswer(session, run);
    const runtime = runs?.runtime(run) ?? null;
    if (found === null || runtime === null) {
      throw new BadCommand('kv_copy: expected a session that is computed here');
    }
    const names = arraysOf(this.manifest, units);
    const have = found.computed;
    if (have === 0 || names.length === 0) return { have, sha256: '' };
    const release = this.reserve(cacheBytes(this.manifest, units, have));
    const read = await runtime.read(found.session, have, names);
    if (read === null) {
      release();
      throw new BadCommand('kv_copy: expected a session that is computed here');
    }
    const { sha256, values } = read;
    const end = this.parts.model.pieces.lend(sha256, new Uint8Array(values.buffer), () => {
      clearTimeout(late);
      release();
    });
    const late = setTimeout(end, COPY_WITHIN_MS); // whoever asked has it, or gave up
    return { have, sha256 };
  }

  /** Begins to copy what others cache of the answer that moves to `seat`; false when nobody knows who does. */
  private bring(seat: Seat): boolean {
    const { before, shadows } = seat.opening;
    const plan = this.plans.find(({ version }) => version === before);
    const sources = sourcesOf(plan, shadows, seat.run);
    if (sources === null) return false;
    void this.brought(seat, sources);
    return true;
  }

  private async brought(seat: Seat, sources: readonly Source[]): Promise<void> {
    await this.turn(); // which may be late, where others' caches take long
    let count = 0;
    try {
      count = await this.take(seat, sources);
    } catch (error) {
      // Whatever it was, it is computed anew; these are defects.
      if (error instanceof TypeError || error instanceof RangeError) reportError(error);
    } finally {
      this.busy -= 1;
      this.turns.shift()?.();
    }
    if (this.signal.aborted) return;
    const { stage } = this.parts;
    stage.perform(stage.core.brought(nowS(), seat.session, seat.opening.stage, count));
  }

  /** How many positions of the session are cached by its units now. Raises an Error. */
  private async take(seat: Seat, sources: readonly Source[]): Promise<number> {
    const { core, units: runs } = this.parts.stage;
    const { me } = this.parts.links;
    const { session, run } = seat;
    const { origin, stage, promptTokens } = seat.opening;
    const [only] = sources;
    const isWanted = (): boolean => core.seatAt(session, stage)?.heldBack === true; // else nobody would free what is put
    if (only?.peer === me && sameRun(only.run, run)) {
      const found = core.sameAnswer(session, run, origin);
      if (found === null || !isWanted()) return 0;
      const isThere = await runs?.runtime(run)?.share(session, found.computed, found.session);
      return isThere === true ? found.computed : 0;
    }
    const limit = AbortSignal.any([this.signal, AbortSignal.timeout(COPY_WITHIN_MS)]);
    const releases: (() => void)[] = [];
    try {
      const parts = await Promise.all(
        sources.map((source) => {
          const names = arraysOf(this.manifest, source.units);
          return source.peer === me
            ? this.own(session, origin, source, names, releases)
            : this.others(session, source, names, promptTokens, releases, limit);
        }),
      );
      const count = Math.min(...parts.map(({ have }) => have));
      if (count === 0 || !isWanted()) return 0;
      const given = parts.flatMap(({ part }) => (part === null ? [] : [part]));
      return (await runs?.runtime(run)?.write(session, count, given)) === true ? count : 0;
    } finally {
      for (const release of releases) release();
    }
  }

  /** What another run of this tab caches. */
  private async own(
    session: SessionId,
    origin: string,
    { run, units }: Source,
    names: readonly string[],
    releases: (() => void)[],
  ): Promise<Part> {
    const found = this.parts.stage.core.sameAnswer(session, run, origin);
    if (found === null) throw new CannotServe('this peer no longer computes it');
    const have = found.computed;
    if (have === 0 || names.length === 0) return { have, part: null };
    releases.push(this.reserve(cacheBytes(this.manifest, units, have)));
    const read = await this.parts.stage.units?.runtime(run)?.read(found.session, have, names);
    if (read === null || read === undefined) throw new CannotServe('this peer no longer computes it');
    return { have, part: { names, have, values: read.values, sha256: null } };
  }

  private async others(
    session: SessionId,
    { peer, run, units }: Source,
    names: readonly string[],
    most: number,
    releases: (() => void)[],
    limit: AbortSignal,
  ): Promise<Part> {
    const { links, model } = this.parts;
    const told = await links.call(peer, KV_COPY, wishRequest({ session, run, units }));
    const { have, sha256 } = toldOf(told, most);
    if (have === 0 || names.length === 0) return { have, part: null };
    const bytes = cacheBytes(this.manifest, units, have);
    releases.push(this.reserve(bytes));
    const data = await model.pieces.fetch(peer, sha256, bytes, limit, OPEN_LENT);
    return { have, part: { names, have, values: new Float32Array(data.buffer), sha256 } };
  }

  /** Counts bytes of a copy until the result is called. Raises CannotServe where they are too many. */
  private reserve(bytes: number): () => void {
    if (bytes > Math.min(MOST_BYTES, this.freeBytes()) - this.heldBytes)
      throw new CannotServe('kv_copy: no room for a copy here');
    this.heldBytes += bytes;
    return () => {
      this.heldBytes -= bytes;
    };
  }

  /** Of what this tab lends: what nothing lies in now, or is promised to sessions that do not need it so far. */
  private freeBytes(): number {
    const { core, units } = this.parts.stage;
    const { state } = this.parts.view;
    if (units === null || state.model === null) return 0;
    const { sessions, context } = state.model;
    const { weights, kv, overhead, fronts } = units.memoryBytes();
    const empty = this.pledgeBytes() - weights - kv - overhead - fronts;
    return Math.max(empty, units.spareBytes(sessions, context) - core.prefixes.keptBytes);
  }

  private async turn(): Promise<void> {
    this.busy += 1;
    if (this.busy > AT_ONCE) await new Promise<void>((resolve) => this.turns.push(resolve));
    else await Promise.resolve(); // whoever opened the seat is to go on first
  }
}
