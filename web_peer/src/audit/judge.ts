/*
 * Computes a step of another peer again, and says whether its result is what its units make of the input (twin of
 * peer/audit/judge.py).
 *
 * Edge around evidence.ts. The inputs come from the peer before (or the asker, who knows the tokens), the result from
 * the peer after; marks of the peer itself decide whether it got those inputs at all.
 */

import { mostBetween } from './check_policy';
import { BadCommand, CannotServe } from '../errors';
import { type Bytes, type Computes, distance, fromBase64, MARK_BYTES, spanOf } from '../session/evidence';
import type { Member } from '../state/generated/commands';
import type { MeshView } from '../replication/mesh_view';
import type { PeerLinks } from '../transport/peer_links';
import type { LocalModel } from '../model/local_model';
import type { SessionHost } from '../origin/session_host';
import type { StageHost } from '../stage/stage_host';
import { keepsIds, type Place } from './step_place';
import { type Inputs, Recomputing } from './recomputation';
import { needsHistory, samplingFromWire } from '../session/sampling';
import { fits } from '../session/sampling_check';
import { digestOf, marksOf } from './witness';
import {
  type CheckVerdict,
  WITNESS,
  type WitnessAnswer,
  type WitnessRequest,
  type WitnessSide,
} from '../wire/generated/requests';

const PAGE_BYTES = 64 * 1024; // of activations that are asked for at once: tokens wait behind them
const CALL_S = 20;
const MOST_TOKENS = 8; // of a last stage that one check looks at: each needs the head, and is drawn on the page's thread

/** What a judge needs of the tab it lives in. */
export interface Tab {
  readonly links: Pick<PeerLinks, 'on' | 'ask'>;
  readonly view: Pick<MeshView, 'me' | 'state' | 'propose'>;
  readonly model: Pick<LocalModel, 'manifest'>;
  readonly stage: Pick<StageHost, 'core' | 'units'>;
  readonly sessions: Pick<SessionHost, 'tokens' | 'ends' | 'hasRows'>;
  provider(): string;
  /** This peer's own testimony. Raises BadCommand. */
  own(asker: string, said: WitnessRequest): Promise<WitnessAnswer>;
}

/** Checks come one after the other. */
export class Judge {
  readonly again: Recomputing;
  kept = 0; // checks of what this peer had computed already, as a shadow
  worst = 0; // the largest distance that counted as the same
  private readonly tab: Tab;
  private turn: Promise<unknown> = Promise.resolve();

  constructor(tab: Tab) {
    this.tab = tab;
    this.again = new Recomputing(() => tab.stage.units);
  }

  /** Computes the place again. Raises PeerError where that cannot be done. */
  compare(asker: string, place: Place): Promise<CheckVerdict> {
    const made = this.turn.then(() => this.compareNow(asker, place));
    this.turn = made.catch(() => undefined);
    return made;
  }

  private async compareNow(asker: string, place: Place): Promise<CheckVerdict> {
    const { manifest } = this.tab.model;
    const said = new Said(this.tab, asker, place, manifest?.hidden ?? 1);
    const stop = place.position + 1;
    const marks = keepsIds(place) ? null : await said.marks(stop);
    if (marks === null && !keepsIds(place)) return 'unable';
    if (!(await said.sameplace(stop))) return 'disputed'; // about what was to be computed at all
    const theirs = computes(this.tab.view.state.members.get(place.peer));
    const mine = { provider: this.tab.provider(), arithmetic: '' }; // all positions together: no class repeats bits
    const most = mostBetween(manifest?.weights ?? '4bit', mine, theirs);
    const kept = await this.shadowed(said, place, marks);
    if (kept !== null) return this.compareRows(said, place, kept, most);
    const inputs = await said.inputs(stop);
    if (inputs === null) return 'unable';
    const agreed = await said.agreed(marks, await marksOfInputs(inputs, stop), stop);
    if (agreed !== true) return agreed === null ? 'unable' : 'disputed'; // about what went from one to the other
    if (place.after === '' && !place.pinned) return this.compareTokens(said, place, inputs, most);
    const rows = await this.again.rows(place.units, inputs);
    const width = rows.length / stop;
    return this.compareRows(said, place, (at) => rows.subarray(at * width, (at + 1) * width), most);
  }

  /** Where this peer shadows the stage it has the rows already, from the same inputs: nothing is computed again. */
  private async shadowed(
    said: Said,
    place: Place,
    marks: string | null,
  ): Promise<((at: number) => Float32Array | null) | null> {
    const seat = this.tab.stage.core.seatAt(place.session, place.stage);
    const stop = place.position + 1;
    const { units, position } = place;
    if (seat === undefined || seat.serves || seat.computed < stop) return null;
    if (place.after === '' && !place.pinned) return null;
    if (seat.run.first !== units.first || seat.run.stop !== units.stop) return null;
    const inputs = spanOf(seat.inputs, 0, stop);
    if (inputs === null || spanOf(seat.log, position, stop) === null) return null;
    if ((await said.agreed(marks, await marksOf(inputs, stop), stop)) !== true) return null;
    this.kept += 1;
    return (at) => {
      const row = spanOf(seat.log, at, at + 1);
      return row === null ? null : new Float32Array(row.buffer);
    };
  }

  /** The row of the position, and that of another one before it where both neighbours still tell the same. */
  private async compareRows(
    said: Said,
    place: Place,
    rowAt: (at: number) => Float32Array | null,
    most: number,
  ): Promise<CheckVerdict> {
    const { position, also } = place;
    for (const at of also >= 0 ? [position, also] : [position]) {
      const seen = await said.seen(at);
      const told = await said.told(at);
      const row = rowAt(at);
      if (row === null || seen === null || (told === null && at !== position)) {
        if (at === position) return 'unable';
        continue;
      }
      const gap = distance(seen, row);
      if (gap <= most) this.worst = Math.max(this.worst, gap);
      else if (told !== null && isEqual(told, seen)) return 'differs';
      else if (at === position) return told === null ? 'unable' : 'disputed';
    }
    return 'same';
  }

  /**
   * A last stage hands on tokens alone: each must be one that these settings draw from the logits. Those before that of
   * the position are looked at as well, as far as this peer says that it drew them: slight errors move few.
   */
  private async compareTokens(said: Said, place: Place, inputs: Inputs, most: number): Promise<CheckVerdict> {
    const sampling = samplingFromWire(place.sampling);
    const { position, sampled } = place;
    const first = Math.max(0, position - Math.min(sampled, MOST_TOKENS - 1)); // its logits draw the next token
    const start = needsHistory(sampling) ? 0 : first + 1;
    const before = start <= position ? await said.tokens(start, position + 1) : [];
    if (before === null) return 'unable';
    const tokens = [...before, place.token];
    const logits = await this.again.logits(place.units, inputs, first);
    for (let at = position; at >= first; at -= 1) {
      const known = start === 0 ? tokens.slice(0, at + 1) : [];
      const drawn = sampled - (position - at);
      const answer = drawn > 0 && known.length > 0 ? known.slice(-drawn) : [];
      const token = tokens[at + 1 - start] ?? -1;
      const row = logits[at - first];
      if (row === undefined) return 'unable';
      if (fits(row, { token, sampling, position: at + 1, history: known, answer }, most)) continue;
      const told = await said.token(at + 1);
      if (told === token) return 'differs';
      if (at === position) return told === null ? 'unable' : 'disputed';
    }
    return 'same';
  }
}

/** What others say of one place, as a judge wants it: checked, and null for what they have no more. */
class Said {
  private readonly tab: Tab;
  private readonly asker: string;
  private readonly place: Place;
  private readonly width: number;

  constructor(tab: Tab, asker: string, place: Place, width: number) {
    this.tab = tab;
    this.asker = asker;
    this.place = place;
    this.width = width;
  }

  /** Marks of the inputs of the peer in question, in hex, one behind the other. */
  async marks(stop: number): Promise<string | null> {
    const { peer, stage } = this.place;
    const { marks } = await this.ask(peer, stage, 'marks', 0, stop);
    return marks?.length === stop * MARK_BYTES * 2 ? marks : null;
  }

  /** Whether the peer in question says of its place what the asker says. */
  async sameplace(stop: number): Promise<boolean> {
    const { peer, stage, units, before, after, spans } = this.place;
    const theirs = await this.ask(peer, stage, 'place', 0, stop);
    return (
      theirs.units?.first === units.first &&
      theirs.units.stop === units.stop &&
      theirs.before === before &&
      theirs.after === after &&
      theirs.spans?.length === spans.length &&
      theirs.spans.every((each, at) => each === spans[at])
    );
  }

  /**
   * Whether the peer in question, which said `marks`, got the inputs with the marks `mine`; null: nobody knows any
   * more. Of inputs that tell tokens it says no marks, but whether all are the same.
   */
  async agreed(marks: string | null, mine: string, stop: number): Promise<boolean | null> {
    const { peer, stage } = this.place;
    if (!keepsIds(this.place)) return marks === null ? null : marks === mine;
    const { same } = await this.ask(peer, stage, 'match', 0, stop, await digestOf(mine));
    return same ?? null;
  }

  /** What the peer before handed on for positions [0, stop), in pages; of a first stage what the asker sent. */
  async inputs(stop: number): Promise<Inputs | null> {
    const { before, stage, pinned } = this.place;
    if (before === '' && !pinned) {
      const tokens = await this.tokens(0, stop);
      return tokens === null ? null : { kind: 'tokens', tokens: Int32Array.from(tokens) };
    }
    const { width } = this;
    const page = Math.max(1, Math.floor(PAGE_BYTES / (4 * width)));
    const rows = new Float32Array(stop * width);
    for (let first = 0; first < stop; first += page) {
      const last = Math.min(first + page, stop);
      const part =
        before === ''
          ? await this.rows(this.asker, 0, 'sent', first, last)
          : await this.rows(before, stage - 1, 'out', first, last);
      if (part === null) return null;
      rows.set(part, first * width);
    }
    return { kind: 'rows', rows, width };
  }

  async tokens(first: number, stop: number): Promise<readonly number[] | null> {
    const { tokens } = await this.ask(this.asker, 0, 'tokens', first, stop);
    return tokens?.length === stop - first ? tokens : null;
  }

  /** What the peer after got of a position, or the asker of a last stage. */
  seen(at: number): Promise<Float32Array | null> {
    const { after, stage } = this.place;
    if (after === '') return this.rows(this.asker, stage + 1, 'back', at, at + 1);
    return this.rows(after, stage + 1, 'in', at, at + 1);
  }

  /** What the peer in question says that it handed on. */
  told(at: number): Promise<Float32Array | null> {
    return this.rows(this.place.peer, this.place.stage, 'out', at, at + 1);
  }

  /** What the peer in question says that it drew. */
  async token(at: number): Promise<number | null> {
    const { token } = await this.ask(this.place.peer, this.place.stage, 'token', at, at + 1);
    return token ?? null;
  }

  private async rows(
    peer: string,
    stage: number,
    side: WitnessSide,
    first: number,
    stop: number,
  ): Promise<Float32Array | null> {
    const { rows } = await this.ask(peer, stage, side, first, stop);
    if (rows === undefined || rows === null) return null;
    const bytes = fromBase64(rows);
    if (bytes?.length !== (stop - first) * this.width * 4) {
      throw new BadCommand(`witness: expected ${side} of ${stop - first} positions`);
    }
    return new Float32Array(bytes.buffer);
  }

  private async ask(
    peer: string,
    stage: number,
    side: WitnessSide,
    first: number,
    stop: number,
    seen = '',
  ): Promise<WitnessAnswer> {
    const { links, view } = this.tab;
    const asks = { session: this.place.session, stage, side, first, stop, seen };
    if (peer === view.me) return this.tab.own(peer, asks);
    return links.ask(peer, WITNESS, asks, CALL_S);
  }
}

/** How a member computes; one of which nobody knows counts as a process like others. */
export function computes(member: Member | undefined): Computes {
  const { provider = 'cpu', arithmetic = '' } = member?.profile ?? {};
  return { provider, arithmetic };
}

function marksOfInputs(inputs: Inputs, count: number): Promise<string> {
  const array = inputs.kind === 'tokens' ? inputs.tokens : inputs.rows;
  if (array.length === 0) throw new CannotServe('there is nothing to compute');
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength) as Bytes;
  return marksOf(bytes, count);
}

/** The same bits. */
function isEqual(a: Float32Array, b: Float32Array): boolean {
  return a.length === b.length && a.every((each, at) => Object.is(each, b[at]));
}
