/*
 * Says to whoever coordinates what was computed for this tab, again and again until the ledger has it (twin of
 * peer/audit/accounting.py). Edge around receipts.ts, which decides.
 */

import type { Checks } from './step_checks';
import type { Open } from '../wire/frame_codec';
import { countedMilli, mayAsk } from '../state/fairness';
import type { Node } from '../member/frame_router';
import { bodyOfClaims, Receipts } from './receipts';

const SAY_EVERY_MS = 3000; // a batch of what came since: the log is for other things, too
const PATIENCE_MS = 5000; // for a leader; what could not be said is said again

/** From here on this tab says what it owes, has it checked, until `signal` aborts, and refuses who may not ask. */
export function keepAccounts(node: Node, checks: Checks, signal: AbortSignal): void {
  const receipts = new Receipts();
  let isSaying = false;

  const opened = (frame: Open): void => {
    const plan = node.askings.plan(frame.plan);
    if (plan?.stages.length !== frame.route.length) return; // it was replaced long ago: this turn is not counted
    const warms = frame.maxTokens === 0; // an answer moves there: what was computed before is paid for
    receipts.opened(Date.now(), warms ? { ...frame, start: frame.promptTokens } : frame, plan.stages);
    checks.opened(frame, plan);
  };
  const say = async (): Promise<void> => {
    const { ledger, fairness, members } = node.state;
    const claims = receipts.due(ledger, fairness);
    if (claims.length === 0 || !members.has(node.me)) return;
    await node.line.ask('work', bodyOfClaims(claims), PATIENCE_MS);
  };

  node.askings.watcher = {
    opened,
    emitted: (session, position) => {
      receipts.token(session, position);
      checks.emitted(session, position);
    },
    over: (session) => {
      receipts.ended(session);
      checks.ended(session);
    },
    returned: ({ session, position, tensor }) => checks.returned.note(session, position, tensor),
  };
  node.core.mayAsk = (peer) => mayAsk(node.state.fairness, node.state.ledger, peer);
  node.core.admitting.owedMilli = (peer) => countedMilli(node.state.fairness, node.state.ledger, peer);
  const saying = setInterval(() => {
    if (isSaying) return;
    isSaying = true;
    const over = (): void => {
      isSaying = false;
    };
    say().then(over, over); // what was not taken is said again
  }, SAY_EVERY_MS);
  signal.addEventListener('abort', () => clearInterval(saying));
}
