"""Decides the chunks of a prompt and the cohorts of sessions, and gives their timelines: who does what when.

`simulate` plays them; here is the choice (the least time to a first token, the best rate) and the idle shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner import cost, simulate
from planner.simulate import Work
from planner.types import PlanRequest, Stage

CHUNKS = (16, 32, 64, 128, 256, 512)


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
        min(sizes, key=lambda size: (cost.prefill_ps(request, stages, tokens, size), -size))
        if chunk is None
        else chunk
    )
    trace: list[Work] = []
    total = simulate.prefill_ps(request, stages, tokens, best, trace)
    return _made(stages, trace, total, best)


def decode(request: PlanRequest, stages: Sequence[Stage], rounds: int = 3) -> Schedule:
    """Rounds of all sessions, in the cohorts of the best rate."""
    rows = cost.evaluate(request, stages).rows
    works = simulate.timeline(request, stages, rows, rounds)
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
