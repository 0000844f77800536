"""Computes positions of a session again in the way in which the peer in question computed them.

Edge. A process repeats the order of additions of another one: given positions together, sampled ones alone. That gives
the same bits where the runtime that computes again is of the class of arithmetic of the peer in question: what this
peer serves has the class of its profile, what it loads for a check, with another number of threads, the class that is
known of that, if any. What a tab computed has no bits to repeat, so all its positions are computed together, from the
packed weights as they are. Where this peer does not serve the units so, it loads them for a while, if there is memory
for that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import psutil

from peer.errors import CannotServe
from peer.model.local_model import LocalModel
from peer.replication.decoder_view import ModelView
from peer.runtime.arithmetic import proven
from peer.runtime.stage_runtime import Done, Refused, StageRuntime, Step
from peer.session.evidence import (
    ALIKE,
    TABS,
    TEAM,
    Computes,
    Floats,
    Rounding,
    alone_from,
    limit,
    rounding,
    steps_of_spans,
)
from peer.session.position_spans import CHUNK_TOKENS
from peer.session.seat import Run_
from peer.stage.stage_host import StageHost
from peer.state.generated.commands import Member
from peer.state.mesh_state import MeshState
from peer.state.plan_record import team_of
from peer.wire.generated.requests import MAX_CHECKED_POSITIONS
from planner.model.arithmetic_class import other_bits
from planner.model.lowering import make_shard

COMPUTE_S: Final = 40.0  # for a step: it runs when nothing else does
WHOLE_S: Final = 60.0  # for all steps of a check: then nobody waits for it any more
LOADED_S: Final = 90.0  # units that were loaded for a check stay for the next one
SLOTS: Final = 2

Start = Callable[[Coroutine[Any, Any, None]], object]  # runs a task of the owner's
Answers = dict[bytes, Callable[[Done | Refused], None]]


@dataclass(slots=True)
class _Loaded:
    runtime: StageRuntime
    timer: asyncio.TimerHandle
    arithmetic: str  # its class; "": unknown
    waiting: Answers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Means:
    """What computes a run as `peer` did: results differ by at most `most`. `in_order`: positions are computed in the
    order of the peer, else all together. `repeated`: as far as anybody knows that gives the same bits.
    """

    runtime: StageRuntime
    waiting: Answers
    most: float
    in_order: bool
    repeated: bool


class Recomputing:
    """`positions` were computed here for checks. What was loaded for one is closed in a task that `start` runs."""

    def __init__(
        self,
        view: ModelView,
        stage: StageHost,
        model: LocalModel,
        start: Start,
        others_bytes: Callable[[], int] = lambda: 0,
        *,
        threads: int = 1,
    ) -> None:
        """`others_bytes()`: what plans of other models take of this peer."""
        self._view = view
        self._stage = stage
        self._model = model
        self._start = start
        self._others_bytes = others_bytes
        self._threads = threads
        self._loaded: dict[tuple[Run_, bool], _Loaded] = {}
        self.positions = 0

    def served_most(self, peer: str, run: Run_) -> float:
        """The largest distance of what this peer serves of units `run` from what `peer` does, added up in the same
        order.
        """
        weights, theirs, mine = self._kinds(peer, run)
        if theirs.provider in TABS:
            return ALIKE  # no order is repeated
        return limit(rounding(weights, mine), rounding(weights, theirs), (mine.arithmetic, theirs.arithmetic))

    def _kinds(self, peer: str, run: Run_) -> tuple[str, Computes, Computes]:
        """The model's weights, and how `peer` and what this peer serves compute units `run`."""
        manifest, units = self._model.manifest, self._stage.units
        weights = manifest.weights if manifest is not None else "4bit"
        members, me = self._view.state.members, self._view.me
        mine = computes(members.get(me))
        if units is not None:
            mine = replace(mine, provider=units.room.provider)
        return weights, computes_units(self._view.state, peer, run), mine

    async def means(self, run: Run_, peer: str) -> Means:
        """What computes units `run` as `peer` does. Raises CannotServe."""
        weights, theirs, mine = self._kinds(peer, run)
        kind = rounding(weights, theirs)
        in_order = theirs.provider not in TABS
        serving = self._stage.units
        runtime = serving.runtime(run) if serving is not None else None

        def served(*, in_order: bool) -> Means:
            assert runtime is not None
            assert serving is not None
            own = (rounding(weights, mine), mine.arithmetic)
            return _means(runtime, serving.private, own, (kind, theirs.arithmetic), in_order=in_order)

        if runtime is not None and (rounding(weights, mine) == kind or kind == "unknown"):
            return served(in_order=in_order)
        exact = kind == "plain" and rounding(weights, Computes("cpu")) == "rounded"
        try:
            loaded = self._loaded.get((run, exact)) or await self._load(run, exact=exact)
        except CannotServe:
            if runtime is None:
                raise
            return served(in_order=False)  # great errors are found so, too
        loaded.timer.cancel()
        loaded.timer = asyncio.get_running_loop().call_later(LOADED_S, self._unload, run, exact)
        own = "plain" if exact else rounding(weights, Computes("cpu", loaded.arithmetic))
        kinds = (own, loaded.arithmetic), (kind, theirs.arithmetic)
        return _means(loaded.runtime, loaded.waiting, *kinds, in_order=in_order)

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
        as_it_was = spans if means.in_order else (len(inputs),)
        steps = steps_of_spans(as_it_was, 0, len(inputs), CHUNK_TOKENS)
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
        manifest, store, model = self._model.manifest, self._model.store, self._view.state.model
        if manifest is None or model is None or not all(store.has_blob(ref) for ref in manifest.blobs(*run)):
            raise CannotServe("these units are not here")
        units = manifest.units[run[0] : run[1]]
        context = min(model.context, MAX_CHECKED_POSITIONS)
        kv_bytes = SLOTS * sum(unit.kv_bytes(context) for unit in manifest.planner_units()[slice(*run)])
        wanted = sum(unit.resident_bytes for unit in units) + kv_bytes
        if wanted > self._unplanned_bytes():
            raise CannotServe("the memory of this peer is lent to the plan")
        if 2 * wanted > psutil.virtual_memory().available:
            raise CannotServe("these units need more memory than is free here")
        waiting: Answers = {}

        def deliver(result: Done | Refused) -> None:
            if (tell := waiting.get(result.session)) is not None:
                tell(result)

        def make() -> tuple[StageRuntime, str]:
            proof = proven(store, manifest, "cpu", self._threads, plain=exact)
            shard = make_shard(manifest, store, *run, "cpu", exact=proof.form.plain)
            runtime = StageRuntime(
                shard,
                threads=self._threads,
                slots=SLOTS,
                context=context,
                form=proof.form,
                deliver=deliver,
            )
            return runtime, proof.class_of("cpu")

        runtime, arithmetic = await asyncio.to_thread(make)
        timer = asyncio.get_running_loop().call_later(LOADED_S, self._unload, run, exact)
        made = self._loaded[run, exact] = _Loaded(runtime, timer, arithmetic, waiting)
        return made

    def _unplanned_bytes(self) -> float:
        """What this peer lends and no plan needs; one that lends nothing keeps to what is free on its machine."""
        lent, state, me = self._stage.units, self._view.state, self._view.me
        if lent is None or not lent.room.memory_bytes:
            return float("inf")
        planned = [
            sum(
                stage.weight_bytes + stage.kv_bytes + stage.overhead_bytes
                for stage in plan.stages
                if me in (*team_of(stage), *stage.standbys)
            )
            for plan in (state.plan, state.proposed)
            if plan is not None
        ]
        member = state.members.get(me)
        profile = member.profile if member is not None else None
        overhead = profile.overhead_bytes if profile is not None else 0
        return lent.room.memory_bytes - overhead - max(planned, default=0) - self._others_bytes()

    def _unload(self, run: Run_, exact: bool) -> None:
        made = self._loaded.pop((run, exact))
        self._start(asyncio.to_thread(made.runtime.close))

    async def close(self) -> None:
        """Gives back what was loaded."""
        for key, made in list(self._loaded.items()):
            made.timer.cancel()
            del self._loaded[key]
            await asyncio.to_thread(made.runtime.close)


def _means(
    runtime: StageRuntime,
    waiting: Answers,
    mine: tuple[Rounding, str],
    theirs: tuple[Rounding, str],
    *,
    in_order: bool,
) -> Means:
    """`mine`, `theirs`: how the runtime and the peer in question multiply, and their classes of arithmetic."""
    classes = (mine[1], theirs[1])
    most = limit(mine[0], theirs[0], classes if in_order else ("", ""))
    return Means(runtime, waiting, most, in_order, in_order and not other_bits(*classes))


def computes(member: Member | None) -> Computes:
    """How a member computes; one of which nobody knows counts as a process like others."""
    profile = member.profile if member is not None else None
    return Computes("cpu") if profile is None else Computes(profile.provider, profile.arithmetic)


def computes_units(state: MeshState, peer: str, run: Run_) -> Computes:
    """How a member computes units `run`: by itself, or with others where a plan has it lead a team."""
    found = computes(state.members.get(peer))
    leads = any(
        stage.helpers and (stage.primary, stage.first, stage.stop) == (peer, *run)
        for plan in (state.plan, state.proposed)
        for stage in (plan.stages if plan is not None else ())
    )
    return replace(found, arithmetic=f"{found.arithmetic}{TEAM}") if leads else found


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
    async with asyncio.timeout(COMPUTE_S):
        done = await found
    if isinstance(done, Refused):
        raise CannotServe(f"these units refuse the step: {done.text}")
    return done
