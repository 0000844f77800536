"""One way of a run through a mesh: a peer for each stage, and items under way on it. Edge.

Around `peer.dataflow.flow_origin`, which decides. A lost peer's stages go to another peer that holds them, or to where
the next placement puts them; what the others made is not computed again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from peer.dataflow.flow_origin import FlowOrigin, ItemDone, ItemFailed, OriginFlowEffect, SendGo
from peer.dataflow.flow_route import FlowRoute, FlowStage, flow_route
from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array
from peer.errors import ConnectFailed, ConnectionLost, MeshError, NoPlan, PeerError, RunFailed
from peer.limits import SESSION_BYTES
from peer.replication.mesh_view import MeshView
from peer.stage.flow_host import FlowHost
from peer.state.display_names import named
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
MOST_STALL_S: Final = 900.0  # each time twice as long, since a value may take long over a slow link
GIVE_UP_S: Final = 3600.0  # without an item that ends: the run is over
REFUSED_S: Final = 120.0  # since a peer did not open its stages first: a placement may be on its way to it
FORGIVEN_S: Final = 5.0  # after this long without stages, peers that were lost are tried again
CLOSE_WITHIN_S: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedGraph:
    """A model that the mesh offers: its name there, its id, its manifest."""

    name: str
    model: str
    manifest: GraphManifest


def stages_now(
    view: MeshView, offered: OfferedGraph, without: frozenset[str]
) -> tuple[FlowStage, ...] | None:
    """A peer for each stage as placed now, none of `without`, primaries first; None where a stage has nobody.

    Raises NoPlan when the model was withdrawn.
    """
    state = view.state
    offer = state.offers.get(offered.name)
    if offer is None or offer.model != offered.model:
        raise NoPlan(f"{offered.name} was withdrawn")
    chosen: list[FlowStage] = []
    for stage in offer.stages:
        able = (
            peer
            for peer in (stage.primary, *stage.standbys)
            if peer in state.members and state.members[peer].status not in AWAY and peer not in without
        )
        peer = next(able, None)
        if peer is None:
            return None
        chosen.append(FlowStage(stage.first, stage.stop, peer))
    return tuple(chosen) or None


class RunLane:
    """Made and opened by `RunClient`, which closes it. `changed()` is called when an item ended or the lane broke.

    `apart` are peers that it does without, for good: those of other lanes.
    """

    def __init__(
        self,
        links: PeerLinks,
        view: MeshView,
        flow: FlowHost,
        offered: OfferedGraph,
        apart: frozenset[str],
        changed: Callable[[], None],
    ) -> None:
        self._links = links
        self._view = view
        self._flow = flow
        self._offered = offered
        self._apart = apart
        self._told = changed
        self._core: FlowOrigin | None = None
        self._lost: set[str] = set()  # peers of this placement that were lost
        self._version = 0  # of the placement
        self._waiting: dict[int, asyncio.Future[dict[int, Array]]] = {}
        self._changed = asyncio.Event()
        self._ended = 0  # items, to see whether any ends
        self._keeping: asyncio.Task[None] | None = None
        self._asked: set[str] = set()  # all peers that were to open stages
        self._ends: list[Callable[[], None]] = []
        self.broken: PeerError | None = None  # why nothing runs here any more
        self.reroutes = 0

    @property
    def route(self) -> FlowRoute:
        """Over whom it runs. Raises RunFailed before it is open."""
        return self._opened().route

    @property
    def under_way(self) -> int:
        """How many items have not ended."""
        return len(self._waiting)

    async def open(self) -> None:
        """Opens it on the peers that the placement names. Raises NoPlan, RunFailed."""
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
            await self.close()
            raise
        self._keeping = asyncio.ensure_future(self._keep())

    async def run(self, inputs: dict[int, Array]) -> dict[int, Array]:
        """The outputs of one item, both by place of the value. Raises RunFailed, or `broken`."""
        if self.broken is not None:
            raise self.broken
        core = self._opened()
        item, effects = core.submit(inputs)
        future: asyncio.Future[dict[int, Array]] = asyncio.get_running_loop().create_future()
        self._waiting[item] = future
        self._perform(effects)
        try:
            return await future
        finally:
            self._waiting.pop(item, None)
            self._perform(core.drop(item))
            self._told()

    async def close(self) -> None:
        """Ends it on every peer."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        core = self._core
        if core is None:
            return
        said = RunCloseRequest(core.run.hex())

        async def tell(peer: str) -> None:
            with suppress(PeerError, TimeoutError):
                await self._links.call(peer, RUN_CLOSE, said, CLOSE_WITHIN_S)

        await asyncio.gather(*(tell(peer) for peer in sorted(self._asked)))  # of routes before, too

    # --- RunListener

    def wanted(self, peer: str, epoch: int, item: int, value: int) -> Value | None:
        """What the manifest says of an output that comes; None: it is not wanted (any more)."""
        core = self._core
        if core is None or not core.takes(peer, epoch, item, value):
            return None
        return self._offered.manifest.values[value]

    def came(self, peer: str, epoch: int, item: int, value: int, array: Array) -> None:
        """Takes an output."""
        if self._core is not None:
            self._perform(self._core.value(peer, epoch, item, value, array))

    def failed(self, peer: str, epoch: int, item: int, text: str) -> None:
        """Takes that an item cannot be computed."""
        if self._core is not None:
            self._perform(self._core.failed(peer, epoch, item, text))

    # --- inner moves

    def _opened(self) -> FlowOrigin:
        if self._core is None:
            raise RunFailed("the run is not open")
        return self._core

    def _perform(self, effects: Iterable[OriginFlowEffect]) -> None:
        for effect in effects:
            match effect:
                case SendValue():
                    self._flow.exchange.send(effect, self._offered.manifest.values[effect.value])
                case SendGo():
                    self._links.send_or_lose(effect.peer, RunGo(effect.run, effect.epoch, effect.below))
                case ItemDone():
                    self._end(effect.item, effect.outputs, None)
                case ItemFailed():
                    self._end(effect.item, {}, effect.text)

    def _end(self, item: int, outputs: Mapping[int, Array], text: str | None) -> None:
        self._ended += 1
        future = self._waiting.get(item)
        if future is None or future.done():
            return
        if text is None:
            future.set_result(dict(outputs))
        else:
            future.set_exception(RunFailed(text))

    def _gone(self, peer: str) -> None:
        core = self._core
        if core is not None and peer in core.route.peers:
            self._lost.add(peer)
            self._changed.set()

    async def _route(self) -> FlowRoute:
        """Waits for stages. Raises NoPlan or RunFailed when there are none in time; beside another lane at once."""
        try:
            async with asyncio.timeout(ROUTE_WITHIN_S):
                loop = asyncio.get_running_loop()
                since = loop.time()
                while (stages := self._stages()) is None:
                    if self._apart:
                        raise RunFailed("no other peers hold every stage")
                    self._changed.clear()
                    await self._woken(AGAIN_S)
                    if loop.time() - since > FORGIVEN_S:
                        since = loop.time()
                        self._lost.clear()  # the connection may have ended, and not the peer
        except TimeoutError:
            offer = self._view.state.offers.get(self._offered.name)
            why = "; ".join(offer.why) if offer is not None else "it was withdrawn"
            raise RunFailed(
                f"no peers hold {self._offered.name}: {why or 'those that did are gone'}"
            ) from None
        return flow_route(self._offered.manifest, stages, self._links.me)

    async def _woken(self, within_s: float) -> None:
        """Until something changes, or so long. (asyncio.wait_for of Python 3.11 may lose that it is cancelled.)"""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()

    def _stages(self) -> tuple[FlowStage, ...] | None:
        offer = self._view.state.offers.get(self._offered.name)
        if offer is not None and offer.version != self._version:
            self._version = offer.version
            self._lost.clear()
        return stages_now(self._view, self._offered, self._apart | self._lost)

    async def _open_stages(self, core: FlowOrigin) -> None:
        """Opens this epoch on all peers of a route that works, and lets the run go. Raises NoPlan, RunFailed."""
        loop = asyncio.get_running_loop()
        refused_at: float | None = None
        while True:
            self._changed.clear()
            route = core.route
            self._asked.update(route.peers)
            said = RunOpenRequest(
                core.run.hex(),
                core.epoch,
                self._offered.model,
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
            refused_at = loop.time() if refused_at is None else refused_at
            if loop.time() - refused_at > REFUSED_S:
                peer, error = wrong[0]
                why = f"{peer} does not open its stages of {self._offered.name}: {error}"
                raise RunFailed(named(why, self._view.state.members))
            await self._woken(AGAIN_S)  # a placement may be on its way to one of them
            core.reroute(await self._route())

    async def _keep(self) -> None:
        """Leads the run until it is closed. What waits ends when that is not possible any more, whatever the reason."""
        try:
            await self._lead()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._break(RunFailed("the run was broken off"))
        except TimeoutError:
            self._break(RunFailed("its peers did not answer in time"))
        except PeerError as error:
            self._break(error)
        except Exception as error:  # a defect
            log.exception("a run broke off")
            self._break(RunFailed(f"this peer failed: {type(error).__name__}"))

    async def _lead(self) -> None:
        """Leads the run around lost peers, and opens its stages again when nothing ends for long. Raises PeerError or
        TimeoutError where they are not to be had, or still nothing ends.
        """
        core, loop = self._opened(), asyncio.get_running_loop()
        seen, since, patience_s = self._ended, loop.time(), STALL_S
        ended_at = since
        while True:
            if self._stands(core.route):  # else somebody was lost while the stages were opened
                self._changed.clear()
                await self._woken(max(since + patience_s - loop.time(), AGAIN_S))
            if self._ended != seen or not core.under_way:
                seen, since, patience_s = self._ended, loop.time(), STALL_S
                ended_at = since
            if loop.time() - ended_at >= GIVE_UP_S:
                raise RunFailed(f"no item of {self._offered.name} has ended for {GIVE_UP_S:.0f} s")
            stalled = loop.time() - since >= patience_s
            if stalled:
                since, patience_s = loop.time(), min(2 * patience_s, MOST_STALL_S)
            if stalled or not self._stands(core.route):
                self.reroutes += 1
                core.reroute(await self._route())
                await self._open_stages(core)

    def _stands(self, route: FlowRoute) -> bool:
        """Whether no peer of the route was lost, and the model is still offered."""
        state = self._view.state
        offer = state.offers.get(self._offered.name)
        there = all(
            peer in state.members and state.members[peer].status not in AWAY and peer not in self._lost
            for peer in route.peers
        )
        return there and offer is not None and offer.model == self._offered.model

    def _break(self, error: PeerError) -> None:
        self.broken = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._told()
