"""Decides whether this peer measures itself once more when who coordinates asks for it, and ends that for an answer.

Edge over the clock and a thread. It happens only while this peer has nothing else to do, and seldom, whoever
asks: no coordinator can keep it busy.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import psutil

from peer.errors import BadCommand, MeasuringEnded, PeerError
from peer.member.lending import profile_of
from peer.member.peer_options import PeerOptions
from peer.model.local_model import LocalModel
from peer.replication.mesh_view import MeshView
from peer.runtime.self_benchmark import UnitTimes, measure_here, measuring_bytes
from peer.stage.stage_host import StageHost
from peer.state.generated.commands import Member, MemberMeasured
from peer.state.plan_record import whole_holders
from peer.wire.generated.requests import MeasureAnswer, MeasureRequest
from planner.model.manifest import Manifest

PAUSE_S: Final = 300.0  # between two measurements; a coordinator asks the same peer half as often at most
ENDED_S: Final = 15.0  # after one that made room for an answer

log = logging.getLogger(__name__)
Measure = Callable[[Manifest, str, int, Callable[[], bool]], UnitTimes]


class MeasuringAgain:
    """`times`: what this peer measured last; `is_over()`: it leaves; `measure` takes a second or two, in a thread."""

    def __init__(
        self,
        view: MeshView,
        stage: StageHost,
        model: LocalModel,
        options: PeerOptions,
        times: UnitTimes,
        is_over: Callable[[], bool],
        measure: Measure | None = None,
    ) -> None:
        self.times = times
        self._view = view
        self._stage = stage
        self._model = model
        self._options = options
        self._is_over = is_over
        self._measure = measure or partial(measure_here, model.store)
        self._not_before = float("-inf")

    async def answer(self, peer: str, said: MeasureRequest) -> MeasureAnswer:
        """Answers REQUEST `measure` of the leader: `measured`, and where it was not `busy`, whether it may be soon.
        Raises BadCommand for another model.
        """
        chosen, manifest = self._view.state.model, self._model.manifest
        if chosen is None or manifest is None or said.model != chosen.model:
            raise BadCommand("measure: expected the id of the model that this mesh serves, as `model`")
        now = time.monotonic()
        if not self._has_room(manifest):
            return MeasureAnswer(measured=False, busy=False)
        if now < self._not_before or self._idle() is None:
            return MeasureAnswer(measured=False, busy=True)
        self._not_before = now + PAUSE_S
        try:
            times = await self._undisturbed(manifest)
        except MeasuringEnded as ended:
            log.info("measuring again ended early: %s", ended)
            times = None
        member = self._idle()
        if times is None or member is None:
            self._not_before = time.monotonic() + ENDED_S
            return MeasureAnswer(measured=False, busy=True)
        try:
            await self._tell(member, times)
        except (PeerError, TimeoutError) as error:  # as when another one coordinates now
            log.info("nobody heard what was measured again: %s", error)
            return MeasureAnswer(measured=False, busy=True)
        return MeasureAnswer(measured=True, busy=False)

    async def _undisturbed(self, manifest: Manifest) -> UnitTimes:
        """What is measured while nothing else is computed here. Raises MeasuringEnded."""
        disturbed = threading.Event()
        watching = asyncio.ensure_future(self._until_work(disturbed))
        options = self._options
        try:
            return await asyncio.to_thread(
                self._measure, manifest, options.provider, options.threads, disturbed.is_set
            )
        finally:
            disturbed.set()  # also where this peer leaves: the thread ends soon
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _until_work(self, disturbed: threading.Event) -> None:
        stage = self._stage
        steps = stage.core.steps_run  # those that run behind a stage, as of a standby, are work as well
        while self._idle() is not None and stage.core.steps_run == steps:
            stage.touched.clear()
            await stage.touched.wait()
        disturbed.set()

    def _idle(self) -> Member | None:
        """This peer as a member; None while it has something else to do, or is slower than it measured."""
        member, serving = self._view.state.members.get(self._view.me), self._stage.units
        if member is None or member.profile is None or member.status != "measured" or serving is None:
            return None
        if self._is_over() or self._stage.core.active() or serving.private:
            return None
        if serving.pacing is not None and not serving.pacing.steady:
            return None  # what real steps take says more than a moment of rest
        return member if self._loaded(serving.runs) else None

    def _loaded(self, runs: tuple[tuple[int, int], ...]) -> bool:
        state, me = self._view.state, self._view.me
        stages = state.plan.stages if state.plan is not None else ()
        mine = {(s.first, s.stop) for s in stages if me in whole_holders(s)}
        return state.proposed is None and mine <= set(runs)

    def _has_room(self, manifest: Manifest) -> bool:
        """Whether what is measured fits beside what this peer holds, inside what it pledged."""
        used: int = psutil.Process().memory_info().rss
        return used + measuring_bytes(manifest) <= self._options.memory_bytes

    async def _tell(self, member: Member, times: UnitTimes) -> None:
        """As at first, but for what has not changed: memory, links, and the class of arithmetic, since what is loaded
        computes as it was found at first. Raises PeerError, TimeoutError.
        """
        assert member.profile is not None
        before = self.times
        self.times = replace(
            times,
            overhead_bytes=before.overhead_bytes,
            arithmetic=before.arithmetic or times.arithmetic,
        )
        found = profile_of(self._options, self.times)
        profile = replace(
            member.profile,
            decode_ns=found.decode_ns,
            prefill_ns=found.prefill_ns,
            batch_ns=found.batch_ns,
            step_ns=found.step_ns,
            arithmetic=found.arithmetic,  # a leader of an older version may have left it out of the log
        )
        log.info("measured once more, since the coordinator asked")
        command = MemberMeasured(member.peer, profile, ())
        await self._view.measured(command, again=True)
