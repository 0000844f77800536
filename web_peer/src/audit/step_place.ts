/*
 * Decides what a `check` request may say of a step, and how it stands on the wire (twin of Place in
 * peer/audit/judge.py). Pure.
 */

import { BadCommand } from '../errors';
import { type Body, whole } from '../wire/json_codec';
import type { Run } from '../state/plan_record';
import { cutSpans, extended } from '../session/position_spans';

export const MOST_POSITIONS = 1024; // up to the one that is checked: all of them are computed again
export const SETTINGS = 8; // integers of sampling of an answer that is not held to a form
const MOST_SPANS = 512;

/**
 * One stage at one position of a session, as its asker knows it. `before`, `after`: "" for the asker itself.
 *
 * Of the last stage, unless its asker keeps its ends, also `token`, which it drew from that position, with which
 * settings, and how many tokens of the answer were `sampled` before it; of all others another position before it that
 * is compared `also` (-1: none).
 */
export interface Place {
  readonly session: string;
  readonly stage: number;
  readonly position: number;
  readonly units: Run;
  readonly peer: string;
  readonly before: string;
  readonly after: string;
  readonly spans: readonly number[];
  readonly token: number;
  readonly sampling: readonly number[];
  readonly sampled: number;
  readonly also: number;
  readonly pinned: boolean; // its asker keeps embedding, head and sampling
}

/** The body of a `check` request. */
export function bodyOfPlace({ units, ...rest }: Place): Body {
  return { ...rest, units: [units.first, units.stop] };
}

/** Whether its inputs tell which tokens an asker has that keeps them. */
export function keepsIds({ pinned, before }: Place): boolean {
  return pinned && before === '';
}

/** The place of a `check` request. Raises BadCommand. */
export function placeOf(body: Body): Place {
  const { session, peer, before, after, token, also = -1, pinned = false } = body;
  const [position, stage, sampled] = [whole(body, 'position'), whole(body, 'stage'), whole(body, 'sampled')];
  const [units, spans, sampling] = [
    integers(body, 'units'),
    integers(body, 'spans'),
    integers(body, 'sampling'),
  ];
  const [first = -1, stop = -1] = units;
  if (units.length !== 2 || first < 0 || first >= stop || position >= MOST_POSITIONS) {
    throw new BadCommand(`check: expected a run of units and a position below ${MOST_POSITIONS}`);
  }
  if (spans.length > MOST_SPANS || sampling.length > SETTINGS || !isInteger(token)) {
    throw new BadCommand('check: expected spans, a token and sampling settings');
  }
  if (!isInteger(also) || also < -1 || (also !== -1 && also >= position)) {
    throw new BadCommand('check: expected as `also` a position before the one that is checked, or -1');
  }
  if (typeof session !== 'string' || !/^([0-9a-f]{2})*$/.test(session)) {
    throw new BadCommand('session: expected hex digits');
  }
  if (typeof peer !== 'string' || typeof before !== 'string' || typeof after !== 'string') {
    throw new BadCommand('check: expected peer, before and after');
  }
  if (typeof pinned !== 'boolean') throw new BadCommand('check: expected as `pinned` true or false');
  const named = { session, peer, before, after, pinned };
  return { ...named, stage, position, units: { first, stop }, spans, token, sampling, sampled, also };
}

/** How positions [0, stop) were computed: below `known` by `spans` of given and sampled ones, the others alone. */
export function spansUpTo(spans: readonly number[], known: number, stop: number): number[] {
  return extended(cutSpans(spans, Math.min(stop, known)), Math.max(0, stop - known), false);
}

function isInteger(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value);
}

function integers(body: Body, key: string): number[] {
  const found = body[key];
  if (!Array.isArray(found) || !found.every(isInteger)) {
    throw new BadCommand(`check: expected integers as \`${key}\``);
  }
  return found;
}
