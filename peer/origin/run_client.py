"""A run as its origin asks it: items in, outputs back, over the peers that the mesh's placement names. Edge.

One lane of peers computes; where a stream of items fills it and other peers hold all stages as standbys, items go over
them as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Final, TypeVar

from peer.dataflow.value_codec import Array, checked
from peer.errors import FrameError, MeshError, NoPlan, PeerError, RunFailed
from peer.model.fetcher import Fetcher
from peer.origin.run_lane import OfferedGraph, RunLane, stages_now
from peer.replication.mesh_view import MeshView
from peer.stage.flow_host import FlowHost
from peer.transport.peer_links import PeerLinks
from planner.model.graph_manifest import GraphManifest

WINDOW_BYTES: Final = 128 << 20  # of inputs under way
WINDOW_TIMES: Final = 2  # items under way for each stage, and as many more, so that every stage has work
MAX_LANES: Final = 8

T = TypeVar("T")
log = logging.getLogger(__name__)


class RunClient:
    """One run of a model that the mesh offers. Made by `open_run`; close it when it is over."""

    def __init__(self, links: PeerLinks, view: MeshView, flow: FlowHost, offered: OfferedGraph) -> None:
        self._links = links
        self._view = view
        self._flow = flow
        self._offered = offered
        self._places = {value.name: place for place, value in enumerate(self.manifest.values)}
        self._lanes: list[RunLane] = []
        self._widening: asyncio.Task[None] | None = None
        self._widened = 0  # the placement for which another lane was looked for last
        self._under_way = 0  # items
        self._bytes = 0  # of their inputs
        self._room = asyncio.Event()

    @property
    def manifest(self) -> GraphManifest:
        """That of the model."""
        return self._offered.manifest

    @property
    def lanes(self) -> tuple[tuple[str, ...], ...]:
        """The peers of each lane, in the order of their first stages."""
        return tuple(lane.route.peers for lane in self._lanes)

    @property
    def reroutes(self) -> int:
        """How often a lane was led around a peer, or opened again."""
        return sum(lane.reroutes for lane in self._lanes)

    async def open(self) -> None:
        """Opens the first lane. Raises NoPlan, RunFailed."""
        self._lanes = [await self._lane(frozenset())]

    async def run(self, inputs: Mapping[str, Array], timeout_s: float | None = None) -> dict[str, Array]:
        """The outputs of one item, by name. Raises WrongTensor for inputs that the model does not take, RunFailed, and
        TimeoutError when they are not there in time.
        """
        async with asyncio.timeout(timeout_s):
            return await self._run(inputs)

    async def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = self._checked(inputs)
        size = sum(array.nbytes for array in given.values())
        while self._full(size):
            self._widen()
            self._room.clear()
            await self._room.wait()
        self._under_way += 1
        self._bytes += size
        try:
            found = await self._over_a_lane(given)
        finally:
            self._under_way -= 1
            self._bytes -= size
            self._room.set()
        return {self.manifest.values[place].name: array for place, array in found.items()}

    async def map(
        self, items: Iterable[Mapping[str, Array]], timeout_s: float | None = None
    ) -> AsyncGenerator[dict[str, Array]]:
        """The outputs of each item, in order. Several are under way; leaving the loop cancels them. Raises as `run`;
        `timeout_s` is of each item.
        """
        async with aclosing(self.outcomes(items, lambda item: item, timeout_s)) as outcomes:
            async for _, found in outcomes:
                if not isinstance(found, dict):
                    raise found
                yield found

    async def outcomes(
        self,
        items: Iterable[T],
        read: Callable[[T], Mapping[str, Array]],
        timeout_s: float | None = None,
    ) -> AsyncGenerator[tuple[T, dict[str, Array] | MeshError | FrameError]]:
        """Each item with its outputs, or why it has none, in order. `read(item)`, in a thread, gives its inputs."""
        pending: deque[asyncio.Task[tuple[T, dict[str, Array] | MeshError | FrameError]]] = deque()
        source, exhausted = iter(items), False

        async def outcome(item: T) -> tuple[T, dict[str, Array] | MeshError | FrameError]:
            try:
                return item, await self.run(await asyncio.to_thread(read, item), timeout_s)
            except (MeshError, FrameError) as error:
                if error is self._lanes[0].broken:
                    raise
                return item, error

        try:
            while True:
                while (
                    not exhausted and len(pending) <= self._most
                ):  # one waits, so that it is seen that all are full
                    try:
                        item = await asyncio.to_thread(_following, source)
                    except _Over:
                        exhausted = True
                    else:
                        pending.append(asyncio.ensure_future(outcome(item)))
                if not pending:
                    return
                yield await pending.popleft()
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def close(self) -> None:
        """Ends the run on every peer."""
        if self._widening is not None:
            self._widening.cancel()
            await asyncio.gather(self._widening, return_exceptions=True)
        await asyncio.gather(*(lane.close() for lane in self._lanes))

    # --- inner moves

    @property
    def _most(self) -> int:
        return sum(WINDOW_TIMES * (len(lane.route.stages) + 1) for lane in self._lanes)

    def _full(self, size: int) -> bool:
        few = self._under_way < self._most
        return not few or (self._under_way > 0 and self._bytes + size > WINDOW_BYTES)

    def _checked(self, inputs: Mapping[str, Array]) -> dict[int, Array]:
        names = set(self.manifest.inputs)
        if inputs.keys() != names:
            wanted, got = (", ".join(sorted(each)) or "nothing" for each in (names, inputs))
            raise RunFailed(f"{self._offered.name} takes {wanted}; got {got}")
        return {
            self._places[name]: checked(array, self.manifest.values[self._places[name]])
            for name, array in inputs.items()
        }

    async def _over_a_lane(self, given: dict[int, Array]) -> dict[int, Array]:
        """Over that with the fewest items; over another one when it breaks, but the first."""
        while True:
            lane = min(self._lanes, key=lambda each: each.under_way / len(each.route.stages))
            try:
                return await lane.run(given)
            except PeerError as error:
                if error is not lane.broken or lane is self._lanes[0]:
                    raise
                if lane in self._lanes:
                    self._lanes.remove(lane)
                    await lane.close()

    async def _lane(self, apart: frozenset[str]) -> RunLane:
        lane = RunLane(self._links, self._view, self._flow, self._offered, apart, self._room.set)
        await lane.open()
        return lane

    def _widen(self) -> None:
        """Looks for another lane, once a placement and lane."""
        offer = self._view.state.offers.get(self._offered.name)
        looked = (offer.version if offer is not None else 0) * MAX_LANES + len(self._lanes)
        if self._widened == looked or self._widening is not None or len(self._lanes) >= MAX_LANES:
            return
        self._widened = looked
        self._widening = asyncio.ensure_future(self._open_another())

    async def _open_another(self) -> None:
        busy = frozenset(peer for lane in self._lanes for peer in lane.route.peers)
        try:
            if stages_now(self._view, self._offered, busy) is not None:
                self._lanes.append(await self._lane(busy))
                self._room.set()
        except PeerError as error:
            log.info("no other peers take a part of the stream: %s", error)
        finally:
            self._widening = None


class _Over(Exception):
    """There is no further item: StopIteration cannot leave a thread."""


def _following(source: Iterator[T]) -> T:
    try:
        return next(source)
    except StopIteration:
        raise _Over from None


async def open_run(
    links: PeerLinks, view: MeshView, flow: FlowHost, fetcher: Fetcher, name: str
) -> RunClient:
    """A run of the model that the mesh offers as `name`. Raises NoPlan, RunFailed, CannotServe."""
    offer = view.state.offers.get(name)
    if offer is None:
        known = ", ".join(view.state.offers) or "none"
        raise NoPlan(f"this mesh offers no model {name}; it offers {known}")
    manifest = await flow.manifest(offer.model, fetcher)
    client = RunClient(links, view, flow, OfferedGraph(name, offer.model, manifest))
    await client.open()
    return client
