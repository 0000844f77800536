"""Writes kv_copy.json: whom a cache of an answer that moves is asked of, what is given, and what is believed."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.errors import BadCommand
from peer.session.kv_transfer_rules import (
    REMEMBERED_PLANS,
    remembered,
    sources_of,
    told_of,
    wish_of,
    wish_request,
)
from peer.state.generated.commands import PlanRecord, PlanStage
from peer.state.mesh_state import MeshState
from peer.wire.generated.requests import KV_COPY

PATH = beside(__file__, "kv_copy.json")
SEED = 20261128
UNITS = 12
ROUNDS = 60
SESSION = "ab" * 16
HASH = "0123456789abcdef" * 4
MOST = 100


def plan_of(version: int, *borders: int) -> PlanRecord:
    """`p0` holds units up to the first border, `p1` those up to the next, and so on; `s` stands by everywhere."""
    stages = tuple(
        PlanStage(first, stop, f"p{place}", ("s",))
        for place, (first, stop) in enumerate(zip((0, *borders), borders, strict=False))
    )
    return PlanRecord(version, stages, 0, 0)


def borders(rng: random.Random) -> tuple[int, ...]:
    return (*sorted(rng.sample(range(1, UNITS), rng.randint(0, 4))), UNITS)


def sources() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    rows = []
    for number in range(ROUNDS):
        stops = borders(rng)
        places = len(stops) + (number % 10 == 9)  # at times a route of another plan
        peers = [f"q{place}" for place in range(places)]
        first, stop = sorted(rng.sample(range(UNITS + 2), 2))
        found = sources_of(plan_of(1, *stops), peers, (first, stop))
        rows.append({"borders": stops, "peers": peers, "run": (first, stop), "sources": shown(found)})
    rows.append({"borders": None, "peers": [], "run": (0, 1), "sources": sources_of(None, (), (0, 1))})
    return rows


def wishes() -> list[dict[str, Any]]:
    asked: dict[str, Any] = {"session": SESSION, "first": 4, "stop": 8, "from": 0, "to": 9}
    changes: list[tuple[str, dict[str, Any]]] = [
        *(("p1", {}), ("p0", {}), ("s", {}), ("", {})),
        *(
            ("p1", {"first": 3}),
            ("p1", {"stop": 9}),
            ("p1", {"stop": 10}),
            ("p1", {"to": 7}),
            ("p1", {"stop": 4}),
        ),
        *(("p1", {"first": 5, "stop": 4}), ("p1", {"from": 4}), ("p1", {"from": 5}), ("p2", {"first": 6})),
        *(("p1", {name: value}) for name in asked for value in (None, 4.5, -1, "9", True, 2**53, [4])),
        *(("p1", {"session": value}) for value in ("ab", "AB" * 16, "ab" * 17, "ag" * 16, "ab" * 15 + " a")),
    ]
    rows = []
    for plan, proposed in (((4, 9), (6, 9)), (None, (4, 9)), ((2, 6, 9), None), (None, None)):
        state = MeshState(
            plan=plan_of(1, *plan) if plan else None, proposed=plan_of(2, *proposed) if proposed else None
        )
        for peer, change in changes:
            body = {name: value for name, value in (asked | change).items() if value is not None}
            try:
                wish = wish_of(KV_COPY.read(body), peer, state)
                assert KV_COPY.body(wish_request(wish)) == body
                found = shown(wish)
            except BadCommand:
                found = None
            rows.append({"plan": plan, "proposed": proposed, "peer": peer, "body": body, "wish": found})
    return rows


def answers() -> list[dict[str, Any]]:
    rows = []
    for have in (0, 1, MOST, MOST + 1, 2**53, -1, 1.5, "1", True, None):
        for sha256 in ("", HASH, HASH.upper(), HASH[1:], HASH + "0", "g" * 64, 7, None):
            body = {"have": have, "sha256": sha256}
            body = {name: value for name, value in body.items() if value is not None}
            try:
                told = shown(told_of(KV_COPY.read_answer(body), MOST))
            except BadCommand:
                told = None
            rows.append({"body": body, "most": MOST, "told": told})
    return rows


def plans() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    known: list[PlanRecord] = []
    rows = []
    for version in range(1, 2 * REMEMBERED_PLANS):
        plan, proposed = version - rng.randint(0, 2), version + rng.randint(-1, 2)
        state = MeshState(
            plan=plan_of(plan, version) if plan > 0 else None, proposed=plan_of(proposed, version, 99)
        )
        known = remembered(known, state)
        after = [[each.version, len(each.stages), each.stages[0].stop] for each in known]
        rows.append({"plan": max(plan, 0), "proposed": proposed, "stop": version, "known": after})
    return rows


def text() -> str:
    about = (
        "Plans cut units at `borders`: p0 holds those up to the first, p1 up to the next; s stands by everywhere. "
        "sources: who caches what of `run` when `peers` hold the places. wishes: what of a kv_copy of `peer` is "
        "understood (null: refused). answers: what of its answer is believed. plans: what is remembered (version, "
        "stages, first border)."
    )
    return written(about, {"sources": sources(), "wishes": wishes(), "answers": answers(), "plans": plans()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
