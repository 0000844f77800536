"""What this peer caches of sessions is given to peers that their answers move to, and taken from others.

Edge. A copy goes to no one but a member that the plan gives those units anyway; a peer that cannot get one computes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from peer.errors import BadCommand, CannotServe, PeerError
from peer.model.local_model import LocalModel
from peer.model.piece_exchange import OPEN_LENT
from peer.replication.decoder_view import ModelView
from peer.session.effects import StageEffect
from peer.session.evidence import Floats
from peer.session.kv_transfer_rules import (
    Source,
    Wish,
    copy_shapes,
    pairs_of,
    places_taken,
    remembered,
    sources_of,
    told_of,
    wish_of,
    wish_request,
)
from peer.session.seat import Run_, Seat
from peer.session.stage import StageCore
from peer.stage.unit_host import Serving
from peer.state.generated.commands import PlanRecord
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import Open
from peer.wire.generated.requests import KV_COPY, KvCopyAnswer, KvCopyRequest

COPY_WITHIN_S: Final = 20.0
AT_ONCE: Final = (
    2  # answers whose caches are copied here at the same time: one on the way, one being asked for
)

log = logging.getLogger(__name__)


class Caches:
    """The caches of one peer that computes. `core` knows its sessions, `perform` takes what the core decides."""

    def __init__(
        self,
        links: PeerLinks,
        view: ModelView,
        model: LocalModel,
        core: StageCore,
        units: Serving,
        perform: Callable[[list[StageEffect]], None],
    ) -> None:
        assert model.manifest is not None
        self._manifest = model.manifest
        self._links = links
        self._view = view
        self._model = model
        self._core = core
        self._units = units
        self._perform = perform
        self._plans: list[PlanRecord] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._giving = asyncio.Lock()
        view.subscribe(self._remember)

    def _remember(self) -> None:
        """Remembers the plans that answers go over."""
        self._plans = remembered(self._plans, self._view.state)

    async def close(self) -> None:
        """Ends every copy under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def lend(self, peer: str, said: KvCopyRequest) -> KvCopyAnswer:
        """The answer to `kv_copy`. Raises BadCommand."""
        wish, pieces = wish_of(said, peer, self._view.state), self._model.pieces
        async with self._giving:  # whoever asks for many at once has them made one after the other
            found = await self._here(wish.session, "", wish.run, wish.units)
            if found is None or pieces is None:
                raise BadCommand("kv_copy: expected a session that is computed here")
            have, arrays = found
            if not arrays:
                return KvCopyAnswer(have, "")
            names = self._names(wish.units)
            data, sha256 = await asyncio.to_thread(lambda: packed(arrays[name] for name in names))
            pieces.lend(sha256, data, self._units.memory_bytes()["kv"])  # never more than is cached here
        asyncio.get_running_loop().call_later(
            COPY_WITHIN_S, pieces.forget, sha256
        )  # whoever asked has it, or gave up
        return KvCopyAnswer(have, sha256.hex())

    def bring(self, seat: Seat) -> bool:
        """Begins to copy what others cache of the answer that moves to `seat`; False when nobody knows who does."""
        opening = seat.opening
        plan = next((plan for plan in self._plans if plan.version == opening.before), None)
        sources = sources_of(plan, opening.shadows, seat.run)
        if sources is None:
            return False
        task = asyncio.ensure_future(self._bring(seat, sources))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _bring(self, seat: Seat, sources: list[Source]) -> None:
        key, count = seat.key, 0
        try:
            async with self._turns:  # its turn may be late, where others' caches take long
                async with asyncio.timeout(COPY_WITHIN_S):
                    count = await self._take(seat, sources)
        except (PeerError, TimeoutError) as error:
            log.info("an answer that moves here is computed again: %s", error or "copying took too long")
        except Exception:
            log.exception("copying a cache failed")
        self._perform(self._core.brought(time.monotonic(), key, count))

    async def _take(self, warming: Seat, sources: list[Source]) -> int:
        """How many positions of the session are cached by its units now. Raises PeerError."""
        key, run, opening = warming.key, warming.run, warming.opening
        session = opening.session
        parts = await asyncio.gather(*(self._part(opening, source) for source in sources))
        copies = [(source.units, have) for source, (have, _) in zip(sources, parts, strict=True)]
        taken, seat = places_taken(self._manifest, copies), self._core.seat_at(*key)
        if taken is None or seat is None or not seat.held_back:
            return 0  # nothing, or the answer ended meanwhile: nobody would free what is put
        count, places = taken
        arrays = {name: array[:, places[name]] for _, part in parts for name, array in part.items()}
        return count if await self._units.put(run, session, count, arrays) else 0

    async def _part(self, opening: Open, source: Source) -> tuple[int, Mapping[str, Floats]]:
        """(positions, arrays) that it caches."""
        peer, units = source.peer, source.units
        if peer == self._links.me:
            found = await self._here(opening.session, opening.origin, source.run, units)
            if found is None:
                raise CannotServe("this peer no longer computes it")
            return found
        wish = Wish(opening.session, source.run, units)
        told = told_of(await self._links.call(peer, KV_COPY, wish_request(wish)), opening.prompt_tokens)
        have = told.have
        shapes = copy_shapes(self._manifest, units, have)
        size = 4 * sum(math.prod(shape) for shape in shapes.values())
        if not have or not shapes:
            return have, {}
        if self._model.pieces is None:
            raise CannotServe("this peer cannot fetch yet")
        data = await self._model.pieces.fetch(peer, told.sha256, size, OPEN_LENT)
        values = await asyncio.to_thread(unpacked, data, told.sha256)
        arrays: dict[str, Floats] = {}
        for name, shape in shapes.items():
            arrays[name], values = values[: math.prod(shape)].reshape(shape), values[math.prod(shape) :]
        return have, arrays

    async def _here(
        self, session: bytes, origin: str, run: Run_, units: Run_
    ) -> tuple[int, dict[str, Floats]] | None:
        """What units `run` cache of `units` for the session that the answer of `session` uses now."""
        found = self._core.same_answer(session, run, origin)
        if found is None:
            return None
        now, count = found
        names = self._names(units)
        if not count or not names:
            return count, {}
        arrays = await self._units.copied(run, now, count, names)
        return None if arrays is None else (count, arrays)

    def _names(self, units: Run_) -> list[str]:
        """The key and value arrays that `units` keep, in order."""
        return [name for pair in pairs_of(self._manifest, units) for name in pair.names]


def packed(arrays: Iterable[Floats]) -> tuple[bytes, bytes]:
    """The bytes that go over, and their SHA-256."""
    data = b"".join(array.astype("<f4", copy=False).tobytes() for array in arrays)
    return data, hashlib.sha256(data).digest()


def unpacked(data: bytes, sha256: bytes) -> Floats:
    """Raises CannotServe."""
    if hashlib.sha256(data).digest() != sha256:
        raise CannotServe("it gave other bytes than it named")
    values = np.frombuffer(data, np.dtype("<f4"))
    if not np.isfinite(values).all():  # whoever computes with it would be taken for broken
        raise CannotServe("it gave numbers that are not finite")
    return values
