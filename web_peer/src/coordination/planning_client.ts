/*
 * Asks the planning service of the mesh's server for a plan, or where offered models run. Edge.
 *
 * Whoever leads and has no planner of its own does so. When the service is away or busy nobody plans anew; what serves,
 * serves on.
 */

import { BadCommand } from '../errors';
import { MAX_MODELS, type ModelPlaced } from '../state/generated/commands';
import { decodeCommand } from '../state/member_commands';
import { encodeState } from '../state/mesh_state';
import type { PlacementsAsked } from './offer_placement_service';
import { decodeAnswer, encodeRequest, type Planned, type PlanRequest } from './plan_request';

const WITHIN_MS = 30_000; // the service gives up after 20 s
const MAX_ANSWER_CHARS = 4 << 20;
const MAX_REASON = 300;
const REFUSED = 400;

/** Null: the service is away, or busy. Raises BadCommand where it refuses the request, or answers what is no plan. */
export async function askPlanner(
  server: string,
  request: PlanRequest,
  signal: AbortSignal,
): Promise<Planned | null> {
  const answer = await posted(server, 'plan', encodeRequest(request), signal);
  if (answer === null) return null;
  const { status, text } = answer;
  if (status === REFUSED && (request.serving !== null || request.shared.length > 0)) {
    return askPlanner(server, { ...request, serving: null, shared: [] }, signal); // one of before knows no such fields
  }
  if (status === REFUSED) throw new BadCommand(`the planner refused: ${text.slice(0, MAX_REASON).trim()}`);
  if (status < 200 || status > 299) return null;
  if (text.length > MAX_ANSWER_CHARS) throw new BadCommand('plan: expected a shorter answer');
  return decodeAnswer(text, request);
}

/**
 * Where offered models run, as a process would have the log take it. Null: the service is away, or busy, or one of before
 * places none. Raises BadCommand where it refuses the request, or answers what is no placement.
 */
export async function askPlacements(
  server: string,
  asked: PlacementsAsked,
  signal: AbortSignal,
): Promise<readonly ModelPlaced[] | null> {
  const answer = await posted(server, 'place', encodeAsked(asked), signal);
  if (answer === null) return null;
  const { status, text } = answer;
  if (status === REFUSED) throw new BadCommand(`the planner refused: ${text.slice(0, MAX_REASON).trim()}`);
  if (status < 200 || status > 299) return null;
  if (text.length > MAX_ANSWER_CHARS) throw new BadCommand('placements: expected a shorter answer');
  return decodePlacements(text);
}

/** JSON as peer/coordination/placement_answers.py reads it. */
export function encodeAsked({ state, speaks, flops }: PlacementsAsked): string {
  const numbers = JSON.stringify({ speaks: Object.fromEntries(speaks), flops: Object.fromEntries(flops) });
  return `${numbers.slice(0, -1)},"state":${new TextDecoder().decode(encodeState(state))}}`;
}

/** Raises BadCommand for anything but a list of placements. */
export function decodePlacements(text: string): readonly ModelPlaced[] {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    throw new BadCommand('placements: expected JSON');
  }
  if (!Array.isArray(said) || said.length > MAX_MODELS) {
    throw new BadCommand(`placements: expected a list of at most ${MAX_MODELS}`);
  }
  return said.map((each) => {
    const command = decodeCommand(new TextEncoder().encode(JSON.stringify(each)));
    if (command.kind !== 'ModelPlaced') throw new BadCommand('placements: expected commands ModelPlaced');
    return command;
  });
}

async function posted(
  server: string,
  path: 'plan' | 'place',
  body: string,
  signal: AbortSignal,
): Promise<{ readonly status: number; readonly text: string } | null> {
  try {
    const response = await fetch(new URL(path, `${server}/`), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(WITHIN_MS)]),
    });
    return { status: response.status, text: await response.text() };
  } catch {
    return null;
  }
}
