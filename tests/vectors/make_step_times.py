"""Writes step_times.json: steps that begin, overlap, end, break off and are dropped, and what a token takes by them."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.runtime.step_times import Step, StepTimes

PATH = beside(__file__, "step_times.json")
SEED = 20261128
TRACES = 6
OPS = 80
RUNS = ((0, 9), (9, 20))
SESSIONS = (b"\x01" * 16, b"\x02" * 16)


def trace(rng: random.Random) -> dict[str, Any]:
    made, now_us, ops = StepTimes(), 1_000_000, []
    under_way: list[Step] = []
    crowded = rng.random() * 0.5
    for position in range(OPS):
        now_us += rng.randrange(1, 40_000)
        draw = rng.random()
        if not under_way or draw < crowded:
            step = (rng.choice(RUNS), rng.choice(SESSIONS), 1, position)
            counts = rng.random() < 0.9
            made.begun(now_us / 1e6, step, counts=counts)
            under_way.append(step)
            ops.append(["begun", now_us, shown(step), counts])
        elif draw < 0.95:
            step = under_way.pop(rng.randrange(len(under_way)))
            ran = rng.random() < 0.95
            made.ended(now_us / 1e6, step, ran=ran)
            ops.append(["ended", now_us, shown(step), ran])
        elif draw < 0.98:
            run, session, *_ = rng.choice(under_way)
            made.dropped(run, session)
            under_way = [step for step in under_way if step[:2] != (run, session)]
            ops.append(["dropped", now_us, shown((run, session, 0, 0)), False])
        else:
            run = rng.choice(RUNS)
            made.unloaded(run)
            under_way = [step for step in under_way if step[0] != run]
            ops.append(["unloaded", now_us, shown((run, b"", 0, 0)), False])
    return {"ops": ops, "medians_us": shown(made.medians_us())}


def text() -> str:
    rng = random.Random(SEED)
    about = (
        "Each op: what, now in microseconds, [run, session in hex, epoch, position], and whether it counts (begun) or "
        "ran (ended). medians_us: first, stop and microseconds of a token after all of them."
    )
    return written(about, {"traces": [trace(rng) for _ in range(TRACES)]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
