/*
 * Which of this peer's stages answers a request that names a session: those of the model whose session it is (twin of
 * peer/stage/session_requests.py). Edge.
 */

import type { PeerLinks } from '../transport/peer_links';
import type { SessionId } from '../wire/generated/frames';
import { KV_COPY, WAIT } from '../wire/generated/requests';
import type { StageHost } from './stage_host';

type Host = Pick<StageHost, 'lendCache'> & { readonly queue: Pick<StageHost['queue'], 'answer'> };

/** Answers `wait` and `kv_copy` from here on. `hostOf(session)`: the stages of its model. */
export function answerOfSessions(links: Pick<PeerLinks, 'on'>, hostOf: (session: SessionId) => Host): void {
  links.on(WAIT, (peer, said) => hostOf(said.session).queue.answer(peer, said));
  links.on(KV_COPY, (peer, said) => hostOf(said.session).lendCache(peer, said));
}
