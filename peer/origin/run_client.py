"""A run as its origin asks it: items in, outputs back, over the peers that the mesh's placement names. Edge.

Around `peer.dataflow.flow_origin`, which decides. A lost peer's stages go to its standbys, or to where the next
placement puts them; what the others made is not computed again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Final, TypeVar

from peer.dataflow.flow_origin import FlowOrigin, ItemDone, ItemFailed, OriginFlowEffect, SendGo
from peer.dataflow.flow_route import FlowRoute, FlowStage, flow_route
from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array, checked
from peer.errors import ConnectFailed, ConnectionLost, FrameError, MeshError, NoPlan, PeerError, RunFailed
from peer.limits import SESSION_BYTES
from peer.model.fetcher import Fetcher
from peer.replication.mesh_view import MeshView
from peer.stage.flow_host import FlowHost
from peer.state.mesh_state import AWAY
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import RunGo
from peer.wire.generated.requests import RUN_CLOSE, RUN_OPEN, RunCloseRequest, RunOpenRequest
from planner.model.graph_manifest import GraphManifest, Value

OPEN_WITHIN_S: Final = 600.0  # its peers may still fetch weights
ROUTE_WITHIN_S: Final = 120.0  # for the mesh to place again what a lost peer held
AGAIN_S: Final = 0.5  # between two looks for stages
STALL_S: Final = (
    30.0  # without an item that ends: stages are opened again, which sends again what may be lost
)
CLOSE_WITHIN_S: Final = 2.0
WINDOW_BYTES: Final = 128 << 20  # of inputs under way
WINDOW_TIMES: Final = 2  # items under way for each stage, and as many more, so that every stage has work

T = TypeVar("T")
log = logging.getLogger(__name__)


class RunClient:
    """One run of the model that the mesh offers as `name`. Made by `open_run`; close it when it is over."""

    def __init__(
        self, links: PeerLinks, view: MeshView, flow: FlowHost, name: str, model: str, manifest: GraphManifest
    ) -> None:
        """`model`: the id of `manifest`."""
        self.manifest = manifest
        self._model = model
        self._links = links
        self._view = view
        self._flow = flow
        self._name = name
        self._places = {value.name: place for place, value in enumerate(manifest.values)}
        self._core: FlowOrigin | None = None
        self._lost: set[str] = set()  # peers of this placement that were lost or refused
        self._version = 0  # of the placement
        self._waiting: dict[int, asyncio.Future[dict[int, Array]]] = {}
        self._bytes = 0  # of inputs under way
        self._room = asyncio.Event()
        self._changed = asyncio.Event()
        self._ended = 0  # items, to see whether any ends
        self._broken: PeerError | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._ends: list[Callable[[], None]] = []
        self.reroutes = 0

    async def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of one item, by name. Raises WrongTensor for inputs that the model does not take, RunFailed."""
        given = self._checked(inputs)
        size = sum(array.nbytes for array in given.values())
        while self._full(size):
            self._room.clear()
            await self._room.wait()
        if self._broken is not None:
            raise self._broken
        core = self._opened()
        item, effects = core.submit(given)
        future = self._waiting[item] = asyncio.get_running_loop().create_future()
        self._bytes += size
        self._perform(effects)
        try:
            found = await future
        finally:
            self._waiting.pop(item, None)
            self._bytes -= size
            self._room.set()
            self._perform(core.drop(item))
        return {self.manifest.values[place].name: array for place, array in found.items()}

    async def map(self, items: Iterable[Mapping[str, Array]]) -> AsyncGenerator[dict[str, Array]]:
        """The outputs of each item, in order. Several are under way; leaving the loop cancels them. Raises as `run`."""
        async with aclosing(self.outcomes(items, lambda item: item)) as outcomes:
            async for _, found in outcomes:
                if not isinstance(found, dict):
                    raise found
                yield found

    async def outcomes(
        self, items: Iterable[T], read: Callable[[T], Mapping[str, Array]]
    ) -> AsyncGenerator[tuple[T, dict[str, Array] | MeshError | FrameError]]:
        """Each item with its outputs, or why it has none, in order. `read(item)`, in a thread, gives its inputs."""
        pending: deque[asyncio.Task[tuple[T, dict[str, Array] | MeshError | FrameError]]] = deque()
        source, exhausted = iter(items), False

        async def outcome(item: T) -> tuple[T, dict[str, Array] | MeshError | FrameError]:
            try:
                return item, await self.run(await asyncio.to_thread(read, item))
            except (MeshError, FrameError) as error:
                if error is self._broken:
                    raise
                return item, error

        try:
            while True:
                while not exhausted and len(pending) < self._most:
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
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._stop_listening()
        core = self._core
        if core is None:
            return
        said = RunCloseRequest(core.run.hex())

        async def tell(peer: str) -> None:
            with suppress(PeerError, TimeoutError):
                await self._links.call(peer, RUN_CLOSE, said, CLOSE_WITHIN_S)

        await asyncio.gather(*(tell(peer) for peer in core.route.peers))

    # --- RunListener

    def wanted(self, peer: str, epoch: int, item: int, value: int) -> Value | None:
        """What the manifest says of an output that comes; None: it is not wanted (any more)."""
        core = self._core
        if core is None or not core.takes(peer, epoch, item, value):
            return None
        return self.manifest.values[value]

    def came(self, peer: str, epoch: int, item: int, value: int, array: Array) -> None:
        """Takes an output."""
        if self._core is not None:
            self._perform(self._core.value(peer, epoch, item, value, array))

    def failed(self, peer: str, epoch: int, item: int, text: str) -> None:
        """Takes that an item cannot be computed."""
        if self._core is not None:
            self._perform(self._core.failed(peer, epoch, item, text))

    # --- inner moves

    async def open(self) -> None:
        """Opens the run on the peers that the placement names. Raises NoPlan, RunFailed."""
        run = os.urandom(SESSION_BYTES)
        self._ends = [
            self._flow.listen(run, self),
            self._links.on_gone(lambda peer, *_: self._gone(peer)),
            self._view.subscribe(self._changed.set),
        ]
        try:
            self._core = FlowOrigin(run, await self._route())
            await self._open_stages(self._core)
        except BaseException:
            self._stop_listening()
            raise
        self._keeping = asyncio.ensure_future(self._keep())

    def _stop_listening(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    @property
    def _most(self) -> int:
        return WINDOW_TIMES * (len(self._opened().route.stages) + 1)

    def _opened(self) -> FlowOrigin:
        if self._core is None:
            raise RunFailed("the run is not open")
        return self._core

    def _full(self, size: int) -> bool:
        waiting = len(self._waiting)
        return waiting >= self._most or (waiting > 0 and self._bytes + size > WINDOW_BYTES)

    def _checked(self, inputs: Mapping[str, Array]) -> dict[int, Array]:
        names = set(self.manifest.inputs)
        if inputs.keys() != names:
            wanted, got = (", ".join(sorted(each)) or "nothing" for each in (names, inputs))
            raise RunFailed(f"{self._name} takes {wanted}; got {got}")
        return {
            self._places[name]: checked(array, self.manifest.values[self._places[name]])
            for name, array in inputs.items()
        }

    def _perform(self, effects: Iterable[OriginFlowEffect]) -> None:
        for effect in effects:
            match effect:
                case SendValue():
                    self._flow.exchange.send(effect, self.manifest.values[effect.value])
                case SendGo():
                    self._links.send_or_lose(effect.peer, RunGo(effect.run, effect.epoch, effect.below))
                case ItemDone():
                    self._end(effect.item, effect.outputs, None)
                case ItemFailed():
                    self._end(effect.item, {}, effect.text)

    def _end(self, item: int, outputs: dict[int, Array], text: str | None) -> None:
        self._ended += 1
        future = self._waiting.get(item)
        if future is None or future.done():
            return
        if text is None:
            future.set_result(outputs)
        else:
            future.set_exception(RunFailed(text))

    def _gone(self, peer: str) -> None:
        core = self._core
        if core is not None and peer in core.route.peers:
            self._lost.add(peer)
            self._changed.set()

    def _offered(self) -> tuple[FlowStage, ...] | None:
        """The stages that can be used now; None: a stage has nobody. Raises NoPlan when the model is not offered."""
        state = self._view.state
        offer = state.offers.get(self._name)
        if offer is None or offer.model != self._model:
            raise NoPlan(f"{self._name} was withdrawn")
        if offer.version != self._version:
            self._version = offer.version
            self._lost.clear()
        chosen = []
        for stage in offer.stages:
            able = [
                peer
                for peer in (stage.primary, *stage.standbys)
                if peer in state.members and state.members[peer].status not in AWAY and peer not in self._lost
            ]
            if not able:
                return None
            chosen.append(FlowStage(stage.first, stage.stop, able[0]))
        return tuple(chosen) or None

    async def _route(self) -> FlowRoute:
        """Waits for stages. Raises NoPlan or RunFailed when there are none in time."""
        try:
            async with asyncio.timeout(ROUTE_WITHIN_S):
                while (stages := self._offered()) is None:
                    self._changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), AGAIN_S)
        except TimeoutError:
            offer = self._view.state.offers.get(self._name)
            why = "; ".join(offer.why) if offer is not None else "it was withdrawn"
            raise RunFailed(f"no peers hold {self._name}: {why or 'those that did are gone'}") from None
        return flow_route(self.manifest, stages, self._links.me)

    async def _open_stages(self, core: FlowOrigin) -> None:
        """Opens this epoch on all peers of a route that works, and lets the run go. Raises NoPlan, RunFailed."""
        while True:
            route = core.route
            said = RunOpenRequest(
                core.run.hex(),
                core.epoch,
                self._model,
                tuple((stage.first, stage.stop) for stage in route.stages),
                tuple(stage.peer for stage in route.stages),
            )
            answers = await asyncio.gather(
                *(self._links.ask(peer, RUN_OPEN, said, OPEN_WITHIN_S) for peer in route.peers),
                return_exceptions=True,
            )
            wrong = [
                (peer, answer)
                for peer, answer in zip(route.peers, answers, strict=True)
                if isinstance(answer, BaseException)
            ]
            if not wrong:
                self._perform(core.opened())
                return
            for peer, error in wrong:
                log.info("%s does not open its stages: %s", peer[:8], error)
                if isinstance(error, ConnectFailed | ConnectionLost | TimeoutError):
                    self._lost.add(peer)
                elif not isinstance(error, MeshError):
                    raise error
            await asyncio.sleep(AGAIN_S)  # a placement may be on its way to one of them
            core.reroute(await self._route())

    async def _keep(self) -> None:
        """Leads the run around lost peers, and opens its stages again when nothing ends for long."""
        core = self._opened()
        while True:
            seen, stalled = self._ended, False
            self._changed.clear()
            try:
                async with asyncio.timeout(STALL_S):
                    await self._changed.wait()
            except TimeoutError:
                stalled = self._ended == seen and core.under_way > 0
            try:
                if stalled or not self._stands(core.route):
                    self.reroutes += 1
                    core.reroute(await self._route())
                    await self._open_stages(core)
            except (PeerError, TimeoutError) as error:
                self._break(
                    error if isinstance(error, PeerError) else RunFailed("its peers did not answer in time")
                )
                return

    def _stands(self, route: FlowRoute) -> bool:
        """Whether no peer of the route was lost."""
        members = self._view.state.members
        there = all(peer in members and members[peer].status not in AWAY for peer in route.peers)
        return there and self._lost.isdisjoint(route.peers)

    def _break(self, error: PeerError) -> None:
        self._broken = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._room.set()


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
    client = RunClient(links, view, flow, name, offer.model, await flow.manifest(offer.model, fetcher))
    await client.open()
    return client
