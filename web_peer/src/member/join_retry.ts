/* When a tab that could not come in tries again by itself: for which reasons, and after how long. Pure. */

const FIRST_PAUSE_MS = 1000;
const MOST_PAUSE_MS = 30_000; // whoever is back has its tabs again within half a minute

/** Errors that pass without anybody doing anything. A link that is wrong, expired or revoked stays so. */
const PASSING: ReadonlySet<string> = new Set([
  'ServerUnreachable',
  'Stopping',
  'TooFast',
  'TooManyJoins',
  'TooSlow',
  'RoomFull',
  'ConnectFailed',
  'ConnectionLost',
  'NotLeader',
  'NotAdmitted',
  'NotNow',
]);

/** Whether the same join may succeed later, though nobody changes the link, the page or a choice. */
export function passes(error: unknown): boolean {
  return error instanceof Error && PASSING.has(error.name);
}

/** Milliseconds from the `failed`th failure in a row (from 1) to the next try: 1, 2, 4 … 30 s. */
export function retryPauseMs(failed: number): number {
  return Math.min(MOST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failed - 1, 30));
}
