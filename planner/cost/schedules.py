"""Timelines of a plan, as bars that a picture draws: which stage works on what, and when. The simulator plays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost import evaluator, simulator
from planner.cost.simulator import Work
from planner.types import PlanRequest, Stage

DRAWN_ROUNDS: Final = 2  # of the running answers
DRAWN_CHUNKS: Final = 12
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # more cohorts than that are never in flight


@dataclass(frozen=True, slots=True)
class Bar:
    """Stage `stage` works on `what` from `start_s` to `stop_s`; the next stage has it at `there_s`."""

    stage: int
    what: str
    group: int  # bars of one cohort or chunk
    start_s: float
    stop_s: float
    there_s: float


def answers(request: PlanRequest, stages: Sequence[Stage]) -> tuple[Bar, ...]:
    """Two rounds of all sessions from a start together, each cohort named by a letter."""
    rows = evaluator.evaluate(request, stages).rows
    works = simulator.timeline(request, stages, rows, DRAWN_ROUNDS + 1)
    return _bars(request, stages, [work for work in works if work.turn < DRAWN_ROUNDS], LETTERS)


def chunks(request: PlanRequest, stages: Sequence[Stage], tokens: int, chunk: int) -> tuple[Bar, ...]:
    """A prompt in numbered chunks through the stages, until its first token."""
    works: list[Work] = []
    simulator.prefill_ps(request, stages, tokens, chunk, works)
    names = [str(number + 1) for number in range(DRAWN_CHUNKS)]
    works.sort(key=lambda work: (work.start_ps, work.where, work.batch))
    return _bars(request, stages, [work for work in works if work.batch < DRAWN_CHUNKS], names)


def _bars(
    request: PlanRequest, stages: Sequence[Stage], works: Sequence[Work], names: Sequence[str]
) -> tuple[Bar, ...]:
    links = evaluator.link_table(request)
    sent = {(work.stage, work.batch, work.turn): work.stop_ps for work in works if work.what == "transfer"}
    bars: list[Bar] = []
    for work in works:
        if work.what == "stage":
            there, follower = work.stop_ps, stages[(work.stage + 1) % len(stages)].peer
            if (work.stage, work.batch, work.turn) in sent:
                there = sent[work.stage, work.batch, work.turn] + evaluator.delay_ps(
                    links[work.where, follower]
                )
            times = (work.start_ps / evaluator.PICO, work.stop_ps / evaluator.PICO, there / evaluator.PICO)
            bars.append(Bar(work.stage, names[work.batch], work.batch, *times))
    return tuple(bars)
