"""Writes pace.json: steps of a peer that is slower for a while, and what it tells of that."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.runtime.slowdown import FORGIVEN_S, FORGOTTEN_S, Pace, Step, at_pace, should_take

PATH = beside(__file__, "pace.json")
SEED = 20261129
TRACES = 8
RUNS = ((0, 9), (9, 20))
SESSIONS = (b"\x01" * 16, b"\x02" * 16)
SHOULD_US = 100_000  # of a step: few of them fill a second
TABLES = ({"attn": 1_234_567, "ffn": 999, "head": 30_000_001}, {"attn": 1, "embed": 7})


class Trace:
    """`steps_us` should take so long; times are written in microseconds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pace = Pace()
        self.now_us = 1_000_000
        self.ops: list[list[Any]] = []
        self.number = 0
        self.told = 0

    @property
    def now(self) -> float:
        return self.now_us / 1e6

    def begun(self) -> Step:
        self.number += 1
        step = (self.rng.choice(RUNS), self.rng.choice(SESSIONS), 1, self.number)
        self.pace.begun(self.now, step, SHOULD_US / 1e6)
        self.ops.append(["begun", self.now_us, shown(step), SHOULD_US])
        return step

    def ended(self, step: Step, *, ran: bool = True) -> None:
        self.pace.ended(self.now, step, ran=ran)
        self.ops.append(["ended", self.now_us, shown(step), ran])

    def dropped(self, step: Step) -> None:
        self.pace.dropped(self.now, step[0], step[1])
        self.ops.append(["dropped", self.now_us, shown(step), 0])

    def look(self) -> None:
        milli = self.pace.look(self.now)
        self.ops.append(["look", self.now_us, milli, [self.pace.learned, self.pace.steady(self.now)]])
        self.told += milli is not None
        if milli is not None and self.rng.random() < 0.2:
            self.pace.unheard()
            self.ops.append(["unheard", self.now_us, self.pace.told_milli, 0])

    def work(self, seconds: float, slower: float) -> None:
        """Steps, one or two at a time, with pauses, and a look every quarter of a second."""
        until_us = self.now_us + int(seconds * 1e6)
        looked_us = 0
        under_way: list[Step] = []
        while self.now_us < until_us:
            under_way.append(self.begun())
            if self.rng.random() < 0.2:
                under_way.append(self.begun())
            while under_way:
                self.now_us += int(SHOULD_US * slower * self.rng.uniform(0.8, 1.3))
                step = under_way.pop(0)
                if self.rng.random() < 0.02:
                    self.dropped(step)
                else:
                    self.ended(step, ran=self.rng.random() < 0.98)
            self.now_us += self.rng.randrange(50_000)
            if self.now_us - looked_us > 250_000:
                looked_us = self.now_us
                self.look()

    def rest(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)
        self.look()


def trace(seed: int) -> dict[str, Any]:
    t = Trace(seed)
    t.work(8, 1.4)
    t.work(2, 5.0)  # for a moment
    t.work(5, 1.4)
    if seed % 2:
        t.work(12, 2.3)  # not by so much, and for longer
        t.work(12, 1.4)
    for _ in range(2):
        t.work(8, t.rng.choice((2.0, 4.0, 90.0)))
        if t.rng.random() < 0.5:
            t.rest(FORGIVEN_S * t.rng.choice((0.5, 1, 2)))
        else:
            t.begun()  # it never comes back
            t.rest(FORGOTTEN_S + 1)
        t.work(8, t.rng.choice((1.0, 1.4)))
    assert t.told > 0, seed
    return {"ops": t.ops}


def text() -> str:
    about = (
        "Each op: what, now in microseconds, then [run, session in hex, epoch, position] and the microseconds that the "
        "step should take (begun) or whether it ran (ended); of a look what is told and whether the pace is known, and "
        "steady; of unheard what counts as told. should_take: kinds, decode, prefill, tokens. at_pace: a table and "
        "thousandths."
    )
    kinds = ({"attn": 3, "ffn": 3, "head": 1}, {"attn": 2, "other": 4})
    should = [
        {"given": [each, *TABLES, tokens], "gives": should_take(each, *TABLES, tokens)}
        for each in kinds
        for tokens in (1, 2, 33)
    ]
    paced = [
        {"given": [table, milli], "gives": at_pace(table, milli)}
        for table in TABLES
        for milli in (1, 999, 1000, 4187, 64_000)
    ]
    traces = [trace(SEED + number) for number in range(TRACES)]
    return written(about, {"should_take": should, "at_pace": paced, "traces": traces})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
