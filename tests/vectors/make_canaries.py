"""Writes canaries.json: whom a coordinator tries with known answers, when, and what it asks, for both languages."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, written

from peer.audit.canaries import ABOUT, ASKED, LOOK_S, TOKENS, Due, Times

PATH = beside(__file__, "canaries.json")
SEED = 20261130
TRACES = 8
OPS = 40
PEERS = ("pa", "pb", "pc", "pd", "pe")


class Rolls(random.Random):
    """Chance that is written down."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.drawn: list[float] = []

    def random(self) -> float:
        self.drawn.append(round(super().random(), 6))
        return self.drawn[-1]

    def taken(self) -> list[float]:
        drawn, self.drawn = self.drawn, []
        return drawn


def trace(number: int) -> dict[str, Any]:
    rng, rolls = random.Random(SEED + number), Rolls(SEED - number)
    due, now_s, ops = Due(Times(), rolls), 100.0, []
    leads, peers = rng.random() < 0.5, rng.sample(PEERS, 3)
    for _ in range(OPS):
        now_s += rng.choice((LOOK_S, 30.0, 300.0, 2000.0))
        if rng.random() < 0.15:
            leads = not leads
        if rng.random() < 0.2:
            peers = rng.sample(PEERS, rng.randint(0, len(PEERS)))
        found = due.look(now_s, leads, peers)
        ops.append({"do": "look", "now_s": now_s, "leads": leads, "peers": list(peers), "due": found})
        ops[-1]["rolls"] = rolls.taken()
        for peer in found:
            what = rng.choice(("tried", "tried", "busy", ""))
            if what:
                (due.tried if what == "tried" else due.busy)(now_s, peer)
                ops.append({"do": what, "now_s": now_s, "peer": peer, "rolls": rolls.taken()})
    return {"name": f"seed {SEED + number}", "ops": ops}


def text() -> str:
    about = (
        "`traces`: who coordinates looks who of `peers` is `due`, and has `tried` them, or found no room (`busy`); "
        "`rolls` is what chance gave. `questions`: what is asked, and about what; `tokens`: of an answer."
    )
    tables = {
        "traces": [trace(number) for number in range(TRACES)],
        "questions": [{"asked": ASKED, "about": ABOUT, "tokens": TOKENS}],
    }
    return written(about, tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
