"""Decides when each stage of a plan works, for drawing: the schedule of running answers, and that of a prompt.

Pure; the times are those of planner.cost. A stage takes batches one after the other, in the order they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner import cost
from planner.types import Link, PlanRequest, Stage

ROUNDS: Final = 2  # of the running answers that are drawn
MOST_CHUNKS: Final = 12
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Bar:
    """Stage `stage` works on `what` from `start_s` to `stop_s`; the next stage has it at `there_s`."""

    stage: int
    what: str
    group: int  # bars of one batch or chunk
    start_s: float
    stop_s: float
    there_s: float


def decoding(request: PlanRequest, stages: Sequence[Stage], rows: int) -> tuple[Bar, ...]:
    """Two rounds of all promised sessions, in batches of `rows` each named by a letter, once they are under way."""
    peers, links = cost.profiles(request), cost.link_table(request)
    batches = min(len(LETTERS), -(-request.sessions // rows))
    busy = [
        cost.stage_ps(peers[stage.peer], request.units[stage.first : stage.stop], rows) / cost.PICO
        for stage in stages
    ]
    hops = [_hop(request, links, stages, at, rows) for at in range(len(stages))]
    waiting = [(0.0, batch, 0) for batch in range(batches)]  # (ready at, batch, stage)
    done = [0] * batches
    free: dict[str, float] = {}
    bars: list[Bar] = []
    while waiting:
        ready, batch, at = min(
            waiting, key=lambda item: (max(item[0], free.get(stages[item[2]].peer, 0.0)), item)
        )
        waiting.remove((ready, batch, at))
        start = max(ready, free.get(stages[at].peer, 0.0))
        stop = start + busy[at]
        free[stages[at].peer] = stop
        bars.append(Bar(at, LETTERS[batch], batch, start, stop, stop + hops[at]))
        done[batch] += at == len(stages) - 1
        if done[batch] < ROUNDS:
            waiting.append((stop + hops[at], batch, (at + 1) % len(stages)))
    return tuple(bars)


def prompting(request: PlanRequest, stages: Sequence[Stage], tokens: int, chunk: int) -> tuple[Bar, ...]:
    """A prompt in numbered chunks through the stages, until its first token."""
    peers, links = cost.profiles(request), cost.link_table(request)
    sizes = [min(chunk, tokens - start) for start in range(0, tokens, chunk)][:MOST_CHUNKS]
    free: dict[str, float] = {}
    bars: list[Bar] = []
    for number, size in enumerate(sizes):
        ready = 0.0
        for at, stage in enumerate(stages):
            peer = peers[stage.peer]
            seconds = peer.step_s
            for unit in request.units[stage.first : stage.stop]:
                if unit.kind != "head":
                    seconds += peer.prefill_s[unit.kind] * size
                elif number == len(sizes) - 1:
                    seconds += peer.decode_s["head"]
            start = max(ready, free.get(stage.peer, 0.0))
            stop = free[stage.peer] = start + seconds
            last = at == len(stages) - 1
            ready = stop if last else stop + _hop(request, links, stages, at, size)
            bars.append(Bar(at, str(number + 1), number, start, stop, ready))
    return tuple(bars)


def _hop(
    request: PlanRequest, links: dict[tuple[str, str], Link], stages: Sequence[Stage], at: int, rows: int
) -> float:
    here, there = stages[at].peer, stages[(at + 1) % len(stages)].peer
    if here == there:
        return 0.0
    return (
        cost.hop_ps(links[here, there], request.units[stages[at].stop - 1].out_bytes_per_token, rows)
        / cost.PICO
    )
