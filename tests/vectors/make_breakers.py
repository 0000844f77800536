"""Writes breakers.json: what happened to peers, and how their breakers stood, for both languages."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, written

from peer.transport.circuit_breakers import CALM_MS, PROBE_MS, QUIET_MS, WINDOW_MS, Breakers

PATH = beside(__file__, "breakers.json")
SEED = 20261128
TRACES = 12
OPS = 60
KEYS = ("pa", "pb", "10", "pa>pb", "pb>pa")
PAUSES = (0, 1, 40, 300, QUIET_MS - 1, QUIET_MS, 2 * QUIET_MS, PROBE_MS, WINDOW_MS, CALM_MS)
OFTEN = (10, 10, 20, 20, 4, 8, 4, 2, 1, 1)
DEEDS = ("failed", "succeeded", "chosen", "broke")


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    breakers, now, ops = Breakers(), rng.randrange(10**6), list[dict[str, Any]]()
    keys = KEYS[: rng.choice((1, 2, 5))]
    often = rng.choice(((6, 3, 4, 1), (6, 1, 3, 0), (5, 6, 6, 2)))
    for _ in range(OPS):
        now += rng.choices(PAUSES, OFTEN)[0]
        key, deed = rng.choice(keys), rng.choices(DEEDS, often)[0]
        op: dict[str, Any] = {"now": now, "key": key, "do": deed}
        getattr(breakers, deed)(key, now)
        ops.append(
            {
                **op,
                "allows": [breakers.allows(each, now) for each in keys],
                "order": breakers.order(keys, now),
                "shown": [list(pair) for pair in breakers.shown(now)],
                "quiet_until": breakers.quiet_until(key),
            }
        )
    return {"name": f"random history of seed {SEED + number}", "keys": list(keys), "ops": ops}


def text() -> str:
    about = (
        "Histories of breakers, times in ms: what happened to `key` at `now`, then whether each of `keys` is allowed, "
        "their order, every breaker that is not closed, and until when that of `key` is left alone."
    )
    return written(about, {"traces": [trace(number) for number in range(TRACES)]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
