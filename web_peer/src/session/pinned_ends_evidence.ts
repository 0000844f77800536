/*
 * Decides what an asker that keeps its ends shows to those who check them: what it sent, and what came back (twin of
 * peer/session/pinned_ends_evidence.py). Pure.
 *
 * A judge of a first stage gets the rows of the embedding that this stage got, a judge of a last stage the states from
 * which tokens were drawn. Neither hears a token id, a setting or a logit.
 */

import { ActivationLog } from './activation_log';
import { BadCommand } from '../errors';
import { fitsPage, rowsAnswer, spanOf } from './evidence';
import type { WitnessAnswer } from '../wire/generated/requests';
import type { Ends } from './pinned_ends';
import type { Tensor } from '../wire/tensors';

const KEPT_BYTES = 1024 * 1024; // of the newest states that came back, of one session
const ALL_BYTES = 8 * KEPT_BYTES; // of all: an answer can be checked for a while when it is over

/** States that last stages handed back, by session; of the one that got none for longest they go first. */
export class Returned {
  private readonly logs = new Map<string, ActivationLog>();

  /** `state`, float32 (1, hidden), came back for `position`. */
  note(session: string, position: number, state: Tensor): void {
    const log = this.of(session);
    this.logs.delete(session);
    this.logs.set(session, log);
    log.append(position, state);
    for (const oldest of this.logs.keys()) {
      if ([...this.logs.values()].reduce((sum, { bytes }) => sum + bytes, 0) <= ALL_BYTES) break;
      this.logs.delete(oldest);
    }
  }

  /** Those of one session. */
  of(session: string): ActivationLog {
    return this.logs.get(session) ?? new ActivationLog(KEPT_BYTES);
  }
}

/** What went to a first stage: rows are looked up when a judge asks, as all at once would hold up the page. */
export interface Sent {
  readonly count: number;
  readonly rowBytes: number;
  rows(first: number, stop: number): Tensor;
}

/** The rows of the embedding for `tokens`. */
export function sentOf(ends: Pick<Ends, 'embed' | 'width'>, tokens: readonly number[]): Sent {
  return {
    count: tokens.length,
    rowBytes: 4 * ends.width,
    rows: (first, stop) => ends.embed(Int32Array.from(tokens.slice(first, stop))),
  };
}

/** What is shown of one session while it is checked. */
export class ShownEnds {
  readonly judges = new Map<string, Set<number>>(); // by peer, which stages it was asked to check
  readonly returned: ActivationLog;
  private readonly sent: Sent;
  private readonly stages: number; // of its route

  constructor(sent: Sent, returned: ActivationLog, stages: number) {
    this.sent = sent;
    this.returned = returned;
    this.stages = stages;
  }

  /** `peer` is asked to check `stage`. */
  asked(peer: string, stage: number): void {
    this.judges.set(peer, new Set([...(this.judges.get(peer) ?? []), stage]));
  }

  /**
   * Rows [first, stop) that were "sent" to the first stage, or came "back" of the last one; null for what is there no
   * more. Raises BadCommand for anything else, and for who was not asked to check that stage.
   */
  shown(peer: string, side: string, first: number, stop: number): WitnessAnswer {
    const stage = side === 'sent' ? 0 : side === 'back' ? this.stages - 1 : null;
    if (stage === null) {
      throw new BadCommand('witness: expected no question for the tokens of an answer that keeps them');
    }
    if (this.judges.get(peer)?.has(stage) !== true) {
      throw new BadCommand('witness: expected a peer that was asked to check this stage');
    }
    if (side === 'back') {
      return rowsAnswer(spanOf(this.returned, first, stop));
    }
    const { sent } = this;
    const isThere = stop <= sent.count && fitsPage((stop - first) * sent.rowBytes);
    return rowsAnswer(isThere ? sent.rows(first, stop).data : null);
  }
}
