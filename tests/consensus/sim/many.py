"""Runs many schedules on several processes, looks for defects in them, and makes a failing schedule small."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context

from tests.consensus.mutants import core_of
from tests.consensus.sim.healing import run_schedule
from tests.consensus.sim.schedule import Schedule, make_schedule
from tests.consensus.sim.world import Report

BLOCK = 250  # seeds that a process takes at a time


@dataclass(slots=True)
class Sum:
    """What came of a block of seeds."""

    schedules: int = 0
    steps: int = 0
    hopeless: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    slowest_ms: int = 0  # longest healing

    def add(self, report: Report) -> None:
        self.schedules += 1
        self.steps += report.steps
        self.hopeless += report.hopeless
        self.slowest_ms = max(self.slowest_ms, report.healed_ms)
        if report.problem is not None:
            self.problems.append((report.seed, report.problem))
        for what, count in report.done.items():
            self.done[what] = self.done.get(what, 0) + count

    def join(self, other: Sum) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.hopeless += other.hopeless
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.problems += other.problems
        for what, count in other.done.items():
            self.done[what] = self.done.get(what, 0) + count


@dataclass(frozen=True, slots=True)
class Caught:
    """What came of looking for a defect: the first seed that shows it, and what that run said."""

    mutant: str
    seed: int | None
    problem: str
    schedules: int


def run_seeds(first: int, count: int, mutant: str = "") -> Sum:
    """Runs seeds `first` on, in order; with the core of `mutant`, where one is named."""
    make_core = core_of(mutant)
    gc.disable()  # what a run leaves behind are no more than some cycles of its world: collected after each block
    total = Sum()
    for seed in range(first, first + count):
        total.add(run_schedule(make_schedule(seed), make_core=make_core))
    gc.enable()
    gc.collect()
    return total


def run_many(first: int, count: int, workers: int, mutant: str = "") -> Iterator[Sum]:
    """Yields sums of blocks, in the order of their seeds."""
    blocks = [(at, min(BLOCK, first + count - at)) for at in range(first, first + count, BLOCK)]
    run = partial(run_seeds, mutant=mutant)
    if workers <= 1:
        for at, size in blocks:
            yield run(at, size)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, *zip(*blocks, strict=True))


def catch(mutant: str, first: int = 0, most: int = 5000) -> Caught:
    """Returns the first of `most` seeds whose run shows the defect of `mutant`."""
    make_core = core_of(mutant)
    for seed in range(first, first + most):
        report = run_schedule(make_schedule(seed), make_core=make_core)
        if report.problem is not None:
            return Caught(mutant, seed, report.problem, seed - first + 1)
        if seed % 200 == 0:
            gc.collect()
    return Caught(mutant, None, "", most)


def catch_all(mutants: Sequence[str], workers: int, most: int) -> list[Caught]:
    """Returns where each mutant is caught, in the order given."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(catch, most=most), mutants))


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """A smaller schedule that fails, too: without actions, servers and roughness that it does not need."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(schedule):
            if fails(smaller):
                schedule, changed = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    actions = schedule.actions
    size = len(actions)
    while size >= 1:
        for at in range(0, len(actions), size):
            yield replace(schedule, actions=actions[:at] + actions[at + size :])
        size //= 2
    if schedule.calm:
        yield replace(schedule, calm=False)
    if schedule.spares:
        yield replace(schedule, spares=schedule.spares[:-1])
    if schedule.learners:
        yield replace(schedule, learners=schedule.learners[:-1])
    if len(schedule.voters) > 1:
        yield replace(schedule, voters=schedule.voters[:-1])
    pace = schedule.pace
    gentler = (
        replace(pace, loss=0.0),
        replace(pace, duplicates=0.0),
        replace(pace, late=0.0),
        replace(pace, jitter_ms=0),
        replace(pace, disk_jitter_ms=0),
        replace(pace, apply_ms=0),
    )
    for one in gentler:
        if one != pace:
            yield replace(schedule, pace=one)
    last = max([action.at_ms + action.lasts_ms for action in actions] or [0])
    if last < schedule.ends_ms:
        yield replace(schedule, ends_ms=last)
