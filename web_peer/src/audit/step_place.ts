/*
 * Decides what a `check` request may say of a step, and how it stands on the wire (twin of Place in
 * peer/audit/judge.py). Pure.
 */

import { BadCommand } from '../errors';
import { cutSpans, extended } from '../session/position_spans';
import type { CheckRequest } from '../wire/generated/requests';

/**
 * One stage at one position of a session, as its asker knows it. `before`, `after`: "" for the asker itself.
 *
 * Of the last stage, unless its asker keeps its ends, also `token`, which it drew from that position, with which
 * settings, and how many tokens of the answer were `sampled` before it; of all others another position before it that
 * is compared `also` (-1: none).
 */
export type Place = CheckRequest;

/** Whether its inputs tell which tokens an asker has that keeps them. */
export function keepsIds({ pinned, before }: Place): boolean {
  return pinned && before === '';
}

/** The place of a `check` request. Raises BadCommand. */
export function placeOf(said: CheckRequest): Place {
  const { also, position } = said;
  if (also < -1 || (also !== -1 && also >= position)) {
    throw new BadCommand('check: expected as `also` a position before the one that is checked, or -1');
  }
  return said;
}

/** How positions [0, stop) were computed: below `known` by `spans` of given and sampled ones, the others alone. */
export function spansUpTo(spans: readonly number[], known: number, stop: number): number[] {
  return extended(cutSpans(spans, Math.min(stop, known)), Math.max(0, stop - known), false);
}
