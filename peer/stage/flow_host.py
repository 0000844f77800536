"""This peer's stages of models that are graphs of units: what `peer.dataflow.flow_stage` decides is done here. Edge.

Every member has one, since values come to whoever asks, too. It computes for others from `lend` on: it holds the units
that placements give it, and one thread computes, the origins' items in turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from peer.dataflow.flow_route import FlowStage, flow_route
from peer.dataflow.flow_stage import Compute, FlowEffect, FlowStages, Forgotten, SendValue, TellFailed
from peer.dataflow.value_codec import Array, checked
from peer.errors import BadCommand, CannotServe, PeerError
from peer.limits import MAX_TEXT_BYTES
from peer.model.fetcher import Fetcher
from peer.replication.mesh_view import MeshView
from peer.runtime.graph_runtime import GraphRuntime
from peer.transport.peer_links import PeerLinks
from peer.transport.shared_memory import Inbox
from peer.transport.value_exchange import ValueExchange
from peer.wire.generated.frames import RunGo, RunItemFailed, RunValue
from peer.wire.generated.requests import RUN_CLOSE, RUN_OPEN, RunCloseRequest, RunOpenRequest
from planner.errors import PlannerError
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, Value
from planner.model.same_units import same_units
from planner.model.store import Store

KEPT_BYTES: Final = 512 << 20  # of values of all runs, those that this peer asks included
LOAD_AGAIN_S: Final = 5.0  # after units that a placement gives this peer did not load

log = logging.getLogger(__name__)

UnitRun = tuple[str, int, int]  # id of a model, units [first, stop)


class RunListener(Protocol):
    """Who asks a run on this peer."""

    def wanted(self, peer: str, epoch: int, item: int, value: int) -> Value | None:
        """What the manifest says of an output that comes; None: it is not wanted (any more)."""

    def came(self, peer: str, epoch: int, item: int, value: int, array: Array) -> None:
        """Takes an output."""

    def failed(self, peer: str, epoch: int, item: int, text: str) -> None:
        """Takes that an item cannot be computed."""


@dataclass(frozen=True, slots=True)
class _Lent:
    fetcher: Fetcher
    threads: int


class FlowHost:
    """`store` has the models' blobs."""

    def __init__(self, links: PeerLinks, view: MeshView, store: Store) -> None:
        self._links = links
        self._view = view
        self._store = store
        self._lent: _Lent | None = None
        self.core = FlowStages(links.me, KEPT_BYTES)
        self.exchange = ValueExchange(links, self, KEPT_BYTES, Inbox(links.me))
        self._asked: dict[bytes, RunListener] = {}  # runs that this peer asks
        self._manifests: dict[str, GraphManifest] = {}
        self._of_run: dict[bytes, str] = {}  # which model
        self._loaded: dict[UnitRun, asyncio.Future[GraphRuntime]] = {}
        self._runtimes = WeakValueDictionary[str, GraphRuntime]()  # units that are equal are loaded once
        self._making = asyncio.Lock()
        self._turns: dict[str, deque[Compute]] = {}  # what waits to be computed, by origin
        self._computing: asyncio.Task[None] | None = None
        self._closing = False
        self._worker = ThreadPoolExecutor(1, "runs")
        self._following: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        links.on(RUN_OPEN, self._open)
        links.on(RUN_CLOSE, self._close_run)
        links.on_connected(self.core.back)

    def lend(self, fetcher: Fetcher, threads: int) -> None:
        """Computes for others from here on. Raises ValueError when it does already."""
        if self._lent is not None:
            raise ValueError("this peer computes runs already")
        self._lent = _Lent(fetcher, threads)
        self._following = asyncio.ensure_future(self._follow())
        self._view.subscribe(self._changed.set)
        self._changed.set()

    @property
    def weight_bytes(self) -> int:
        """What the weights of the units occupy that are loaded here, those of equal units once."""
        loaded = (future for future in self._loaded.values() if future.done() and not future.cancelled())
        runtimes = {id(future.result()): future.result() for future in loaded if future.exception() is None}
        return sum(runtime.weight_bytes for runtime in runtimes.values())

    @property
    def units(self) -> tuple[UnitRun, ...]:
        """The units that are loaded or load, sorted."""
        return tuple(sorted(self._loaded))

    # --- runs that this peer asks

    async def manifest(self, model: str, fetcher: Fetcher) -> GraphManifest:
        """The manifest of a model, remembered. Raises CannotServe or CorruptStore."""
        if model not in self._manifests:
            self._manifests[model] = await fetcher.graph_manifest(model)
        return self._manifests[model]

    def listen(self, run: bytes, listener: RunListener) -> Callable[[], None]:
        """Hands what comes of that run to `listener`, until what is returned is called."""
        self._asked[run] = listener

        def end() -> None:
            self._asked.pop(run, None)
            if run not in self._of_run:
                self.exchange.forget(run)

        return end

    # --- frames

    def value(self, peer: str, frame: RunValue) -> None:
        """Takes a part of a value. Raises BadCommand or WrongTensor."""
        self.exchange.frame(peer, frame)

    def go(self, peer: str, frame: RunGo) -> None:
        """Takes that a run goes, and which of its items are done."""
        self.perform(self.core.go(peer, frame.run, frame.epoch, frame.below))

    def failed(self, peer: str, frame: RunItemFailed) -> None:
        """Takes that an item of a run that this peer asks cannot be computed."""
        listener = self._asked.get(frame.run)
        if listener is not None:
            listener.failed(peer, frame.epoch, frame.item, frame.message)

    def gone(self, peer: str) -> None:
        """Takes that the connection to a peer ended."""
        self.exchange.gone(peer)
        self.core.gone(time.monotonic(), peer)

    def tick(self, now: float) -> None:
        """Looks at deadlines. `now`: monotonic seconds."""
        self.perform(self.core.tick(now))

    # --- ValueTaker

    def wanted(self, peer: str, run: bytes, epoch: int, item: int, value: int) -> Value | None:
        """What a value is that comes; None: nobody here wants it."""
        listener = self._asked.get(run)
        found = listener.wanted(peer, epoch, item, value) if listener is not None else None
        if found is None and self.core.takes(peer, run, epoch, item, value):
            found = self._manifests[self._of_run[run]].values[value]
        return found

    def unable(self, peer: str, run: bytes, epoch: int, item: int, text: str) -> None:
        """Takes that a value cannot be had here: its item fails for whoever asks."""
        listener = self._asked.get(run)
        if listener is not None:
            listener.failed(peer, epoch, item, text)
        self.perform(self.core.unable(run, epoch, item, text))

    def came(self, peer: str, run: bytes, epoch: int, item: int, value: int, array: Array) -> None:
        """Takes a whole value, for stages here, for whoever asks here, or for both."""
        listener = self._asked.get(run)
        if listener is not None:
            listener.came(peer, epoch, item, value, array)
        self.perform(self.core.value(peer, run, epoch, item, value, array))

    # --- effects

    def perform(self, effects: Sequence[FlowEffect]) -> None:
        """Does what the stages decided; nothing any more once this peer leaves: its origins go on with others."""
        if self._closing:
            return
        for effect in effects:
            match effect:
                case SendValue():
                    self.exchange.send(effect, self._manifests[self._of_run[effect.run]].values[effect.value])
                case Compute():
                    self._turns.setdefault(effect.origin, deque()).append(effect)
                case TellFailed():
                    self._tell(effect)
                case Forgotten():
                    self._forget(effect.run)
        if self._turns and self._computing is None:
            self._computing = asyncio.ensure_future(self._compute())

    def _tell(self, effect: TellFailed) -> None:
        text = effect.text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
        self._links.send_or_lose(effect.peer, RunItemFailed(effect.run, effect.epoch, effect.item, text))

    def _forget(self, run: bytes) -> None:
        self._of_run.pop(run, None)
        if run not in self._asked:
            self.exchange.forget(run)
        for origin, turns in list(self._turns.items()):
            kept = deque(turn for turn in turns if turn.run != run)
            self._turns[origin] = kept
        self._changed.set()  # units that only this run used

    async def _compute(self) -> None:
        """Computes what waits, an item of each origin in turn."""
        try:
            while self._turns:
                for origin in list(self._turns):
                    if turns := self._turns[origin]:
                        await self._computed(turns.popleft())
                    if not self._turns[origin]:  # others may have been taken away meanwhile
                        del self._turns[origin]
        finally:
            self._computing = None

    async def _computed(self, step: Compute) -> None:
        model = self._of_run.get(step.run)
        if model is None:
            return
        values = self._manifests[model].values
        places = {value.name: place for place, value in enumerate(values)}
        inputs = {values[place].name: array for place, array in step.inputs.items()}
        try:
            runtime = await self._load((model, step.first, step.stop))
            made = await asyncio.get_running_loop().run_in_executor(self._worker, runtime.run, inputs)
            outputs = {places[name]: checked(array, values[places[name]]) for name, array in made.items()}
        except (PeerError, PlannerError) as error:
            self.perform(self.core.failed(step.run, step.item, (step.first, step.stop), str(error)))
        except Exception as error:  # a defect, which must end neither the others nor without an answer
            log.exception("a stage of a run was not computed")
            text = f"the peer that computes it failed: {type(error).__name__}"
            self.perform(self.core.failed(step.run, step.item, (step.first, step.stop), text))
        else:
            self.perform(self.core.computed(step.run, step.item, outputs))

    # --- units

    async def _open(self, peer: str, said: RunOpenRequest) -> None:
        """Makes ready for the stages of a run. Raises BadCommand, CannotServe."""
        lent, me = self._lent, self._links.me
        if lent is None:
            raise CannotServe("this peer lends nothing")
        if len(said.spans) != len(said.peers):
            raise BadCommand(f"run_open: {len(said.spans)} peers expected, got {len(said.peers)}")
        here = {
            (said.model, *span) for span, holder in zip(said.spans, said.peers, strict=True) if holder == me
        }
        if not here or not here <= self._placed() | self._loaded.keys():
            raise BadCommand("run_open: no placement gives this peer these units")
        manifest = await self.manifest(said.model, lent.fetcher)
        stages = [FlowStage(*span, holder) for span, holder in zip(said.spans, said.peers, strict=True)]
        route = flow_route(manifest, stages, peer)
        for units in sorted(here):
            await self._load(units)
        run = bytes.fromhex(said.run)
        if self._of_run.get(run, said.model) != said.model:
            raise BadCommand("this run is of another model")
        self.core.open(run, said.epoch, route)
        self._of_run[run] = said.model

    async def _close_run(self, peer: str, said: RunCloseRequest) -> None:
        self.perform(self.core.close(peer, bytes.fromhex(said.run)))

    def _placed(self) -> set[UnitRun]:
        """The units that placements give this peer, as primary or standby."""
        return {
            (offer.model, stage.first, stage.stop)
            for offer in self._view.state.offers.values()
            for stage in offer.stages
            if self._links.me in (stage.primary, *stage.standbys)
        }

    def _used(self) -> set[UnitRun]:
        return {
            (self._of_run[run], first, stop) for run, first, stop in self.core.uses() if run in self._of_run
        }

    async def _load(self, units: UnitRun) -> GraphRuntime:
        """The runtime of these units, fetched and loaded when first asked for. Raises CannotServe, PlannerError."""
        future = self._loaded.get(units)
        if future is None:
            future = self._loaded[units] = asyncio.ensure_future(self._make(units))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.cancelled() or _is_cancelled():
                raise
            # Who waits here is not cancelled with the load, and would else end without an answer.
            raise CannotServe("no placement gives this peer these units any more") from None
        except (PeerError, PlannerError):
            if self._loaded.get(units) is future:
                del self._loaded[units]  # the next one tries again
            raise

    async def _make(self, units: UnitRun) -> GraphRuntime:
        model, first, stop = units
        lent = self._lent
        assert lent is not None
        manifest = await self.manifest(model, lent.fetcher)
        if stop > len(manifest.units):
            raise BadCommand(f"units up to {len(manifest.units)} expected, got {stop}")
        blobs = manifest.blobs(first, stop)
        await lent.fetcher.blobs(blobs)

        key = same_units(manifest, first, stop)

        def made() -> GraphRuntime:
            composed = compose(manifest, self._store, first, stop)
            folder = self._store.blob_path(blobs[0].sha256).parent
            return GraphRuntime(composed, folder, lent.threads, fused=manifest.fused)

        async with self._making:
            runtime = self._runtimes.get(key)
            if runtime is None:
                runtime = self._runtimes[key] = await asyncio.to_thread(made)
        return runtime

    async def _follow(self) -> None:
        """Loads what placements give this peer before anybody asks, and lets go of what neither they nor runs need."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._placed()
            for units in [units for units in self._loaded if units not in wanted | self._used()]:
                self._loaded.pop(units).cancel()
            for units in sorted(wanted - self._loaded.keys()):
                try:
                    await self._load(units)
                except (PeerError, PlannerError) as error:
                    log.warning(
                        "units %d to %d of %s do not load: %s", units[1], units[2], units[0][:12], error
                    )
                    asyncio.get_running_loop().call_later(LOAD_AGAIN_S, self._changed.set)
                except Exception:  # a defect, which must not end the following of placements for good
                    log.exception("units %d to %d of %s do not load", units[1], units[2], units[0][:12])

    async def close(self) -> None:
        """Ends everything; no task or thread is left. No item fails by it."""
        self._closing = True
        tasks = [task for task in (self._following, self._computing) if task is not None]
        tasks += [future for future in self._loaded.values() if isinstance(future, asyncio.Task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.exchange.close()
        self._worker.shutdown(wait=False, cancel_futures=True)


def _is_cancelled() -> bool:
    """Whether the task that runs is cancelled itself, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
