"""Decides the chunks of a prompt and the cohorts of sessions, and gives their timelines: who does what when.

`simulate` plays them; here is the choice (the least time to a first token, the best rate), the idle shares, and the
bars that a picture draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost import evaluator, simulator
from planner.cost.simulator import Work
from planner.types import PlanRequest, Stage

CHUNKS: Final = (16, 32, 64, 128, 256, 512)
DRAWN_ROUNDS: Final = 2  # of the running answers
DRAWN_CHUNKS: Final = 12
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # more cohorts than that are never in flight


@dataclass(frozen=True, slots=True)
class Schedule:
    """Bars of a timeline, when the last ends, and the share of that in which each peer waits."""

    works: tuple[Work, ...]
    total_ps: int
    idle: tuple[tuple[str, float], ...]
    batch: int  # tokens of a chunk, or sessions of a cohort


def prompt(request: PlanRequest, stages: Sequence[Stage], tokens: int, chunk: int | None = None) -> Schedule:
    """A prompt in chunks; None: the chunk with the least time to a first token, the largest of equals."""
    sizes = [size for size in CHUNKS if size < tokens] or [tokens]
    best = (
        min(sizes, key=lambda size: (evaluator.prefill_ps(request, stages, tokens, size), -size))
        if chunk is None
        else chunk
    )
    trace: list[Work] = []
    total = simulator.prefill_ps(request, stages, tokens, best, trace)
    return _made(stages, trace, total, best)


def decode(request: PlanRequest, stages: Sequence[Stage], rounds: int = 3) -> Schedule:
    """Rounds of all sessions, in the cohorts of the best rate."""
    rows = evaluator.evaluate(request, stages).rows
    works = simulator.timeline(request, stages, rows, rounds)
    return _made(stages, works, max(work.stop_ps for work in works), rows)


def _made(stages: Sequence[Stage], works: Sequence[Work], total: int, batch: int) -> Schedule:
    ordered = tuple(sorted(works, key=lambda work: (work.start_ps, work.where, work.batch)))
    busy = {stage.peer: 0 for stage in stages}
    for work in ordered:
        if work.what == "stage":
            busy[work.where] += work.stop_ps - work.start_ps
    return Schedule(
        ordered,
        total,
        tuple((name, 1 - spent / max(1, total)) for name, spent in sorted(busy.items())),
        batch,
    )


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
    works = decode(request, stages, DRAWN_ROUNDS + 1).works
    return _bars(request, stages, [work for work in works if work.turn < DRAWN_ROUNDS], LETTERS)


def chunks(request: PlanRequest, stages: Sequence[Stage], tokens: int, chunk: int) -> tuple[Bar, ...]:
    """A prompt in numbered chunks through the stages, until its first token."""
    works = prompt(request, stages, tokens, chunk).works
    names = [str(number + 1) for number in range(DRAWN_CHUNKS)]
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
