"""Writes check_choices.json: which steps are checked by whom, and how far honest results differ, for both languages."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from tracing import beside, shown, written

from peer.audit.check_policy import NextCheck, in_order, judges_of, most_between, pause
from peer.audit.judge import Place, place_of
from peer.audit.norm_envelopes import FORMAT, Envelopes, decode_envelopes, encode_envelopes
from peer.errors import BadCommand
from peer.session.evidence import Computes, distance
from peer.session.sampling import Sampling
from peer.session.sampling_check import fits
from peer.wire.generated.requests import CHECK

PATH = beside(__file__, "check_choices.json")
SEED = 20261128
PEERS = tuple(
    Computes(provider, arithmetic)
    for provider, classes in (
        ("cpu", ("", "cpu/avx512_vnni/rows-1/9f3a", "cpu/avx2/rows-1/0123", "cpu/avx2/rows-2x2-plain/4567")),
        ("wasm", ("", "wasm/simd128/wide/89ab")),
        ("webgpu", ("", "webgpu/intel-gen-12lp/packed/cdef")),
        ("cuda", ("", "cuda/sm90/rows-1/0246")),
    )
    for arithmetic in classes
)
WEIGHTS = ("f32", "8bit", "4bit")
PLACE = Place(bytes(16), 1, 7, (2, 4), "p", "u", "d", (4, 3), also=2)


def kept(rng: random.Random, rolls: list[float]) -> Callable[[], float]:
    """Chance, written down."""

    def roll() -> float:
        rolls.append(rng.random())
        return rolls[-1]

    return roll


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    following, ops = NextCheck(), list[dict[str, Any]]()
    ppm = rng.choice((1, 20_000, 200_000, 1_000_000))
    for _ in range(120):
        if rng.random() < 0.1:
            unable = rng.random() < 0.7
            following.checked(unable=unable)
            ops.append({"unable": unable, "left": following.left})
            continue
        rolls: list[float] = []
        suspected, busy = rng.random() < 0.3, rng.random() < 0.2
        due = following.token(ppm, kept(rng, rolls), suspected=suspected, busy=busy)
        ops.append({"rolls": rolls, "suspected": suspected, "busy": busy, "due": due, "left": following.left})
    return {"name": f"tokens of seed {SEED + number}", "ppm": ppm, "ops": ops}


def pauses(rng: random.Random) -> list[Any]:
    found = []
    for ppm, times in itertools.product((0, 1, 333, 5_000, 20_000, 30_001, 1_000_000), (1, 8)):
        roll = rng.random()
        found.append([ppm, times, roll, pause(ppm, times, lambda roll=roll: roll)])  # type: ignore[misc]
    return found


def told(peer: Computes) -> list[str]:
    return [peer.provider, peer.arithmetic]


def judges(rng: random.Random) -> list[Any]:
    found = []
    for _ in range(40):
        peers = rng.sample(["me", "pa", "pb", "pc", "pd", "pe"], rng.randrange(6))
        holders = [(peer, rng.choice(PEERS)) for peer in peers]
        near = rng.sample(["me", "pa", "pb", "pc"], 2)
        weights, theirs = rng.choice(WEIGHTS), rng.choice(PEERS)
        asked = judges_of(holders, weights, theirs, "me", near)
        found.append(
            {
                "holders": [[peer, *told(judge)] for peer, judge in holders],
                "weights": weights,
                "theirs": told(theirs),
                "near": near,
                "judges": asked,
            }
        )
    return found


def orders(rng: random.Random) -> list[Any]:
    found = []
    for _ in range(10):
        route = rng.choices(["pa", "pb", "pc", "pd"], k=rng.randint(1, 6))
        stages = rng.sample(range(len(route)), len(route))
        suspects = rng.sample(["pa", "pb", "pc", "pd"], rng.randrange(3))
        found.append(
            {
                "stages": stages,
                "route": route,
                "suspects": suspects,
                "order": in_order(stages, route, suspects),
            }
        )
    return found


def distances() -> list[Any]:
    rng = np.random.default_rng(SEED)
    rows = [rng.normal(0, 3, 12).astype(np.float32) for _ in range(4)]
    pairs = [(row, (row * (1 + gap)).astype(np.float32)) for row in rows for gap in (0, 1e-6, 0.01, -2)]
    zero = np.zeros(12, np.float32)
    pairs += [(zero, zero), (rows[0], zero), (rows[0][:5], rows[0])]
    return [
        {
            "seen": seen.tolist(),
            "computed": computed.tolist(),
            "distance": gap if np.isfinite(gap := distance(seen, computed)) else None,
        }
        for seen, computed in pairs
    ]


def tokens() -> list[Any]:
    rng = np.random.default_rng(SEED)
    logits = rng.normal(0, 6, 60).astype(np.float32)
    best = [int(token) for token in np.argsort(-logits)]
    warm = Sampling(temperature=0.8, seed=3, repetition_penalty=1.2, frequency_penalty=0.4)
    found = []
    for sampling, most, token in itertools.product(
        (Sampling(), warm, Sampling(temperature=0.05, seed=4), Sampling(repetition_penalty=1.2)),
        (0.001, 0.25),
        (*best[:5], best[30], best[-1], -1, 60),
    ):
        history, answer = [best[0], best[3], best[3]], [best[3]]
        fine = fits(logits, token, sampling, 9, history, answer, most=most, repeated=False)
        found.append([shown(sampling.to_wire()), most, token, fine])
    about = {"logits": logits.tolist(), "position": 9, "history": history, "answer": answer}
    return [{**about, "cases": found}]


def places() -> list[Any]:
    body = CHECK.body(PLACE.to_request())
    changes: list[dict[str, Any]] = [
        {},
        {"also": -1},
        {"also": 7},
        {"also": "1"},
        {"pinned": True, "before": ""},
        {"pinned": 1},
        {"position": 1024},
        {"position": -1},
        {"units": [2, 2]},
        {"units": [2]},
        {"units": [-1, 2]},
        {"spans": [1] * 513},
        {"spans": ["1"]},
        {"sampling": [0] * 9},
        {"token": None},
        {"peer": 3},
        {"after": None},
        {"session": "zz"},
        {"sampled": -1},
        {"stage": 1.5},
    ]
    found = []
    for change in changes:
        asked = {**body, **change}
        try:
            said: Any = CHECK.body(place_of(CHECK.read(asked)).to_request())
        except BadCommand:
            said = None
        found.append({"asked": asked, "read": said})
    older = {key: value for key, value in body.items() if key not in ("also", "pinned")}
    return [*found, {"asked": older, "read": CHECK.body(place_of(CHECK.read(older)).to_request())}]


def envelopes() -> dict[str, Any]:
    """Files for a model of three units, and rows that cross its borders."""
    borders = Envelopes(((0, 2000), (3000, 4000)))
    fine = encode_envelopes(borders).decode()
    files = [fine, "", "{", "[]", "null", fine.replace(FORMAT, "another"), fine.replace(",[3000,4000]", "")]
    for pair in ("[2,1]", "[0,1000000000]", "[0,true]", "[0.5,1]", "[0,1,2]", "7"):
        files.append(fine.replace("[3000,4000]", pair))
    given = [
        (1, (1.0, 4.0, 2.0)),
        (1, (0.51, 7.9)),
        (1, (2.0, 8.1)),
        (1, (0.49, 9.0)),
        (1, (0.0,)),
        (2, (8.0, 31.0)),
    ]
    given += [(2, (8.0, 33.0)), (0, (1e9,)), (3, (1e9,)), (1, ())]
    rows = []
    for unit, lengths in given:
        row = np.zeros((len(lengths), 4), np.float32)
        row[:, 1] = lengths
        rows.append([unit, lengths, borders.odd(unit, row)])
    return {"files": [[file, decode_envelopes(file.encode(), 3) is not None] for file in files], "rows": rows}


def text() -> str:
    rng = random.Random(SEED)
    about = (
        "pauses: millionths, times as many, roll, tokens until the next check. traces: tokens of answers and ends of "
        "checks, with the rolls that were used, whether a check is due and how many tokens are left then. judges, "
        "orders: who is asked (peers with provider and class), and which stage first. most: the largest distance of "
        "honest results by weights, and by provider and class of the judge and of the peer in question. distances: "
        "null for infinite. tokens: sampling, most, "
        "token, whether it fits. places: bodies of `check`, and what is read of them (null: refused). envelopes: "
        "files, and whether they make sense; unit, lengths of rows (second of four numbers), which of them is odd."
    )
    between = [
        [weights, told(judge), told(theirs), most_between(weights, judge, theirs)]
        for weights in WEIGHTS
        for judge in PEERS
        for theirs in PEERS
    ]
    return written(
        about,
        {
            "pauses": pauses(rng),
            "traces": [trace(number) for number in range(6)],
            "judges": judges(rng),
            "orders": orders(rng),
            "most": between,
            "distances": distances(),
            "tokens": tokens(),
            "places": places(),
            "envelopes": [envelopes()],
        },
    )


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
