"""Decides what a new plan is worth beside the stages that serve: whether it is better, who stands by for them, and by
which step the mesh is relieved of a peer that became slower. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.adapt import resharding, serving_plan
from planner.cost import evaluator, independent_copies, standbys
from planner.cost.objectives import Wish
from planner.cost.wording import TIMES
from planner.errors import RequestError
from planner.solvers import strategies
from planner.types import Held, Infeasible, Plan, PlanRequest, Stage

LIMITS: Final = resharding.Limits()


@dataclass(frozen=True, slots=True)
class Serving:
    """The stages that serve, and the runs of units that peers hold."""

    stages: tuple[Stage, ...]
    held: Held
    lost: bool = False  # they can serve no more: what moves then counts most
    first: tuple[int, ...] = ()  # places that are lost, in the order of their repair


@dataclass(frozen=True, slots=True)
class Relieving:
    """A step that relieves once `checks` in a row saw that one is asked for; None: none is worth what it moves."""

    checks: int
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class Beside:
    """What a new plan is beside the stages that serve."""

    better: bool
    kept: Plan | None  # the stages that serve, with others who stand by; None: they cannot serve
    relief: Relieving | None  # None: nothing asks for another plan


def planned(request: PlanRequest, wish: Wish | None, serving: Serving | None) -> Plan | Infeasible:
    """The plan for these peers; after a loss the one for which the fewest bytes move. Raises RequestError."""
    if serving is None or not serving.lost:
        return serving_plan.choose(request, wish)
    wished = serving_plan.default_wish(request) if wish is None else wish
    return serving_plan.choose_after_loss(request, wished, serving.held, serving.stages, serving.first)


def beside(request: PlanRequest, wish: Wish | None, serving: Serving, fresh: Plan) -> Beside:
    """`fresh`: the plan for the same peers."""
    wished = serving_plan.default_wish(request) if wish is None else wish
    try:
        kept = with_other_standbys(request, serving.stages, serving.held)
    except (RequestError, KeyError):
        kept = None
    better = serving_plan.better(request, wished, serving.stages, bare(fresh.stages))
    return Beside(better, kept, _relieving(request, wished, serving, fresh))


def _relieving(request: PlanRequest, wish: Wish, serving: Serving, fresh: Plan) -> Relieving | None:
    stages, target = serving.stages, bare(fresh.stages)
    try:
        first = resharding.check(request, stages, serving.held, target, resharding.Memory(), LIMITS)
        if first.rung != "stay":
            return Relieving(1, relieved(request, wish, serving.held, fresh, first))
        if not first.memory.in_a_row:
            return None
        before = resharding.Memory(LIMITS.checks - 1)
        held = resharding.check(request, stages, serving.held, target, before, LIMITS)
    except (RequestError, KeyError):
        return None
    worth = held.rung != "stay"
    return Relieving(LIMITS.checks, relieved(request, wish, serving.held, fresh, held) if worth else None)


def relieved(
    request: PlanRequest, wish: Wish, held: Held, fresh: Plan, decision: resharding.Decision
) -> Plan:
    """The plan of a step that relieves; that of `fresh` where the step leaves the strategy that is wished."""
    stages = bare(decision.stages)
    if not strategies.keeps(request, wish, stages):
        stages = bare(fresh.stages)
    covered = standbys.with_standbys(request, stages, prefer=held)
    found = evaluator.evaluate(request, covered)
    return replace(
        fresh,
        stages=covered,
        choices=(),  # it is none of those that were compared
        decode_s=found.decode_s,
        tokens_per_s=found.tokens_per_s,
        bottleneck_s=found.bottleneck_s,
        why=(
            f"Relief: {decision.why}.",
            *fresh.why[:1],
            *(line for line in fresh.why[1:] if line.startswith(TIMES)),
        ),
    )


def with_other_standbys(request: PlanRequest, stages: Sequence[Stage], held: Held) -> Plan:
    """`stages` with standbys as they are promised for the peers there are, and what is said of these.

    Raises RequestError, and KeyError where a peer of theirs is not in the request.
    """
    profile = evaluator.profiles(request)
    made = [
        evaluator.make_team(
            request, [profile[name] for name in stage.team], stage.shares, stage.first, stage.stop
        )
        if stage.helpers
        else evaluator.make_stage(request, profile[stage.peer], stage.first, stage.stop)
        for stage in stages
    ]
    covered = standbys.with_standbys(request, made, prefer=held)
    found = evaluator.evaluate(request, covered)
    doubts = independent_copies.doubts(request, covered)
    return Plan(covered, request.objective, found.decode_s, found.tokens_per_s, found.bottleneck_s, doubts)


def bare(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Without those who stand by."""
    return tuple(replace(stage, standbys=()) for stage in stages)
