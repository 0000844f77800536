"""Watches how long this peer's steps take, and tells the mesh when it has become slower or faster.

Edge around `peer.runtime.slowdown`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from peer.errors import PeerError
from peer.runtime.slowdown import CHECK_S, Pace, at_pace, should_take
from peer.session.effects import FreeSlot, NotRan, Ran, RunStep
from peer.session.seat import Run_
from peer.state.failure_domains import UNKNOWN
from peer.state.generated.commands import MemberMeasured, Profile
from peer.state.mesh_state import MeshState
from peer.transport.ticker import SLACK_S, After
from planner.model.manifest import Manifest

LOST_S: Final = 5.0  # the log has what was told by then

log = logging.getLogger(__name__)


class Pacing:
    """`tell(command)` reports to the coordinator."""

    def __init__(
        self,
        me: str,
        manifest: Manifest,
        state: Callable[[], MeshState],
        tell: Callable[[MemberMeasured], Awaitable[None]],
    ) -> None:
        self._me = me
        self._manifest = manifest
        self._state = state
        self._tell = tell
        self._pace = Pace()
        self._measured: Profile | None = None  # as this peer measured itself
        self._told: Profile | None = None  # the same at the pace that was told last
        self._told_s = 0.0  # when that was
        self._kinds: dict[Run_, Counter[str]] = {}

    @property
    def learned(self) -> bool:
        """Whether it is known how fast this peer is; before, nothing is told."""
        return self._pace.learned

    @property
    def steady(self) -> bool:
        """Whether this peer is as fast as it measured; not while it may be becoming slower."""
        return self._pace.steady(time.monotonic())

    def begun(self, step: RunStep) -> None:
        """A step goes to the model."""
        profile, taken = self._measured, step.tokens if step.tokens is not None else step.hidden
        if profile is None or taken is None or step.behind:
            return
        if step.run not in self._kinds:
            self._kinds[step.run] = Counter(unit.kind for unit in self._manifest.units[slice(*step.run)])
        kinds = self._kinds[step.run]
        should_s = should_take(kinds, profile.decode_ns, profile.prefill_ns, len(taken))
        self._pace.begun(time.monotonic(), (step.run, step.session, step.epoch, step.position), should_s)

    def ended(self, result: Ran | NotRan) -> None:
        """It came back."""
        step = (result.run, result.session, result.epoch, result.position)
        self._pace.ended(time.monotonic(), step, ran=isinstance(result, Ran))

    def dropped(self, effect: FreeSlot) -> None:
        """What still waited of a session does not run."""
        self._pace.dropped(time.monotonic(), effect.run, effect.session)

    async def follow(self, after: After) -> None:
        """Looks now and then, for as long as this peer lends."""
        while True:
            await after(CHECK_S + SLACK_S)  # the pace is looked at no sooner
            before = self._told
            command = self._look(time.monotonic())
            if command is None:
                continue
            try:
                await self._tell(command)
            except (PeerError, TimeoutError) as error:
                log.info("the coordinator did not hear of the new pace: %s", error)
                self._told = before
                self._pace.unheard()

    def _look(self, now: float) -> MemberMeasured | None:
        member = self._state().members.get(self._me)
        if member is None or member.profile is None or member.status != "measured":
            return None
        said = member.profile.surroundings
        profile = replace(member.profile, surroundings=UNKNOWN)  # what it says of them is no pace
        if self._measured is None or profile not in (self._measured, self._told):
            self._pace, self._measured, self._told = Pace(), profile, profile
        elif (
            profile != self._told and now - self._told_s > LOST_S
        ):  # a word on its surroundings crossed the last one
            self._told = profile
            self._pace.lost()
        milli = self._pace.look(now)
        if milli is None:
            return None
        self._told_s = now
        log.info("steps take %.1f times what they took at first", milli / 1000)
        base = self._measured
        self._told = replace(
            base,
            decode_ns=at_pace(base.decode_ns, milli),
            prefill_ns=at_pace(base.prefill_ns, milli),
            batch_ns=at_pace(base.batch_ns, milli),
            step_ns=base.step_ns * milli // 1000,
        )
        return MemberMeasured(self._me, replace(self._told, surroundings=said), ())
