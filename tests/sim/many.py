"""Runs many schedules on several processes, with or without a defect put into the cores, and gathers what was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from tests.sim.schedule import make_schedule
from tests.sim.switches import SWITCHES
from tests.sim.world import Report, run_schedule

BLOCK = 250  # seeds that a process takes at a time


@dataclass(frozen=True, slots=True)
class Caught:
    """What came of looking for a defect: the first seed that shows it, and what that run said."""

    switch: str
    seed: int | None
    problem: str
    schedules: int


def run_seeds(first: int, count: int) -> list[Report]:
    """The reports of seeds `first` on, in order."""
    return [run_schedule(make_schedule(seed)) for seed in range(first, first + count)]


def run_many(first: int, count: int, workers: int) -> Iterator[Report]:
    """Reports in the order of their seeds."""
    blocks = [(at, min(BLOCK, first + count - at)) for at in range(first, first + count, BLOCK)]
    if workers <= 1:
        for at, size in blocks:
            yield from run_seeds(at, size)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for reports in pool.map(run_seeds, *zip(*blocks, strict=True)):
            yield from reports


def catch(switch: str, first: int = 0, most: int = 2000) -> Caught:
    """Looks for the first of `most` seeds whose run shows the defect `switch`."""
    with SWITCHES[switch].applied():
        for seed in range(first, first + most):
            problem = problem_of(seed)
            if problem is not None:
                return Caught(switch, seed, problem, seed - first + 1)
    return Caught(switch, None, "", most)


def problem_of(seed: int) -> str | None:
    """What is wrong with one run. A core that raises is wrong too."""
    try:
        report = run_schedule(make_schedule(seed))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return report.problems[0] if report.problems else None


def catch_all(workers: int, most: int) -> list[Caught]:
    """Every switch, in their order."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(catch, most=most), SWITCHES))
