"""What a judge says of a step, when one of those around it does not tell the truth: one liar convicts nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from peer import judging
from peer.activation_log import ActivationLog
from peer.calls import Body
from peer.evidence import Floats
from peer.frames import Open, Step
from peer.judging import Judge, Place
from peer.mesh import Mesh
from peer.sampling import Sampling
from peer.seats import Seat
from peer.tensors import tensor_of

SESSION = bytes(16)
ROUTE = ("u", "p", "d")
RUNS = ((0, 2), (2, 4), (4, 6))
TOKENS = (7, 5, 3, 2, 9, 4)
SPANS = (4, 1)
AT = 4  # the position that is checked


def made_of(stage: int, rows: Floats) -> Floats:
    return (rows * (stage + 2) + stage).astype(np.float32)


def opening(stage: int) -> Open:
    sampling = tuple(Sampling().to_wire())
    return Open(SESSION, 1, 3, ROUTE, stage, "q", 0, 4, 50, sampling, (), 0, 0, 1, 0, 0, (4,), (), (), ())


def seats() -> dict[str, Seat]:
    """Honest ones, which have computed AT + 1 positions."""
    found = {}
    inputs: Any = np.asarray(TOKENS[: AT + 1], np.int32)
    for stage, peer in enumerate(ROUTE):
        seat = Seat(opening(stage), RUNS[stage], Sampling(), ActivationLog(1 << 20), 0.0)
        for at in range(AT + 1):
            seat.take(Step(SESSION, 1, stage, at, 1, 0, tensor_of(inputs[at : at + 1])))
            seat.next_step()
        rows = inputs[:, None].astype(np.float32) if stage == 0 else inputs
        inputs = made_of(stage, rows)
        seat.log.append(0, tensor_of(inputs))
        found[peer] = seat
    return found


PLACE = Place(SESSION, 1, AT, RUNS[1], "p", "u", "d", SPANS)
Twist = Callable[[str, Body, Body], Body]


def honest(_: str, __: Body, said: Body) -> Body:
    return said


async def verdict(place: Place, by_seat: dict[str, Seat], twist: Twist = honest) -> str:
    async def dial(_: str) -> None:
        return None

    async def call(peer: str, method: str, body: Body, timeout_s: float) -> Body:
        assert (method, timeout_s > 0) == ("witness", True)
        first, stop = body["first"], body["stop"]
        if body["side"] == "tokens":
            return twist(peer, body, {"tokens": list(TOKENS[first:stop])})
        seat = by_seat[peer]
        assert seat.opening.stage == body["stage"]
        return twist(peer, body, judging.testimony(seat, str(body["side"]), first, stop))

    node = SimpleNamespace(
        me="v",
        state=SimpleNamespace(members={}),
        dialer=SimpleNamespace(dial=dial),
        calls=SimpleNamespace(call=call),
    )
    manifest = SimpleNamespace(weights="4bit", architecture=SimpleNamespace(hidden=100_000))
    judge = Judge(cast(Mesh, SimpleNamespace(node=node, manifest=manifest, options=None)), lambda _, __: {})

    async def compute(of: Place, inputs: Any) -> Floats:
        rows = inputs[:, None].astype(np.float32) if not of.before else inputs
        row: Floats = made_of(RUNS.index(of.units), rows)[-1]
        return row

    setattr(judge, "_compute", compute)  # noqa: B010 - instead of a model
    return await judge.compare("q", place)


def instead(who: str, side: str, **said: Any) -> Twist:
    return lambda peer, body, true: {**true, **said} if (peer, body["side"]) == (who, side) else true


async def test_an_honest_step_is_the_same_at_each_stage() -> None:
    assert await verdict(PLACE, seats()) == "same"
    first = replace(PLACE, stage=0, units=RUNS[0], peer="u", before="", after="p")
    assert await verdict(first, seats()) == "same"


@pytest.mark.parametrize("factor", [1.01, 0.5, -1.0])
async def test_a_wrong_result_that_was_handed_on_differs(factor: float) -> None:
    by_seat = seats()
    honest_row = made_of(1, made_of(0, np.asarray([[TOKENS[AT]]], np.float32)))
    wrong = tensor_of((honest_row * factor).astype(np.float32))
    by_seat["p"].log.append(AT, wrong)
    by_seat["d"].evidence.newest.append(AT, wrong)
    assert await verdict(PLACE, by_seat) == "differs"


@pytest.mark.parametrize(
    "twist",
    [
        instead("u", "out", rows="AAAAAA=="),
        instead("d", "in", rows="AADIQg=="),
        instead("p", "marks", marks="00" * 8 * (AT + 1)),
        instead("p", "place", spans=[5]),
        instead("q", "tokens", tokens=[1, 2, 3, 4, 5]),
    ],
)
async def test_one_who_tells_another_story_is_in_dispute_and_convicts_nobody(twist: Twist) -> None:
    place = PLACE
    if twist("q", {"side": "tokens"}, {}) != {}:
        place = replace(PLACE, stage=0, units=RUNS[0], peer="u", before="", after="p")
    assert await verdict(place, seats(), twist) in ("disputed", "unable")


@pytest.mark.parametrize(
    "place",
    [
        replace(PLACE, spans=(5,)),
        replace(PLACE, units=RUNS[0]),
        replace(PLACE, before="d"),
        replace(PLACE, after="u"),
    ],
)
async def test_an_asker_cannot_have_another_step_computed_than_the_one_that_was(place: Place) -> None:
    assert await verdict(place, seats()) == "disputed"


@pytest.mark.parametrize("side", ["marks", "out", "in"])
async def test_what_nobody_has_any_more_is_no_evidence(side: str) -> None:
    gone = {"marks": {"marks": None}, "out": {"rows": None}, "in": {"rows": None}}[side]
    for peer in ROUTE:
        twist = instead(peer, side, **gone)
        assert await verdict(PLACE, seats(), twist) in ("same", "unable")
