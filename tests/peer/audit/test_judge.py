"""What a judge says of a step, when one of those around it does not tell the truth: one liar convicts nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from peer.audit import judge as judging
from peer.audit.judge import Judge, Place, place_of
from peer.audit.recomputation import Recomputing
from peer.errors import BadCommand
from peer.session.activation_log import ActivationLog
from peer.session.evidence import ALIKE, SAME, SAME_CLASS, Floats, span_of
from peer.session.pinned_ends_evidence import rows_answer
from peer.session.sampling import Sampling
from peer.session.seat import Seat
from peer.wire.generated.frames import Open, Step
from peer.wire.generated.requests import CHECK, WITNESS, WitnessAnswer, WitnessRequest
from peer.wire.json_codec import Body
from peer.wire.request_kind import RequestKind
from peer.wire.tensors import tensor_of

SESSION = bytes(16)
ROUTE = ("u", "p", "d")
RUNS = ((0, 2), (2, 4), (4, 6))
TOKENS = (7, 5, 3, 2, 9, 4)
SPANS = (4, 1)
AT = 4  # the position that is checked


def made_of(stage: int, rows: Floats) -> Floats:
    return (rows * (stage + 2) + stage).astype(np.float32)


def embedded(first: int, stop: int) -> Floats:
    return np.asarray(TOKENS[first:stop], np.float32)[:, None]


def opening(stage: int, *, pinned: bool = False) -> Open:
    sampling = () if pinned else tuple(Sampling().to_wire())
    return Open(SESSION, 1, 3, ROUTE, stage, "q", 0, 4, 50, sampling, (), 0, 0, 1, 0, 0, (4,), (), (), ())


def seats(*, pinned: bool = False) -> dict[str, Seat]:
    """Honest ones, which have computed AT + 1 positions."""
    found = {}
    inputs: Any = embedded(0, AT + 1) if pinned else np.asarray(TOKENS[: AT + 1], np.int32)
    for stage, peer in enumerate(ROUTE):
        seat = Seat(opening(stage, pinned=pinned), RUNS[stage], Sampling(), ActivationLog(1 << 20), 0.0)
        for at in range(AT + 1):
            seat.take(Step(SESSION, 1, stage, at, 1, 0, tensor_of(inputs[at : at + 1])))
            seat.next_step()
        rows = inputs[:, None].astype(np.float32) if inputs.ndim == 1 else inputs
        inputs = made_of(stage, rows)
        seat.log.append(0, tensor_of(inputs))
        found[peer] = seat
    return found


PLACE = Place(SESSION, 1, AT, RUNS[1], "p", "u", "d", SPANS)
Twist = Callable[[str, Body, Body], Body]


def honest(_: str, __: Body, said: Body) -> Body:
    return said


async def verdict(
    place: Place,
    by_seat: dict[str, Seat],
    twist: Twist = honest,
    mine: Seat | None = None,
    most: float = SAME,
) -> str:
    async def ask(
        peer: str, kind: RequestKind[WitnessRequest, WitnessAnswer], said: WitnessRequest, timeout_s: float
    ) -> WitnessAnswer:
        assert (kind, timeout_s > 0) == (WITNESS, True)
        true = kind.answer_body(witnessed(peer, said))
        return kind.read_answer(twist(peer, kind.body(said), true))

    def witnessed(peer: str, said: WitnessRequest) -> WitnessAnswer:
        first, stop = said.first, said.stop
        if said.side == "tokens":
            return WitnessAnswer(tokens=TOKENS[first:stop])
        if said.side == "sent":
            return rows_answer(embedded(first, stop))
        if said.side == "back":
            return rows_answer(span_of(by_seat["d"].log, first, stop))
        seat = by_seat[peer]
        assert seat.opening.stage == said.stage
        return judging.testimony(seat, said.side, first, stop, said.seen)

    links: Any = SimpleNamespace(me="v", ask=ask)
    stage: Any = SimpleNamespace(core=SimpleNamespace(seat_at=lambda *_: mine))
    manifest = SimpleNamespace(weights="4bit", hidden=100_000)
    model: Any = SimpleNamespace(manifest=manifest)
    again = cast(Recomputing, Again(computes=mine is None, most=most))
    judge = Judge(links, stage, model, again, lambda _, __: WitnessAnswer())
    return await judge.compare("q", place)


class Again:
    """Computes what RUNS stand for, instead of a model; logits favour the token that follows from the row."""

    def __init__(self, *, computes: bool, most: float) -> None:
        self._computes = computes
        self._most = most

    def served_most(self, _: str, __: tuple[int, int]) -> float:
        return self._most

    async def means(self, run: tuple[int, int], _: str) -> Any:
        assert self._computes, "a shadow has the rows already"
        return SimpleNamespace(stage=RUNS.index(run), most=self._most, repeated=True)

    async def rows(self, means: Any, inputs: Any, _: object) -> Floats:
        return made_of(means.stage, inputs if inputs.ndim == 2 else inputs[:, None].astype(np.float32))

    async def logits(self, _: Any, inputs: Any, __: object, first: int) -> list[Floats]:
        return [logits_at(at) for at in range(first, len(inputs))]


def logits_at(position: int) -> Floats:
    """Of which the next of TOKENS is the best, and token 1 nearly as good."""
    found = np.linspace(0, 1, 12).astype(np.float32)
    found[TOKENS[position + 1]] = 9
    found[1] = 8.9
    return found


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


def wrong_by(share: float) -> dict[str, Seat]:
    """The stage of PLACE hands on a row that is wrong by that share."""
    by_seat = seats()
    row = made_of(1, made_of(0, np.asarray([[TOKENS[AT]]], np.float32))) * np.float32(1 + share)
    by_seat["p"].log.append(AT, tensor_of(row))
    by_seat["d"].evidence.newest.append(AT, tensor_of(row))
    return by_seat


@pytest.mark.parametrize(
    ("share", "most", "expected"),
    [
        (0.0, SAME_CLASS, "same"),
        (1e-6, SAME_CLASS, "differs"),  # within a class a bit tells
        (1e-6, SAME, "same"),
        (0.02, SAME, "differs"),
        (0.02, ALIKE, "same"),  # as a processor of another make may round
        (0.5, ALIKE, "differs"),
    ],
)
@pytest.mark.parametrize("shadows", [False, True])
async def test_how_far_a_result_may_be_goes_by_the_classes(
    share: float, most: float, expected: str, shadows: bool
) -> None:
    if shadows and most > SAME:
        with pytest.raises(AssertionError, match="a shadow has the rows"):  # it computes again, as it must
            await verdict(PLACE, wrong_by(share), mine=shadow(), most=most)
        return
    assert await verdict(PLACE, wrong_by(share), mine=shadow() if shadows else None, most=most) == expected


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


async def test_a_lie_at_another_position_shows_where_that_is_looked_at_too() -> None:
    by_seat = seats()
    false = tensor_of(made_of(1, made_of(0, np.asarray([[TOKENS[2]]], np.float32))) * np.float32(1.01))
    for seat, log in ((by_seat["p"], by_seat["p"].log), (by_seat["d"], by_seat["d"].evidence.newest)):
        rows = [(at, tensor) for at, tensor in log.since(0) or []]
        log.clear(0)
        for at, tensor in rows:
            for place in range(tensor.shape[0]):
                row = false if at + place == 2 else tensor_of(tensor.array()[place : place + 1])
                log.append(at + place, row)
        assert seat.log is not None
    assert await verdict(PLACE, by_seat) == "same"
    assert await verdict(replace(PLACE, also=2), by_seat) == "differs"
    assert await verdict(replace(PLACE, also=3), by_seat) == "same"
    told_otherwise = instead("p", "out", rows="AAAAAA==")
    assert await verdict(replace(PLACE, also=2), by_seat, told_otherwise) == "same", (
        "one word against another"
    )


PINNED_FIRST = replace(PLACE, stage=0, units=RUNS[0], peer="u", before="", after="p", pinned=True)
PINNED_LAST = replace(PLACE, stage=2, units=RUNS[2], peer="d", before="p", after="", pinned=True)


@pytest.mark.parametrize("place", [PINNED_FIRST, replace(PLACE, pinned=True), PINNED_LAST])
async def test_stages_of_an_asker_that_keeps_its_ends_are_checked_without_a_token(place: Place) -> None:
    asked = set[str]()

    def heard(_: str, body: Body, said: Body) -> Body:
        asked.add(str(body["side"]))
        return said

    assert await verdict(place, seats(pinned=True), heard) == "same"
    assert not asked & {"tokens", "token"}
    assert ("marks" in asked) != (place == PINNED_FIRST), "hashes of what is looked up easily"


@pytest.mark.parametrize("place", [PINNED_FIRST, PINNED_LAST])
async def test_a_wrong_end_differs_and_an_asker_accuses_nobody_by_itself(place: Place) -> None:
    by_seat = seats(pinned=True)
    row = embedded(AT, AT + 1)
    for stage in range(place.stage + 1):
        row = made_of(stage, row)
    wrong = tensor_of(row * np.float32(1.01))
    by_seat[place.peer].log.append(AT, wrong)
    if place == PINNED_FIRST:
        by_seat["p"].evidence.newest.append(AT, wrong)
    assert await verdict(place, by_seat) == "differs"
    lied = {"back": "AACAPw=="} if place == PINNED_LAST else {"sent": "AACAPwAAgD8AAIA/AACAPwAAgD8="}
    for side, encoded in lied.items():
        assert await verdict(place, seats(pinned=True), instead("q", side, rows=encoded)) == "disputed"
    for side in ("match", "sent", "back"):
        gone = await verdict(place, seats(pinned=True), instead(place.peer, side, same=None))
        assert gone in ("same", "unable")


async def test_a_shadow_of_a_pinned_end_has_its_rows_already() -> None:
    frame = replace(opening(0, pinned=True), role=1)
    mine = Seat(frame, RUNS[0], Sampling(), ActivationLog(1 << 20), 0.0)
    for at in range(AT + 1):
        mine.take(Step(SESSION, 1, 0, at, 1, 0, tensor_of(embedded(at, at + 1))))
        mine.next_step()
    mine.log.append(0, tensor_of(made_of(0, embedded(0, AT + 1))))
    mine.computed = AT + 1
    assert await verdict(PINNED_FIRST, seats(pinned=True), mine=mine) == "same"


TAIL = Place(
    SESSION, 2, AT, RUNS[2], "d", "p", "", SPANS, TOKENS[AT + 1], tuple(Sampling().to_wire()), sampled=1
)


@pytest.mark.parametrize(
    ("drawn", "told", "expected"),
    [
        ((TOKENS[4], TOKENS[5]), (TOKENS[4], TOKENS[5]), "same"),
        ((TOKENS[4], 1), (TOKENS[4], 1), "differs"),
        ((1, TOKENS[5]), (1, TOKENS[5]), "differs"),
        ((TOKENS[4], 1), (TOKENS[4], TOKENS[5]), "disputed"),
        ((TOKENS[4], 1), (TOKENS[4], None), "unable"),
        ((1, TOKENS[5]), (None, TOKENS[5]), "same"),
    ],
    ids=["as drawn", "last", "one before", "not its own", "forgotten", "drawn by another"],
)
async def test_a_last_stage_answers_for_the_tokens_that_it_drew_lately(
    drawn: tuple[int, int], told: tuple[int | None, int | None], expected: str
) -> None:
    def twist(_: str, body: Body, said: Body) -> Body:
        if body["side"] == "tokens":
            return {"tokens": [*TOKENS[:AT], drawn[0]][body["first"] : body["stop"]]}
        if body["side"] == "token":
            return {"token": dict(zip((AT, AT + 1), told, strict=True))[body["first"]]}
        return said

    assert await verdict(replace(TAIL, token=drawn[1]), seats(), twist) == expected


def test_a_request_names_another_position_only_before_its_own() -> None:
    assert place_of(replace(PLACE, also=2).to_request()).also == 2
    body = CHECK.body(PLACE.to_request())
    del body["also"]
    assert place_of(CHECK.read(body)).also == -1, "older askers do not say it"
    for also in (AT, AT + 1, -2, "1"):
        with pytest.raises(BadCommand, match="also"):
            place_of(CHECK.read(CHECK.body(PLACE.to_request()) | {"also": also}))


def shadow(inputs: Floats | None = None) -> Seat:
    """Of the stage of PLACE, which computed what came to it."""
    seat = Seat(replace(opening(1), role=1), RUNS[1], Sampling(), ActivationLog(1 << 20), 0.0)
    came = made_of(0, np.asarray(TOKENS[: AT + 1], np.float32)[:, None]) if inputs is None else inputs
    for at in range(AT + 1):
        seat.take(Step(SESSION, 1, 1, at, 1, 0, tensor_of(came[at : at + 1])))
        seat.next_step()
    seat.log.append(0, tensor_of(made_of(1, came)))
    seat.computed = AT + 1
    return seat


async def test_a_shadow_compares_with_what_it_computed_itself() -> None:
    assert await verdict(PLACE, seats(), mine=shadow()) == "same"
    by_seat = seats()
    wrong = tensor_of(made_of(1, made_of(0, np.asarray([[TOKENS[AT]]], np.float32))) * np.float32(1.01))
    by_seat["p"].log.append(AT, wrong)
    by_seat["d"].evidence.newest.append(AT, wrong)
    assert await verdict(PLACE, by_seat, mine=shadow()) == "differs"


@pytest.mark.parametrize("why", ["behind", "serves", "other inputs", "other units", "forgot"])
async def test_a_shadow_that_knows_otherwise_computes_like_others(why: str) -> None:
    seat = shadow(np.ones((AT + 1, 1), np.float32) if why == "other inputs" else None)
    match why:
        case "behind":
            seat.computed = AT
        case "serves":
            seat.opening = opening(1)
        case "other units":
            seat.run = (2, 5)
        case "forgot":
            seat.log.clear(AT + 1)
    with pytest.raises(AssertionError, match="a shadow has the rows"):
        await verdict(PLACE, seats(), mine=seat)
