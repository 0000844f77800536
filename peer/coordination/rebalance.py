"""Decides whether a mesh whose peers compute slower or faster than planned is planned anew, and how. Pure.

What planner.adapt.resharding asks for must hold over its checks; one relief is followed by a rest, so that two peers
that waver do not toss the units to and fro.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.adapt import resharding
from planner.adapt.plan_comparison import LIMITS, bare, relieved
from planner.cost.objectives import Wish
from planner.errors import RequestError
from planner.types import Held, Plan, PlanRequest, Stage

LOOK_S: Final = 0.7  # between two checks, at least: who coordinates looks every 0.75 s
REST_S: Final = 60.0  # after a relief


@dataclass(frozen=True, slots=True)
class Case:
    """What is looked at: the stages that serve, and what would be planned from nothing."""

    request: PlanRequest
    wish: Wish
    serving: tuple[Stage, ...]
    fresh: Plan
    held: Held


class Relief:
    """Checks one case after the other."""

    def __init__(self) -> None:
        self._memory = resharding.Memory()
        self._looked = self._rests_until = float("-inf")
        self.over = False  # whether the case that was looked at last asks for nothing, or nothing helps

    def check(self, now: float, case: Case) -> Plan | None:
        """The plan that relieves, once a gain has held; None: nothing yet, or nothing that is worth it."""
        self.over = False
        if now - self._looked < LOOK_S or now < self._rests_until:
            return None
        self._looked = now
        fresh = bare(case.fresh.stages)
        try:
            decision = resharding.check(case.request, case.serving, case.held, fresh, self._memory, LIMITS)
        except (RequestError, KeyError):
            self._memory, self.over = resharding.Memory(), True
            return None
        self._memory = decision.memory
        if decision.rung == "stay":
            self.over = not 0 < decision.memory.in_a_row < LIMITS.checks
            return None
        self._rests_until = now + REST_S
        self._memory = resharding.Memory()
        return relieved(case.request, case.wish, case.held, case.fresh, decision)
