"""Computes positions of a session again in the way in which the peer in question computed them.

Edge. A peer that serves the same units alike repeats its order of additions: given positions together, sampled ones
alone. What a tab computed has no bits to repeat, so all its positions are computed together, from the packed weights as
they are. Where this peer does not serve the units so, it loads them for a while, if there is memory for that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import psutil

from peer.arithmetic import proven
from peer.errors import CannotServe
from peer.evidence import SAME, TABS, Floats, Rounding, alone_from, limit, rounding, steps_of_spans
from peer.mesh import Mesh
from peer.runtime import Done, Refused, StageRuntime, Step
from peer.seats import Run_
from planner.shards import make_shard

TOGETHER: Final = 32  # given positions in a step, as askers send them
COMPUTE_S: Final = 40.0  # for a step: it runs when nothing else does
WHOLE_S: Final = 60.0  # for all steps of a check: then nobody waits for it any more
LOADED_S: Final = 90.0  # units that were loaded for a check stay for the next one
SLOTS: Final = 2
MOST_POSITIONS: Final = 1024  # up to the one that is checked: all of them are computed again

Answers = dict[bytes, Callable[[Done | Refused], None]]


@dataclass(slots=True)
class _Loaded:
    runtime: StageRuntime
    timer: asyncio.TimerHandle
    waiting: Answers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Means:
    """What computes a run as `peer` did: results differ by at most `most`, and are `repeated` to the bit or not."""

    runtime: StageRuntime
    waiting: Answers
    most: float
    repeated: bool


class Recomputing:
    """`positions` were computed here for checks."""

    def __init__(self, mesh: Mesh, threads: int = 1) -> None:
        self._mesh = mesh
        self._threads = threads
        self._node = mesh.node
        self._loaded: dict[tuple[Run_, bool], _Loaded] = {}
        self.positions = 0

    def repeats(self, peer: str) -> bool:
        """Whether what this peer serves gives the bits that `peer` gives."""
        _, provider, theirs, mine = self._kinds(peer)
        return provider not in TABS and limit(mine, theirs) == SAME

    def _kinds(self, peer: str) -> tuple[str, str, Rounding, Rounding]:
        """The model's weights, the provider of `peer`, and how it and this peer multiply."""
        member, manifest = self._node.state.members.get(peer), self._mesh.manifest
        weights = manifest.weights if manifest is not None else "4bit"
        profile = member.profile if member is not None else None
        provider = profile.provider if profile is not None else "cpu"
        mine = rounding(weights, self._mesh.options.provider if self._mesh.options is not None else "cpu")
        return weights, provider, rounding(weights, provider), mine

    async def means(self, run: Run_, peer: str) -> Means:
        """What computes units `run` as `peer` does. Raises CannotServe."""
        weights, provider, theirs, mine = self._kinds(peer)
        repeated = provider not in TABS
        serving = self._node.serving
        runtime = serving.runtime(run) if serving is not None else None
        if runtime is not None and serving is not None and (mine == theirs or theirs == "unknown"):
            return Means(runtime, serving.private, limit(mine, theirs), repeated)
        exact = theirs == "plain"
        try:
            loaded = self._loaded.get((run, exact)) or await self._load(run, exact=exact)
        except CannotServe:
            if runtime is None or serving is None:
                raise
            return Means(
                runtime, serving.private, limit(mine, theirs), False
            )  # great errors are found so, too
        loaded.timer.cancel()
        loaded.timer = asyncio.get_running_loop().call_later(LOADED_S, self._unload, run, exact)
        own = rounding(weights, "cpu") if not exact else "plain"
        return Means(loaded.runtime, loaded.waiting, limit(own, theirs), repeated)

    async def rows(self, means: Means, inputs: Any, spans: Sequence[int]) -> Floats:
        """What the units make of all of `inputs`: tokens (int) or rows, (positions, hidden). Raises CannotServe."""
        found: list[Floats] = []

        def take(_: int, done: Done) -> None:
            if done.hidden is None:
                raise CannotServe("these units give no rows")
            found.append(done.hidden)

        await self._run(means, inputs, spans, len(inputs), take)
        return np.concatenate(found)

    async def logits(self, means: Means, inputs: Any, spans: Sequence[int], first: int) -> list[Floats]:
        """The logits of positions from `first` on. Raises CannotServe."""
        found: list[Floats] = []

        def take(position: int, done: Done) -> None:
            if position >= first and not isinstance(done.finished, np.ndarray):
                raise CannotServe("these units give no logits")
            if isinstance(done.finished, np.ndarray):
                found.append(done.finished)

        await self._run(means, inputs, spans, first, take)
        return found

    async def _run(
        self,
        means: Means,
        inputs: Any,
        spans: Sequence[int],
        heads_from: int,
        take: Callable[[int, Done], None],
    ) -> None:
        """`take` gets the last position and result of each step; from `heads_from` on each has one, and the head's."""
        session = os.urandom(16)
        as_it_was = spans if means.repeated else (len(inputs),)
        steps = steps_of_spans(as_it_was, 0, len(inputs), TOGETHER)
        try:
            async with asyncio.timeout(WHOLE_S):
                for first, stop, given in alone_from(heads_from, steps):
                    part = inputs[first:stop]
                    rows = part.ndim == 2
                    head = first >= heads_from
                    step = Step(
                        session,
                        first,
                        None if rows else part.astype(np.int64),
                        np.ascontiguousarray(part) if rows else None,
                        head,
                        np.copy if head else None,
                        prompt=given,
                        behind=True,
                    )
                    done = await _submitted(means, step)
                    self.positions += stop - first
                    take(stop - 1, done)
        finally:
            means.waiting.pop(session, None)
            means.runtime.release(session)

    async def _load(self, run: Run_, *, exact: bool) -> _Loaded:
        """Units as this peer does not serve them, from its own store, where there is memory for them."""
        manifest, store, model = self._mesh.manifest, self._mesh.store, self._node.state.model
        if manifest is None or model is None or not all(store.has_blob(ref) for ref in manifest.blobs(*run)):
            raise CannotServe("these units are not here")
        units = manifest.units[run[0] : run[1]]
        context = min(model.context, MOST_POSITIONS)
        kv_bytes = SLOTS * context * sum(unit.kv_bytes_per_token for unit in units)
        wanted = sum(unit.resident_bytes for unit in units) + kv_bytes
        if wanted > self._unplanned_bytes():
            raise CannotServe("the memory of this peer is lent to the plan")
        if 2 * wanted > psutil.virtual_memory().available:
            raise CannotServe("these units need more memory than is free here")
        waiting: Answers = {}

        def deliver(result: Done | Refused) -> None:
            if (tell := waiting.get(result.session)) is not None:
                tell(result)

        def make() -> StageRuntime:
            form = proven(store, manifest, "cpu", self._threads, plain=exact).form
            shard = make_shard(manifest, store, *run, "cpu", exact=form.plain)
            return StageRuntime(
                shard, threads=self._threads, slots=SLOTS, context=context, form=form, deliver=deliver
            )

        runtime = await asyncio.to_thread(make)
        timer = asyncio.get_running_loop().call_later(LOADED_S, self._unload, run, exact)
        made = self._loaded[run, exact] = _Loaded(runtime, timer, waiting)
        return made

    def _unplanned_bytes(self) -> float:
        """What this peer lends and no plan needs; one that lends nothing keeps to what is free on its machine."""
        options, state, me = self._mesh.options, self._node.state, self._node.me
        if options is None or not options.memory_bytes:
            return float("inf")
        planned = [
            sum(
                stage.weight_bytes + stage.kv_bytes + stage.overhead_bytes
                for stage in plan.stages
                if me == stage.primary or me in stage.standbys
            )
            for plan in (state.plan, state.proposed)
            if plan is not None
        ]
        member = state.members.get(me)
        profile = member.profile if member is not None else None
        overhead = profile.overhead_bytes if profile is not None else 0
        return options.memory_bytes - overhead - max(planned, default=0)

    def _unload(self, run: Run_, exact: bool) -> None:
        made = self._loaded.pop((run, exact))
        self._mesh.start(asyncio.to_thread(made.runtime.close))

    async def close(self) -> None:
        """Gives back what was loaded."""
        for key, made in list(self._loaded.items()):
            made.timer.cancel()
            del self._loaded[key]
            await asyncio.to_thread(made.runtime.close)


async def _submitted(means: Means, step: Step) -> Done:
    """The result of a step. Raises CannotServe when it is refused."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Done | Refused] = loop.create_future()

    def tell(result: Done | Refused) -> None:
        if not found.done():
            found.set_result(result)

    def answer(result: Done | Refused) -> None:
        loop.call_soon_threadsafe(tell, result)

    means.waiting[step.session] = answer
    means.runtime.submit(step)
    done = await asyncio.wait_for(found, COMPUTE_S)
    if isinstance(done, Refused):
        raise CannotServe(f"these units refuse the step: {done.text}")
    return done
