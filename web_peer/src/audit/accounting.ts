/*
 * Says to whoever coordinates what was computed for this tab, again and again until the ledger has it (twin of
 * peer/audit/accounting.py). Edge around receipts.ts, which decides.
 */

import type { Checks } from './step_checks';
import type { Open } from '../wire/generated/frames';
import type { SessionHost } from '../origin/session_host';
import type { MeshView } from '../replication/mesh_view';
import { Receipts } from './receipts';
import { WORK } from '../wire/generated/requests';

const SAY_EVERY_MS = 3000; // a batch of what came since: the log is for other things, too
const PATIENCE_MS = 5000; // for a leader; what could not be said is said again

/** From here on this tab says what it owes, and has it checked, until `signal` aborts. */
export function keepAccounts(
  view: Pick<MeshView, 'me' | 'state' | 'askLeader'>,
  sessions: Pick<SessionHost, 'plan' | 'subscribe'>,
  checks: Checks,
  signal: AbortSignal,
): void {
  const receipts = new Receipts();
  let isSaying = false;

  const opened = (frame: Open): void => {
    const plan = sessions.plan(frame.plan);
    if (plan?.stages.length !== frame.route.length) return; // it was replaced long ago: this turn is not counted
    const warms = frame.maxTokens === 0; // an answer moves there: what was computed before is paid for
    receipts.opened(Date.now(), warms ? { ...frame, start: frame.promptTokens } : frame, plan.stages);
    checks.opened(frame, plan);
  };
  const say = async (): Promise<void> => {
    const { ledger, fairness, members } = view.state;
    const claims = receipts.due(ledger, fairness);
    if (claims.length === 0 || !members.has(view.me)) return;
    await view.askLeader(WORK, { entries: claims }, PATIENCE_MS);
  };

  const end = sessions.subscribe({
    opened,
    emitted: (session, position) => {
      receipts.token(session, position);
      checks.emitted(session, position);
    },
    ended: (session) => {
      receipts.ended(session);
      checks.ended(session);
    },
    returned: ({ session, position, tensor }) => checks.returned.note(session, position, tensor),
  });
  const saying = setInterval(() => {
    if (isSaying) return;
    isSaying = true;
    const over = (): void => {
      isSaying = false;
    };
    say().then(over, over); // what was not taken is said again
  }, SAY_EVERY_MS);
  signal.addEventListener('abort', () => {
    clearInterval(saying);
    end();
  });
}
