"""Decides among which few plans a plan is shown: the front of decode time and rate, its knee, and why not the others.

Pure. Every figure is one of `objectives`, so that what is shown is what was ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.cost import evaluator, objectives
from planner.cost.objectives import PROMPT_TOKENS, Option, Wish
from planner.solvers.portfolio import Outcome
from planner.types import PlanChoice, PlanRequest, Stage

MOST: Final = 8  # plans, those that cannot run among them
MOST_UNABLE: Final = 2  # of them that cannot run
ALONE: Final = " alone"  # how the portfolio names one peer that cannot hold everything
MOST_ON_FRONT: Final = 5  # beside the chosen one and the knee


def choices(
    request: PlanRequest, wish: Wish, outcome: Outcome, taken: Sequence[Stage]
) -> tuple[PlanChoice, ...]:
    """`taken` among the plans of `outcome`, fastest first, then those that cannot run; () where there is no other."""
    bare = tuple(replace(stage, standbys=()) for stage in taken)
    chosen = Option(bare, objectives.figures(request, bare), "")
    known = {option.order: option for option in (*outcome.front, *outcome.others)} | {chosen.order: chosen}
    if outcome.chosen is not None:
        known.setdefault(outcome.chosen.order, outcome.chosen)
    front = objectives.pareto(tuple(known.values()))
    knee = objectives.knee(front)
    shown = {option.order: option for option in (chosen, knee, *_spread(front, MOST_ON_FRONT))}
    unable = [each for each in outcome.refused if each.plan.endswith(ALONE)][:MOST_UNABLE]
    for option in outcome.others:
        if len(shown) < MOST - len(unable):
            shown.setdefault(option.order, option)
    best = {option.order for option in front}
    ranked = sorted(
        shown.values(),
        key=lambda option: (option.found.decode_ps, option.found.token_ps, len(option.stages), option.order),
    )
    able = [
        PlanChoice(
            option.name,
            option.found.decode_s,
            option.found.prefill_s / PROMPT_TOKENS,
            option.found.tokens_per_s,
            _fullest(request, option.stages),
            chosen=option is chosen,
            best=option.order in best,
            knee=option.order == knee.order and len(front) > 1,
            why_not="" if option is chosen else objectives.compared(wish, chosen.found, option.found),
        )
        for option in ranked
    ]
    found = (*able, *(PlanChoice(each.plan, why_not=each.reason) for each in unable))
    return found if len(found) > 1 else ()


def _spread(front: Sequence[Option], most: int) -> list[Option]:
    """At most so many of them, both ends included."""
    if len(front) <= most:
        return list(front)
    return [front[round(at * (len(front) - 1) / (most - 1))] for at in range(most)]


def _fullest(request: PlanRequest, stages: Sequence[Stage]) -> int:
    """Bytes on the peer that the plan fills most."""
    peers = evaluator.profiles(request)
    return max(
        evaluator.places_bytes(request, peers[name], runs)
        for name, runs in evaluator.runs_by_peer(stages).items()
    )
