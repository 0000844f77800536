"""Decides whether a mesh whose peers compute slower or faster than planned is planned anew, and how. Pure.

What planner.resharding asks for must hold over its checks; one relief is followed by a rest, so that two peers that
waver do not toss the units to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner import cost, redundancy, resharding, strategies
from planner.errors import RequestError
from planner.objectives import Wish
from planner.types import Plan, PlanRequest, Stage
from planner.wording import TIMES

LOOK_S: Final = 1.0  # between two checks
REST_S: Final = 60.0  # after a relief
LIMITS: Final = resharding.Limits()
Held = Mapping[str, tuple[tuple[int, int], ...]]


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
        fresh = _bare(case.fresh.stages)
        try:
            decision = resharding.check(case.request, case.serving, case.held, fresh, self._memory, LIMITS)
        except (RequestError, KeyError):
            self._memory, self.over = resharding.Memory(), True
            return None
        self._memory = decision.memory
        if decision.rung == "stay":
            self.over = not 0 < decision.memory.in_a_row < LIMITS.checks
            return None
        stages = _bare(decision.stages)
        if not strategies.keeps(case.request, case.wish, stages):
            stages = fresh
        self._rests_until = now + REST_S
        self._memory = resharding.Memory()
        covered = redundancy.with_standbys(case.request, stages, prefer=case.held)
        found = cost.evaluate(case.request, covered)
        return replace(
            case.fresh,
            stages=covered,
            choices=(),  # it is none of those that were compared
            decode_s=found.decode_s,
            tokens_per_s=found.tokens_per_s,
            bottleneck_s=found.bottleneck_s,
            why=(
                f"Relief: {decision.why}.",
                *case.fresh.why[:1],
                *(line for line in case.fresh.why[1:] if line.startswith(TIMES)),
            ),
        )


def _bare(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    return tuple(replace(stage, standbys=()) for stage in stages)
