"""Writes kv_slots.json: rows given, moved and grown, which the TypeScript suite replays."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.runtime.kv_slots import KvSlots, Move, Shape, spans

PATH = beside(__file__, "kv_slots.json")
SEED = 20260714
TRACES = 12
OPS = 40


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    limit, context = rng.choice(((1, 50), (3, 300), (8, 2048)))
    slots = KvSlots(limit, context)
    names = [bytes([at]) * 16 for at in range(limit + 3)]
    ops: list[dict[str, Any]] = []
    for _ in range(OPS):
        session = rng.choice(names)
        match rng.choice(("admit", "admit", "set_length", "set_length", "release", "grown")):
            case "admit":
                op: dict[str, Any] = {"do": "admit", "gives": slots.admit(session)}
            case "set_length":
                length = rng.choice((0, 1, context, context + 1, rng.randint(0, context), -1))
                try:
                    slots.set_length(session, length)
                    gives: Any = None
                except (ValueError, KeyError):
                    gives = "error"
                op = {"do": "set_length", "length": length, "gives": gives}
            case "release":
                move: Move | None = slots.release(session)
                op = {"do": "release", "gives": shown(move)}
            case _:
                shape = Shape(rng.randint(0, limit), rng.choice((0, 128, 256, context + 1)))
                rows, positions = rng.randint(1, limit), rng.randint(1, context + 1)
                grown = slots.grown(shape, rows, positions)
                op = {
                    "do": "grown",
                    "shape": shown(shape),
                    "rows": rows,
                    "positions": positions,
                    "gives": shown(grown),
                }
        state = [[key.hex(), slots.row(key), length] for key, length in slots.lengths().items()]
        ops.append({**op, "session": session.hex(), "after": state})
    return {
        "name": f"random schedule of seed {SEED + number}",
        "limit": limit,
        "context": context,
        "ops": ops,
    }


def covers() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    rows = []
    for _ in range(20):
        given = sorted(rng.sample(range(12), rng.randint(0, 8)))
        gap = rng.randint(0, 3)
        found = [[span.start, span.stop] for span in spans(given, gap)]
        rows.append({"rows": given, "gap": gap, "gives": found})
    return rows


def text() -> str:
    about = "Traces of KvSlots. after: session, row and length of each row in order. spans: [start, stop) of each."
    return written(about, {"spans": covers(), "traces": [trace(number) for number in range(TRACES)]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
