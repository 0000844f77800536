/*
 * Asks the planning service of the mesh's server for a plan. Edge.
 *
 * Whoever leads and has no planner of its own does so. When the service is away or busy nobody plans anew; what serves,
 * serves on.
 */

import { BadCommand } from '../errors';
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
  const answer = await posted(server, request, signal);
  if (answer === null) return null;
  const { status, text } = answer;
  if (status === REFUSED && request.serving !== null) {
    return askPlanner(server, { ...request, serving: null }, signal); // a service of before knows no such field
  }
  if (status === REFUSED) throw new BadCommand(`the planner refused: ${text.slice(0, MAX_REASON).trim()}`);
  if (status < 200 || status > 299) return null;
  if (text.length > MAX_ANSWER_CHARS) throw new BadCommand('plan: expected a shorter answer');
  return decodeAnswer(text, request);
}

async function posted(
  server: string,
  request: PlanRequest,
  signal: AbortSignal,
): Promise<{ readonly status: number; readonly text: string } | null> {
  try {
    const response = await fetch(new URL('plan', `${server}/`), {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: encodeRequest(request),
      signal: AbortSignal.any([signal, AbortSignal.timeout(WITHIN_MS)]),
    });
    return { status: response.status, text: await response.text() };
  } catch {
    return null;
  }
}
