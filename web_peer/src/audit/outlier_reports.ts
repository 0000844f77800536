/*
 * Looks at how long the rows are that come to this tab's stages, and tells their asker of odd ones (twin of
 * peer/audit/outlier_reports.py).
 *
 * Edge around norm_envelopes.ts. Who asked has the stage before checked at once; that a row is odd convicts nobody.
 */

import { PeerError } from '../errors';
import type { RunStep } from '../session/effects';
import { decodeEnvelopes, type Envelopes } from './norm_envelopes';
import type { Manifest } from '../planner/manifest';
import type { ModelChosen } from '../state/generated/commands';
import type { StageHost } from '../stage/stage_host';
import type { PeerLinks } from '../transport/peer_links';
import { ODD } from '../wire/generated/requests';

const AGAIN_MS = 10_000; // between two words about one asker's sessions
const TELL_S = 5;

/** Where the recorded lengths of a model come from; null: nobody recorded any, or does not answer. */
export type Recorded = (model: string, signal: AbortSignal) => Promise<Uint8Array | null>;

type Links = Pick<PeerLinks, 'call'>;
type Stage = Pick<StageHost, 'onStep'> & { readonly core: Pick<StageHost['core'], 'asker'> };

interface Parts {
  readonly links: Links;
  readonly view: { readonly state: { readonly model: ModelChosen | null } };
  readonly stage: Stage;
}

/** From here on what `stage` is to compute is looked at, if lengths of the model were recorded. */
export async function looksAtRows(
  { links, view, stage }: Parts,
  manifest: Manifest,
  recorded: Recorded,
  signal: AbortSignal,
): Promise<void> {
  const { model } = view.state;
  const encoded = model === null ? null : await recorded(model.model, signal);
  const envelopes = encoded === null ? null : decodeEnvelopes(encoded, manifest.units.length);
  if (envelopes !== null) stage.onStep(looking(links, stage, envelopes, manifest.hidden));
}

function looking(
  links: Links,
  { core }: Stage,
  envelopes: Envelopes,
  width: number,
): (step: RunStep) => void {
  const toldMs = new Map<string, number>(); // by asker: when it may hear again
  return ({ hidden, run, session, position }) => {
    const odd = hidden === null ? null : envelopes.odd(run.first, hidden, width);
    const asker = odd === null ? null : core.asker(session);
    if (odd === null || asker === null || Date.now() < (toldMs.get(asker) ?? 0)) return;
    toldMs.set(asker, Date.now() + AGAIN_MS);
    void tell(links, asker, session, position + odd);
  };
}

async function tell(links: Links, asker: string, session: string, position: number): Promise<void> {
  try {
    await links.call(asker, ODD, { session, position }, TELL_S);
  } catch (error) {
    if (!(error instanceof PeerError)) throw error; // an asker that does not hear of it has others to ask
  }
}
