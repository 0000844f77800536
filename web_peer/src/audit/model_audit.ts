/*
 * What is checked, counted and tried of one model that answers in words: the mesh's own, or a further one (twin of
 * peer/audit/model_audit.py). Edge.
 */

import type { LocalModel } from '../model/local_model';
import type { SessionHost } from '../origin/session_host';
import type { ModelView } from '../replication/decoder_view';
import type { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import { keepAccounts } from './accounting';
import { Canaries } from './canaries';
import { Checks } from './step_checks';

/** The parts of a tab that serve the model. */
interface Audited {
  readonly view: ModelView;
  readonly model: LocalModel;
  readonly stage: StageHost;
  readonly sessions: SessionHost;
}

/** From here on, until `signal` aborts. */
export class ModelAudit {
  readonly checks: Checks;
  readonly canaries: Canaries;

  /** `newSession()`: the id of a session of this model that nobody has; `provider()`: what this tab computes with. */
  constructor(
    links: PeerLinks,
    { view, model, stage, sessions }: Audited,
    newSession: () => string,
    provider: () => string,
    signal: AbortSignal,
  ) {
    this.checks = new Checks({ links, view, model, stage, sessions, provider });
    keepAccounts(view, sessions, this.checks, signal);
    this.canaries = new Canaries({ links, view, model, sessions, newSession }, this.checks, signal);
    this.canaries.start();
  }
}
