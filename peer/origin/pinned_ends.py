"""Embedding and head of the model at an asker that keeps them: no other peer handles its token ids (`--pin-ends`).

Edge. `peer.session.pinned_ends` decides what travels then. The head runs on a thread of its own, one token after the
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import numpy as np

from peer.errors import CannotServe, SamplingError
from peer.model.fetcher import Fetcher
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution
from peer.session.evidence import Floats
from peer.session.pinned_ends import Drawing
from peer.wire.generated.frames import Token
from peer.wire.tensors import Tensor, tensor_of
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import BlobRef, Store

CONTEXT: Final = 1  # neither embedding nor head looks at other positions

log = logging.getLogger(__name__)


class OwnEnds:
    """The first and the last unit of the model, loaded here. `size`: bytes of their weights, of which `fetched_bytes`
    were fetched for this run; `width`: of a state.
    """

    def __init__(
        self, embedding: Execution, head: Execution, width: int, size: int = 0, fetched_bytes: int = 0
    ) -> None:
        self.width = width
        self.bytes = size
        self.fetched_bytes = fetched_bytes
        self.drawn = 0  # tokens
        self._embedding = embedding
        self._head = head
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="shoal-head")

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """float32 (tokens, hidden)."""
        return tensor_of(self._embedding.embed(np.asarray(tokens, dtype=np.int64)))

    def draw(self, drawing: Drawing, state: Floats, tell: Callable[[Token | None], None]) -> None:
        """Tells, on the loop, the token that follows from `state` (1, hidden); None where there is none."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            token = None
            try:
                token = drawing.token(self._head.head(state)[0])
                self.drawn += 1
            except (SamplingError, ValueError, RuntimeError) as error:
                log.error("no token was drawn: %s", type(error).__name__)
            with suppress(RuntimeError):  # the loop closed meanwhile
                loop.call_soon_threadsafe(tell, token)

        with suppress(RuntimeError):  # closed
            self._worker.submit(work)

    async def close(self) -> None:
        """Gives the memory back."""
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)
        self._embedding.close()
        self._head.close()


def ends_of(manifest: Manifest) -> tuple[BlobRef, ...]:
    """What has to be fetched for the ends, each blob once."""
    last = len(manifest.units)
    return tuple(dict.fromkeys((*manifest.blobs(0, 1), *manifest.blobs(last - 1, last))))


async def own_ends(manifest: Manifest, store: Store, fetcher: Fetcher, threads: int) -> OwnEnds:
    """Fetches and loads them. Raises CannotServe for a model that does not begin and end with token ids."""
    if manifest.units[0].kind != "embed" or manifest.units[-1].kind != "head":
        raise CannotServe(
            "this model has no embedding and head that an asker could keep: ask without --pin-ends"
        )
    before: list[int] = []
    await fetcher.blobs(ends_of(manifest), lambda here, _: before.append(here))
    whole = sum(ref.bytes for ref in ends_of(manifest))
    embedding, head = await asyncio.to_thread(_loaded, manifest, store, threads)
    return OwnEnds(embedding, head, manifest.hidden, whole, whole - before[0])


def _loaded(manifest: Manifest, store: Store, threads: int) -> tuple[Execution, Execution]:
    last, form = len(manifest.units), proven(store, manifest, "cpu", threads).form
    made: list[Execution] = []
    for first in (0, last - 1):
        shard = make_shard(manifest, store, first, first + 1, exact=form.plain)
        made.append(Execution(shard, threads=threads, context=CONTEXT, form=form))
    return made[0], made[1]
