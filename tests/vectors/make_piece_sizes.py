"""Writes piece_sizes.json: decode batches, pieces of prompts and releases, and how large the next piece may be."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.runtime.piece_sizes import PieceSizes

PATH = beside(__file__, "piece_sizes.json")
SEED = 20261130
TRACES = 8
OPS = 60
SESSIONS = tuple(bytes([number]) * 16 for number in range(1, 5))


def trace(rng: random.Random) -> dict[str, Any]:
    least = rng.choice((1, 4, 16))
    made, now_us, ops = PieceSizes(least), 1_000_000, []
    batch_us, token_us = rng.randrange(2_000, 40_000), rng.randrange(100, 4_000)
    for _ in range(OPS):
        draw = rng.random()
        if draw < 0.55:
            sessions = rng.sample(SESSIONS, rng.randrange(1, 4))
            took_us = rng.randrange(batch_us // 2, 2 * batch_us)
            made.decoded(now_us / 1e6, (now_us + took_us) / 1e6, sessions)
            ops.append(["decoded", now_us, now_us + took_us, shown(sessions)])
            now_us += took_us
        elif draw < 0.85:
            size, session = made.next(now_us / 1e6), rng.choice(SESSIONS)
            took_us = size * rng.randrange(token_us // 2, 2 * token_us)
            made.ran(session, size, took_us / 1e6)
            ops.append(["ran", size, took_us, shown([session])])
            now_us += took_us
        elif draw < 0.93:
            session = rng.choice(SESSIONS)
            made.released(session)
            ops.append(["released", 0, 0, shown([session])])
        now_us += rng.choice((1_000, 5_000, 20_000, 300_000) if rng.random() < 0.2 else (500, 3_000))
        ops.append(["next", now_us, made.next(now_us / 1e6), []])
    return {"least": least, "ops": ops}


def text() -> str:
    rng = random.Random(SEED)
    about = (
        "Each op: what, two numbers and sessions in hex. decoded: begun and ended in microseconds; ran: tokens and "
        "microseconds; next: now in microseconds, and the tokens of the next piece."
    )
    return written(about, {"traces": [trace(rng) for _ in range(TRACES)]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
