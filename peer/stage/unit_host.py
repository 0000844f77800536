"""The runs of units that this peer has loaded: fetching them, making their runtimes, and handing steps to the workers.

Edge. All methods belong to the event loop's thread; results come back to it in the order the worker finished them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from peer.errors import CannotServe
from peer.model.fetcher import Fetcher, Progress
from peer.runtime.arithmetic import proven
from peer.runtime.shared_sessions import SharedSessions
from peer.runtime.stage_runtime import Digest, Done, RefusalReason, Refused, StageRuntime
from peer.runtime.step_requests import runtime_step
from peer.runtime.step_times import StepTimes
from peer.session.effects import FreeSlot, NotRan, PrefixWork, Ran, Reason, RunStep
from peer.session.evidence import Floats
from peer.session.seat import Run_
from peer.stage.slowdown_reports import Pacing
from peer.transport.listeners import Listeners
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import Store

T = TypeVar("T")
_REASONS: Mapping[RefusalReason, Reason] = {
    RefusalReason.MISSING_POSITION: Reason.MISSING_POSITION,
    RefusalReason.CONTEXT_OVERFLOW: Reason.CONTEXT_OVERFLOW,
    RefusalReason.NO_SLOT: Reason.NO_SLOT,
    RefusalReason.NOT_FINITE_INPUT: Reason.NOT_FINITE_INPUT,
    RefusalReason.NOT_FINITE_OUTPUT: Reason.NOT_FINITE_OUTPUT,
    RefusalReason.FAILED: Reason.FAILED,
    RefusalReason.LOST_NEIGHBOUR: Reason.LOST_NEIGHBOUR,
}


@dataclass(frozen=True, slots=True)
class Room:
    """What this peer promised: how a runtime is sized."""

    provider: str
    threads: int
    slots: int
    context: int
    memory_bytes: int = 0  # what this peer lends
    before_call: Callable[[], None] | None = None  # validation's, see peer.runtime.stage_runtime
    shared: SharedSessions = field(default_factory=SharedSessions)  # of all models of this peer


class Serving:
    """Loaded runs of one model. `on_results` is called on the loop with finished and refused steps. `asker_of(session)`
    is who asks it, where it has a seat here; `pacing` looks at how long steps take (None: nobody does).
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        manifest: Manifest,
        room: Room,
        on_results: Callable[[list[Ran | NotRan]], None],
        asker_of: Callable[[bytes], str | None] = lambda _: None,
        pacing: Pacing | None = None,
    ) -> None:
        self._store = store
        self._fetcher = fetcher
        self._manifest = manifest
        self.room = room
        self._on_results = on_results
        self._results: deque[Ran | NotRan] = deque()  # appended by workers, taken by the loop
        self._loop = asyncio.get_running_loop()
        self._runtimes: dict[Run_, StageRuntime] = {}
        self._teams: dict[Run_, StageRuntime] = {}  # of stages that this peer computes with others
        self._asked: dict[Run_, dict[asyncio.Future[Any], object]] = {}  # and what is said when it ends first
        self.pacing = pacing
        self.step_times = StepTimes()
        self.asker_of = asker_of
        self._on_step = Listeners[Callable[[RunStep], None]]()
        self.private: dict[
            bytes, Callable[[Done | Refused], None]
        ] = {}  # sessions of checks: who gets their results

    @property
    def runs(self) -> tuple[Run_, ...]:
        """The runs that are loaded here whole, sorted."""
        return tuple(sorted(self._runtimes))

    @property
    def serving(self) -> tuple[Run_, ...]:
        """The runs that can serve, sorted: those that are loaded here, and those of teams that this peer leads."""
        return tuple(sorted({*self._runtimes, *self._teams}))

    def runtime(self, run: Run_) -> StageRuntime | None:
        """What computes units `run` here, without others."""
        return self._runtimes.get(run)

    def _computing(self, run: Run_) -> StageRuntime | None:
        """What computes units `run` here, or with others."""
        return self._runtimes.get(run) or self._teams.get(run)

    def lead(self, run: Run_, make: Callable[[Callable[[Done | Refused], None]], StageRuntime]) -> None:
        """Serves units `run` by a team, whose runtime `make(deliver)` gives. Raises CannotServe."""
        self._teams[run] = make(partial(self._from_worker, run))

    async def lead_no_more(self, run: Run_) -> None:
        """The team of units `run` is over."""
        await self._end(run, self._teams)

    async def load(self, run: Run_, progress: Progress | None = None) -> None:
        """Fetches and loads units [first, stop). Raises CannotServe, and nothing stays loaded."""
        if run in self._runtimes:
            return
        await self._fetcher.blobs(self._manifest.blobs(*run), progress)
        making = asyncio.ensure_future(asyncio.to_thread(self._make, run))
        try:
            self._runtimes[run] = await asyncio.shield(making)
        except asyncio.CancelledError:  # this peer leaves; its worker must not stay behind
            with suppress(CannotServe):
                (await making).close()
            raise

    async def unload(self, run: Run_) -> None:
        """Stops the run's worker and gives its memory back."""
        await self._end(run, self._runtimes)

    async def _end(self, run: Run_, of: dict[Run_, StageRuntime]) -> None:
        runtime, asked = of.pop(run, None), self._asked.pop(run, {})
        self.step_times.unloaded(run)
        if runtime is not None:
            await asyncio.to_thread(runtime.close)
        for found, nothing in list(asked.items()):  # what still waited for the worker
            if not found.done():
                found.set_result(nothing)

    def on_step(self, listener: Callable[[RunStep], None]) -> Callable[[], None]:
        """Calls `listener(step)` for each step that is about to be computed, until what is returned is called."""
        return self._on_step.add(listener)

    def do(self, effect: RunStep | FreeSlot | PrefixWork) -> None:
        """Hands it to the worker of its units."""
        match effect:
            case RunStep():
                self.submit(effect)
            case FreeSlot():
                self.free(effect)
            case PrefixWork():
                if (runtime := self._computing(effect.run)) is not None:
                    runtime.front(effect)

    def submit(self, step: RunStep) -> None:
        """Queues a step; a run that is not loaded refuses it at once."""
        runtime = self._computing(step.run)
        if runtime is None:
            text = f"units {step.run[0]}-{step.run[1] - 1} are no longer loaded here"
            refusal: Ran | NotRan = NotRan(
                step.run, step.session, step.epoch, step.position, 0, Reason.UNKNOWN_PLAN, text
            )
            self._loop.call_soon(self._on_results, [refusal])
            return
        if not self.private:
            self._begun(step)
        for listener in self._on_step:
            listener(step)
        runtime.submit(runtime_step(step, self.asker_of(step.session) or ""))

    def position_bytes(self, run: Run_) -> int:
        """What units `run` cache for one position."""
        return sum(unit.kv_bytes_per_token for unit in self._manifest.units[slice(*run)])

    def free(self, effect: FreeSlot) -> None:
        """Frees the session's slot; what still waits of it is dropped."""
        runtime = self._computing(effect.run)
        if runtime is not None:
            runtime.release(effect.session)
            self.step_times.dropped(effect.run, effect.session)
            if self.pacing is not None:
                self.pacing.dropped(effect)

    async def digest(self, run: Run_, session: bytes, first: int, stop: int) -> Digest | None:
        """What units `run` cache of a session at positions [first, stop); None when they are not loaded."""
        runtime = self._computing(run)
        if runtime is None:
            return None
        found: asyncio.Future[Digest | None] = self._question(run, None)
        tell = self._teller(found)
        runtime.digest(session, first, stop, tell)
        return await found

    async def copied(
        self, run: Run_, session: bytes, stop: int, names: Collection[str]
    ) -> dict[str, Floats] | None:
        """What units `run` cache of a session at positions [0, stop), by array; None when it is not all there."""
        runtime = self._computing(run)
        if runtime is None:
            return None
        found: asyncio.Future[dict[str, Floats] | None] = self._question(run, None)
        runtime.copied(session, stop, names, self._teller(found))
        return await found

    async def put(self, run: Run_, session: bytes, count: int, arrays: Mapping[str, Floats]) -> bool:
        """Makes `arrays` what units `run` cache of a session's first `count` positions; whether it could be."""
        runtime = self._computing(run)
        if runtime is None:
            return False
        found = self._question(run, False)
        runtime.put(session, count, arrays, self._teller(found))
        return await found

    def _question(self, run: Run_, nothing: T) -> asyncio.Future[T]:
        """To the worker of `run`; the answer is `nothing` where it ends first."""
        found: asyncio.Future[T] = self._loop.create_future()
        asked = self._asked.setdefault(run, {})
        asked[found] = nothing
        found.add_done_callback(asked.pop)
        return found

    def _teller(self, found: asyncio.Future[T]) -> Callable[[T], None]:
        """Sets the result of `found` from a worker."""

        def tell(result: T) -> None:
            if not found.done():
                found.set_result(result)

        def answer(result: T) -> None:
            with suppress(RuntimeError):  # the loop closed meanwhile
                self._loop.call_soon_threadsafe(tell, result)

        return answer

    def memory_bytes(self) -> dict[str, int]:
        """Bytes of weights and KV cache, and of the fronts of prompts kept beside, over all loaded runs."""
        parts = [runtime.memory_bytes() for runtime in self._runtimes.values()]
        sums = {name: sum(getattr(part, name) for part in parts) for name in ("weights", "kv", "fronts")}
        return {name: int(value) for name, value in sums.items()}

    async def close(self) -> None:
        """Unloads everything."""
        for run in self.runs:
            await self.unload(run)
        for run in tuple(self._teams):
            await self.lead_no_more(run)

    def _begun(self, step: RunStep) -> None:
        key = (step.run, step.session, step.epoch, step.position)
        tokens = step.tokens if step.tokens is not None else step.hidden
        one = tokens is not None and len(tokens) == 1
        self.step_times.begun(time.monotonic(), key, counts=one and not step.behind)
        if self.pacing is not None:
            self.pacing.begun(step)

    def _ended(self, result: Ran | NotRan) -> None:
        key = (result.run, result.session, result.epoch, result.position)
        self.step_times.ended(time.monotonic(), key, ran=isinstance(result, Ran))
        if self.pacing is not None:
            self.pacing.ended(result)

    def _make(self, run: Run_) -> StageRuntime:
        room = self.room
        try:
            form = proven(self._store, self._manifest, room.provider, room.threads).form
            shard = make_shard(self._manifest, self._store, *run, room.provider, exact=form.plain)
            return StageRuntime(
                shard,
                threads=room.threads,
                slots=2 * room.slots,  # an answer that moves has a seat on both of its routes
                context=room.context,
                form=form,
                deliver=partial(self._from_worker, run),
                before_call=room.before_call,
                shared=room.shared,
            )
        except (RuntimeError, MemoryError, ValueError) as error:
            raise CannotServe(f"units {run[0]}-{run[1] - 1} do not load: {error}") from error

    def _from_worker(self, run: Run_, result: Done | Refused) -> None:
        """Runs on a worker thread."""
        if (tell := self.private.get(result.session)) is not None:
            tell(result)
            return
        translated: Ran | NotRan
        match result:
            case Done():
                token = result.finished if isinstance(result.finished, int) else None
                translated = Ran(
                    run, result.session, result.turn, result.position, result.count, result.hidden, token
                )
            case Refused():
                translated = NotRan(
                    run,
                    result.session,
                    result.turn,
                    result.position,
                    result.have,
                    _REASONS[result.reason],
                    result.text,
                )
        self._results.append(translated)
        if len(self._results) > 1:
            return  # the loop was woken and takes this one along
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop closed while the last step ran
            return

    def _deliver(self) -> None:
        results: list[Ran | NotRan] = []
        while self._results:
            results.append(self._results.popleft())
            self._ended(results[-1])
        if results:
            self._on_results(results)
