"""Decides whether, and by which cheapest step, a plan that serves is changed: the ladder, with hysteresis.

Rungs, cheapest first: re-route (somebody else who holds a run serves it), trim or extend (a border moves inside what
both hold), activate a standby, move one boundary (units are loaded), global (a new plan). A rung counts when it
reaches most of what the new plan would gain; a gain must hold over three checks, be worth what moves, and be asked for:
by time, imbalance, memory pressure or communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.adapt import k_failures
from planner.cost import evaluator
from planner.cost.wording import mib, ms
from planner.errors import RequestError
from planner.solvers import held_paths, network, partition
from planner.types import Held, PlanRequest, Stage

Rung = Literal["stay", "re-route", "trim or extend", "activate standby", "move one boundary", "global"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a change is asked for."""

    worse: float = 1.25  # times the new plan's decode latency
    enough: float = 1.10  # a rung counts when within so many times the new plan's
    checks: int = 3  # in a row
    imbalance: float = 3.0  # busiest stage over the mean
    memory: float = 0.95  # of a pledge
    communication: float = 0.8  # share of a round spent on links
    horizon_s: float = 600.0  # over which a gain counts
    bytes_per_s: float = 10e6  # at which units move


@dataclass(frozen=True, slots=True)
class Memory:
    """What the checks so far have seen: how often in a row a change was asked for."""

    in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do. `moved_bytes` and `downtime_s` are what it costs."""

    rung: Rung
    stages: tuple[Stage, ...]
    moved_bytes: int
    downtime_s: float
    why: str
    memory: Memory


def check(
    request: PlanRequest,
    serving: Sequence[Stage],
    held: Held,
    fresh: Sequence[Stage],
    memory: Memory,
    limits: Limits | None = None,
) -> Decision:
    """One check. `fresh`: what the planner would do now from nothing; `held`: runs that peers hold already."""
    bounds = Limits() if limits is None else limits
    stages = tuple(serving)
    now = _latency(request, stages)
    goal = _latency(request, fresh)
    if goal is None or [(s.team, s.stop) for s in fresh] == [(s.team, s.stop) for s in stages]:
        return Decision("stay", stages, 0, 0.0, "the new plan is the one that serves", Memory())
    if any(stage.helpers for stage in (*stages, *fresh)):
        return Decision(
            "stay", stages, 0, 0.0, "slices of a team are not moved for somebody's pace", Memory()
        )
    asked = _asked(request, stages, fresh, now, goal, bounds)
    if asked is None:
        return Decision("stay", stages, 0, 0.0, "nothing asks for a change", Memory())
    seen = memory.in_a_row + 1
    if now is not None and seen < bounds.checks:
        return Decision(
            "stay", stages, 0, 0.0, f"{asked}; seen {seen} of {bounds.checks} times", Memory(seen)
        )
    for rung, option in _rungs(request, stages, held, fresh):
        reached = _latency(request, option)
        if reached is None or (rung != "global" and reached > goal * bounds.enough):
            continue
        bytes_moved = moved_bytes(request, option, held)
        loading_s = bytes_moved / bounds.bytes_per_s
        if now is not None:
            gained_s = (now - reached) / now * bounds.horizon_s
            if reached >= now or gained_s <= loading_s:
                continue
        why = f"{asked}; {ms(reached)} a token by {rung}, {mib(bytes_moved)} moved"
        return Decision(rung, option, bytes_moved, 0.0 if now is not None else loading_s, why, Memory())
    return Decision("stay", stages, 0, 0.0, f"{asked}, but no step is worth what it moves", Memory(seen))


def moved_bytes(request: PlanRequest, stages: Sequence[Stage], held: Held) -> int:
    """Weights that primaries must load: none for what they hold already, in whatever run."""
    known = evaluator.profiles(request)
    total = 0
    for stage in stages:
        runs = held.get(stage.peer, ())
        for at in range(stage.first, stage.stop):
            if not any(first <= at < stop for first, stop in runs):
                total += request.units[at].held_bytes(known[stage.peer].holding)
    return total


def _latency(request: PlanRequest, stages: Sequence[Stage]) -> float | None:
    """Seconds a token; None when the stages cannot run."""
    try:
        return evaluator.evaluate(request, stages).decode_s
    except RequestError:
        return None


def _asked(
    request: PlanRequest,
    stages: Sequence[Stage],
    fresh: Sequence[Stage],
    now: float | None,
    goal: float,
    bounds: Limits,
) -> str | None:
    """Which threshold is crossed, in numbers. One that the new plan crosses as well asks for nothing."""
    if now is None:
        return "the plan cannot serve"
    if now > goal * bounds.worse:
        return f"{ms(now)} a token where {ms(goal)} is possible"
    if goal >= now:
        return None
    busiest = _imbalance(request, stages)
    if busiest > bounds.imbalance >= _imbalance(request, fresh):
        return f"the busiest stage takes {busiest:.1f} times the mean"
    full = _fullness(request, stages)
    name = max(full, key=lambda each: full[each])
    if full[name] > bounds.memory >= max(_fullness(request, fresh).values()):
        return f"{name} is {full[name]:.0%} full"
    share = _communication(request, stages)
    if share > bounds.communication >= _communication(request, fresh):
        return f"{share:.0%} of a round goes over links"
    return None


def _imbalance(request: PlanRequest, stages: Sequence[Stage]) -> float:
    """The busiest stage's time over the mean of all."""
    seconds = evaluator.evaluate(request, stages).stage_s
    mean = sum(seconds) / len(seconds)
    return max(seconds) / mean if mean > 0 else 1.0


def _fullness(request: PlanRequest, stages: Sequence[Stage]) -> dict[str, float]:
    """By peer: which share of its pledge it needs."""
    known = evaluator.profiles(request)
    return {
        name: evaluator.places_bytes(request, known[name], runs) / max(1, known[name].memory_bytes)
        for name, runs in sorted(evaluator.runs_by_peer(stages).items())
    }


def _communication(request: PlanRequest, stages: Sequence[Stage]) -> float:
    """Which share of a round goes over links."""
    found = evaluator.evaluate(request, stages)
    return sum(found.hop_s) / found.decode_s if found.decode_s > 0 else 0.0


def _rungs(
    request: PlanRequest, stages: tuple[Stage, ...], held: Held, fresh: Sequence[Stage]
) -> list[tuple[Rung, tuple[Stage, ...]]]:
    """The steps there are, cheapest first."""
    known = evaluator.profiles(request)
    names = sorted(known)
    made: list[tuple[Rung, tuple[Stage, ...]]] = []
    whole = {name: tuple(held.get(name, ())) for name in names}
    few = held_paths.steps(names, whole) <= held_paths.MOST_STEPS
    routes = held_paths.least(request, names, whole) if few else None
    if routes is not None:
        made.append(("re-route", routes))
    borders = _moved_borders(request, stages, {name: held.get(name, ()) for name in names})
    if borders is not None:
        made.append(("trim or extend", borders))
    inside = k_failures.after_loss(request, whole, (), held_paths.MOST_STEPS)
    if inside is not None:
        made.append(("trim or extend", inside))
    for at, stage in enumerate(stages):
        for name in stage.standbys:
            if name in known:
                taken = list(stages)
                taken[at] = evaluator.make_stage(request, known[name], stage.first, stage.stop)
                made.append(("activate standby", tuple(taken)))
    made += [("move one boundary", option) for option in _one_boundary(request, stages)]
    made.append(("global", tuple(fresh)))
    order: tuple[Rung, ...] = (
        "re-route",
        "trim or extend",
        "activate standby",
        "move one boundary",
        "global",
    )

    def rank(pair: tuple[Rung, tuple[Stage, ...]]) -> tuple[int, float]:
        latency = _latency(request, pair[1])
        return order.index(pair[0]), float("inf") if latency is None else latency

    return sorted(made, key=rank)


def _moved_borders(request: PlanRequest, stages: Sequence[Stage], held: Held) -> tuple[Stage, ...] | None:
    """The same peers in the same order, borders at their best inside what each holds."""
    names = sorted({stage.peer for stage in stages})
    if len(names) < len(stages) or any(name not in held for name in names):
        return None
    net = network.build(request, names, 1, network.held_runs(request, names, held, whole=False))
    path = partition.cut(net, [names.index(stage.peer) for stage in stages])
    return None if path is None else net.stages(request, path)


def _one_boundary(request: PlanRequest, stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    """Every placement in which one border moved, whatever must be loaded."""
    known = evaluator.profiles(request)
    made: list[tuple[Stage, ...]] = []
    if any(stage.peer not in known for stage in stages):
        return made
    for at in range(len(stages) - 1):
        left, right = stages[at], stages[at + 1]
        for border in range(left.first + 1, right.stop):
            if border == left.stop:
                continue
            pair = (
                evaluator.make_stage(request, known[left.peer], left.first, border),
                evaluator.make_stage(request, known[right.peer], border, right.stop),
            )
            option = (*stages[:at], *pair, *stages[at + 2 :])
            bare = tuple(replace(stage, standbys=()) for stage in option)
            if evaluator.refuse(request, bare) is None:
                made.append(bare)
    return made
