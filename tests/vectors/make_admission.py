"""Writes admission.json: who is called next where all seats are taken, and how long the others will wait, in both
languages.
"""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, written

from peer.session.admission_queue import Busy, Line, Room, head_start_ms, waiting_text

PATH = beside(__file__, "admission.json")
SEED = 20261129
TRACES = 8
OPS = 60
RUNS = ((0, 2), (2, 5))
ASKERS = ("pa", "pb", "pc", "pd")
OWED = (0, -1, 1, 2_000_000, -2_000_000, 123_456_789, -(1 << 53) + 1, (1 << 53) - 1)


def stand(line: Line) -> list[Any]:
    found = [line.find(asker, session) for asker in ASKERS for session in "xyz"]
    return [
        [waiter.asker, waiter.session, list(waiter.run), waiter.place, waiter.wait_ms]
        for waiter in found
        if waiter is not None
    ]


def busy(rng: random.Random) -> Busy:
    return Busy(rng.choice((0, 0, 5, 300)), rng.randrange(40), rng.choice((20, 60, 2000)))


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    line, now, ops = Line(), 1000, list[dict[str, Any]]()
    owed = {asker: rng.choice(OWED) for asker in ASKERS}
    for _ in range(OPS):
        now += rng.choice((0, 50, 1000, 1000, 4000))
        asker, session, run = rng.choice(ASKERS), rng.choice("xyz"), rng.choice(RUNS)
        match rng.choice(
            ("enter", "enter", "enter", "leave", "put back", "gone", "ran", "ran", "ended", "look", "look")
        ):
            case "enter":
                wants = busy(rng)
                line.enter(now, asker, session, run, wants)
                op: dict[str, Any] = {
                    "do": "enter",
                    "who": [asker, session],
                    "run": run,
                    "wants": parts(wants),
                }
            case "leave":
                line.leave(asker, session)
                op = {"do": "leave", "who": [asker, session]}
            case "put back":
                line.put_back(asker, session)
                op = {"do": "put_back", "who": [asker, session]}
            case "gone":
                line.gone(asker)
                op = {"do": "gone", "who": [asker, ""]}
            case "ran":
                gap, count, given = (
                    rng.choice((-5, 0, 90_000, 33_333, 11_000_000)),
                    rng.randint(1, 32),
                    rng.random() < 0.5,
                )
                line.pace.ran(gap, count, given=given)
                op = {"do": "ran", "gap_us": gap, "count": count, "given": given}
            case "ended":
                tokens = rng.randrange(90)
                line.pace.ended(tokens)
                op = {"do": "ended", "tokens": tokens}
            case _:
                rooms = {
                    run: Room(3, [(rng.choice(ASKERS), busy(rng)) for _ in range(rng.choice((1, 2, 3, 3)))])
                    for run in (RUNS if rng.random() < 0.9 else RUNS[:1])
                }
                line.look(now, rooms, lambda asker: owed[asker])
                shown = [
                    [list(run), room.seats, [[asker, parts(each)] for asker, each in room.busy]]
                    for run, room in rooms.items()
                ]
                op = {"do": "look", "rooms": shown}
        kept = [line.kept(each, (asker, session)) for each in RUNS]
        ops.append({"now_ms": now, **op, "stand": stand(line), "but": [asker, session], "kept": kept})
    return {"name": f"trace {number}", "owed": owed, "ops": ops}


def parts(each: Busy) -> list[int]:
    return [each.positions, each.made, each.most]


def text() -> str:
    sizes = sorted({*OWED, 7, 999, 1_999_999, 1 << 36, (1 << 36) + 1})
    times = (-1, 0, 999, 10_000, 10_001, 61_000, 119_000, 119_001, 600_000)
    return written(
        "head_starts: what a balance is worth. words: what a person reads. traces: at each `now_ms` what happened to "
        "the line, then who stands where (asker, session, units, place, wait_ms), and the seats kept of each run but "
        "for one. A Busy is positions, made, most; `owed` is what each asker owes, in thousandths of a credit.",
        {
            "head_starts": [{"owed_milli": owed, "ms": head_start_ms(owed)} for owed in sizes],
            "words": [
                {"place": place, "wait_ms": ms, "text": waiting_text(place, ms)}
                for place in (0, 1, 2, 3, 10, 11)
                for ms in times
            ],
            "traces": [trace(number) for number in range(TRACES)],
        },
    )


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
