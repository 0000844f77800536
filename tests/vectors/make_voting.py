"""Writes voting.json for both languages: situations, who should vote and what is done next, and traces of a watch."""

from __future__ import annotations

import random
import re
from dataclasses import fields, is_dataclass
from typing import Any

from tracing import beside, written

from peer.consensus.events import Config, Server
from peer.coordination.voter_policy import (
    PATIENCE,
    Candidate,
    Move,
    Sight,
    Situation,
    Watch,
    next_move,
    wanted_voters,
)

PATH = beside(__file__, "voting.json")
SEED = 20261128
SITUATIONS = 240
TRACES = 8
NOW = 10_000_000
EDGES = sorted({getattr(PATIENCE, field.name) for field in fields(PATIENCE)})
NAMES = (
    "pa",
    "pb",
    "pc",
    "pd",
    "pe",
    "pf",
    "pg",
    "p\u00e9",
    "p\U0001f41f",
    "p\uff5e",
)  # UTF-8 order is not UTF-16's


def lately(rng: random.Random) -> int:
    """A time that is as long ago as some patience, or a little less, or long."""
    return NOW - rng.choice((500, NOW, NOW, NOW, rng.choice(EDGES), rng.choice(EDGES) - 1))


def candidate(rng: random.Random, name: str, window: float, often: float) -> Candidate:
    """`often`: how often something is out of the ordinary."""

    def odd(share: float) -> bool:
        return rng.random() < often * share

    ailing = odd(0.6)
    return Candidate(
        id=name,
        incarnation=rng.choice((2, 4)) if odd(0.2) else 3,
        headless=rng.random() > window,
        durable=not odd(0.6),
        may_vote=not odd(0.3),
        seniority=rng.randrange(6),
        leaving=odd(0.2),
        caught_up=not odd(0.3),
        sight=Sight(
            not odd(0.5),
            lately(rng),
            ailing,
            lately(rng) if ailing or odd(0.5) else None,
            odd(0.3),
        ),
    )


def situation(rng: random.Random) -> Situation:
    names = rng.sample(NAMES, rng.choice((1, 2, 3, 4, 5, 6, 8, 10)))
    window, often = rng.choice((0.0, 0.3, 0.6, 1.0)), rng.choice((0.0, 0.1, 0.1, 0.3, 0.3, 1.0))
    members = [candidate(rng, name, window, often) for name in names]
    leader = names[0]
    votes = rng.choice((0.0, 0.2, 0.5, 0.9, 1.0))
    servers = [
        Server(name, 3, name == leader or (rng.random() < votes and number < 5))
        for number, name in enumerate(names)
        if name == leader or rng.random() > often * 0.2
    ]
    members = [member for member in members if rng.random() > often * 0.1]
    return Situation(
        NOW,
        leader,
        Config(tuple(sorted(servers, key=lambda server: server.id))),
        tuple(members),
        rng.random() < 0.98,
        rng.choice((None, None, None, NOW - PATIENCE.again_ms, NOW - PATIENCE.again_ms + 1)),
    )


def plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def told(move: Move | None) -> Any:
    if move is None:
        return None
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(move.do).__name__).lower()
    return {"do": {"kind": kind, **plain(move.do)}, "why": move.why}


def rows() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    found = []
    for _ in range(SITUATIONS):
        now = situation(rng)
        found.append({**plain(now), "wanted": list(wanted_voters(now)), "move": told(next_move(now))})
    return found


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    watch, now, ops = Watch(), rng.randrange(10**6), list[dict[str, Any]]()
    names = NAMES[: rng.choice((1, 2, 3))]
    for _ in range(30):
        now += rng.choice((0, 1, 1_000, 30_000, 90_000, 200_000))
        name = rng.choice(names)
        op: dict[str, Any] = {"now": now, "peer": name}
        if rng.random() < 0.05:
            op["left"] = True
            watch.keep(lambda peer, gone=name: peer != gone)  # type: ignore[misc]
        else:
            op["connected"], op["ailing"] = rng.random() < 0.5, rng.random() < 0.4
            watch.see(now, name, op["connected"], op["ailing"])
        ops.append({**op, "sights": [plain(watch.sight(now, each)) for each in names]})
    return {"peers": list(names), "ops": ops}


def text() -> str:
    about = (
        "Situations: who should vote, and the next change. Traces of a watch: what it is told of `peer` at `now` "
        "(times in ms), then what it tells of each of `peers`."
    )
    return written(about, {"situations": rows(), "traces": [trace(number) for number in range(TRACES)]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
