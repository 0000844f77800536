"""Which of this peer's stages answers a request that names a session: those of the model whose session it is. Edge."""

from __future__ import annotations

from collections.abc import Callable

from peer.stage.stage_host import StageHost
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import (
    KV_COPY,
    KV_DIGEST,
    WAIT,
    KvCopyAnswer,
    KvCopyRequest,
    KvDigestAnswer,
    KvDigestRequest,
    WaitAnswer,
    WaitRequest,
)


def answer_of_sessions(links: PeerLinks, host_of: Callable[[bytes], StageHost]) -> None:
    """Answers `wait`, `kv_digest` and `kv_copy` from here on. `host_of(session)`: the stages of its model."""

    async def wait(peer: str, said: WaitRequest) -> WaitAnswer:
        return await host_of(bytes.fromhex(said.session)).queue.answer(peer, said)

    async def digest(peer: str, said: KvDigestRequest) -> KvDigestAnswer:
        return await host_of(bytes.fromhex(said.session)).digest(peer, said)

    async def copy(peer: str, said: KvCopyRequest) -> KvCopyAnswer:
        return await host_of(bytes.fromhex(said.session)).lend_cache(peer, said)

    links.on(WAIT, wait)
    links.on(KV_DIGEST, digest)
    links.on(KV_COPY, copy)
