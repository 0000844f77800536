"""How often an asker has its answers checked: seldom where nobody can, sooner where somebody was found wrong."""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from peer.audit.judge import Place
from peer.audit.step_checks import MOST_MATCHES, CheckRequests, Checks, added_up
from peer.errors import BadCommand
from peer.session.activation_log import ActivationLog
from peer.session.pinned_ends import pinned
from peer.session.pinned_ends_evidence import MOST_BYTES, KeptEnds
from peer.session.seat import Seat
from peer.state.generated.commands import CheckFailed
from peer.transport.request_table import Requests
from peer.wire.generated.frames import Open, Step
from peer.wire.generated.requests import (
    CheckCounts,
    CheckReport,
    CheckVerdict,
    WitnessAnswer,
    WitnessRequest,
    WitnessSide,
)
from peer.wire.tensors import tensor_of
from tests.peer.session.toy_mesh import GREEDY, opening

SESSION = bytes(16)
PPM = 20_000  # one token in 50


def mesh(findings: tuple[CheckFailed, ...] = ()) -> Any:
    fairness = SimpleNamespace(checks_ppm=PPM, findings=findings, quarantined={})
    state = SimpleNamespace(fairness=fairness, members={"p": None, "q": None})
    made = SimpleNamespace(requests=Requests(), started=[])
    made.requests.know(state.members, "")
    made.links = SimpleNamespace(me="q", on=made.requests.on)
    made.view = SimpleNamespace(state=state, me="q")
    made.stage, made.model = SimpleNamespace(), SimpleNamespace()
    made.sessions = SimpleNamespace(tokens=lambda _: [1, 2, 3], own_ends=None, has_rows=lambda _: False)
    return made


def checks_of(around: Any) -> Checks:
    made = Checks(around.links, around, around.started.append)
    around.asked = CheckRequests(around.links, lambda _: made)
    return made


async def gaps(around: Any, verdict: CheckVerdict, monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Tokens between one check and the next."""
    checks = checks_of(around)

    async def check_stage(*_: object) -> CheckVerdict:
        return verdict

    monkeypatch.setattr(checks, "_check_stage", check_stage)
    opening = SimpleNamespace(session=SESSION, route=("p",), sampling=(0,) * 8)
    checks.opened(cast(Open, opening), cast(Any, None))
    found, since = [], 0
    for position in range(2, 20_000):
        checks.emitted(SESSION, position)
        since += 1
        if around.started:
            await around.started.pop()
            found.append(since)
            since = 0
        if len(found) == count:
            break
    return found


async def test_a_step_in_so_many_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await gaps(mesh(), "same", monkeypatch, 40)
    assert all(25 <= gap < 75 for gap in found)
    assert 40 < sum(found) / len(found) < 60


async def test_nobody_hears_the_tokens_of_an_answer_whose_ends_stay_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for sampling, told in (((0,) * 8, (1, 2, 3)), ((), None)):
        around = mesh()
        checks = checks_of(around)
        answers: list[object] = []

        async def check_stage(
            *_: object, checks: Checks = checks, answers: list[object] = answers
        ) -> CheckVerdict:
            checks._asked[SESSION].peers.add("p")
            asks = WitnessRequest(SESSION.hex(), 0, "tokens", 0, 3)
            try:
                answers.append(checks.witness("p", asks).tokens)
            except BadCommand:
                answers.append(None)
            return "same"

        monkeypatch.setattr(checks, "_check_stage", check_stage)
        opening = SimpleNamespace(session=SESSION, route=("p",), sampling=sampling)
        around.sessions.own_ends = SimpleNamespace(
            width=1, embed=lambda ids: tensor_of(np.asarray(ids, np.float32)[:, None])
        )
        await checks._check(cast(Any, SimpleNamespace(opening=opening)), 1)
        assert answers == [told]


async def test_who_is_asked_to_check_an_end_gets_what_goes_in_or_comes_out_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = mesh()
    around.sessions.own_ends = SimpleNamespace(
        width=1, embed=lambda ids: tensor_of(np.asarray(ids, np.float32)[:, None])
    )
    checks = checks_of(around)
    checks.returned.note(SESSION, 1, tensor_of(np.asarray([[7.0]], np.float32)))
    places: list[Place] = []

    async def ask(peer: str, place: Place) -> CheckVerdict:
        """As a judge: everything that this stage needs, and nothing of the other end."""
        places.append(place)
        checks._asked[SESSION].kept.judges.setdefault(peer, set()).add(place.stage)  # type: ignore[union-attr]
        checks._asked[SESSION].peers.add(peer)
        sides = {}
        ends: tuple[WitnessSide, ...] = ("sent", "back")
        for side in ends:
            asks = WitnessRequest(SESSION.hex(), place.stage, side, 1, 2)
            try:
                sides[side] = np.frombuffer(
                    base64.b64decode(checks.witness(peer, asks).rows or ""), np.float32
                )
            except BadCommand:
                continue
        assert {side: list(rows) for side, rows in sides.items()} == {
            0: {"sent": [2.0]},
            1: {},
            2: {"back": [7.0]},
        }[place.stage]
        return "same"

    monkeypatch.setattr(checks, "_ask", ask)
    monkeypatch.setattr(checks, "_judges", lambda place: [f"judge{place.stage}"])
    runs = [SimpleNamespace(first=n, stop=n + 2, helpers=()) for n in (0, 2, 4)]
    frame = SimpleNamespace(
        session=SESSION, route=("p", "x", "y"), sampling=(), spans=(1,), prompt_tokens=1, generated=0
    )
    checks.opened(cast(Open, frame), cast(Any, SimpleNamespace(stages=runs)))
    answer = checks.answer_of(SESSION)
    assert answer is not None
    await checks._check(answer, 1)
    assert sorted((place.stage, place.pinned, place.sampling) for place in places) == [
        (0, True, ()),
        (1, True, ()),
        (2, True, ()),
    ]


def test_no_more_is_shown_than_one_answer_carries() -> None:
    width = MOST_BYTES // 8  # two rows are as much as it may be
    ends = SimpleNamespace(width=width, embed=lambda ids: tensor_of(np.ones((len(ids), width), np.float32)))
    returned = ActivationLog(2 * MOST_BYTES)
    returned.append(0, tensor_of(np.ones((3, width), np.float32)))
    kept = KeptEnds(cast(Any, ends), (1, 2, 3), returned, 1, {"judge": {0}})
    for side in ("sent", "back"):
        assert kept.shown("judge", side, 0, 2).rows
        assert kept.shown("judge", side, 0, 3) == WitnessAnswer()


def test_what_tells_tokens_of_an_asker_that_keeps_its_ends_is_for_that_asker() -> None:
    row = tensor_of(np.ones((1, 2), np.float32))
    around = mesh()
    checks = checks_of(around)
    frame = pinned(opening(SESSION, ("q", "r"), 0))
    seat = Seat(frame, (0, 2), GREEDY, ActivationLog(99), 0.0)
    seat.take(Step(SESSION, 1, 0, 0, 1, 1, row))
    seat.next_step()
    around.stage.core = SimpleNamespace(seat_at=lambda *_: seat)
    around.view.state.plan = around.view.state.proposed = None
    asks = WitnessRequest(SESSION.hex(), 0, "marks", 0, 1)
    assert checks.witness("asker", asks).marks
    with pytest.raises(BadCommand, match="who alone"):
        checks.witness("p", asks)
    guess = replace(asks, side="match", seen="00" * 32)
    for _ in range(MOST_MATCHES):
        assert checks.witness("asker", guess).same is False
    with pytest.raises(BadCommand, match="at most"):
        checks.witness("asker", guess)


async def test_checks_that_nobody_can_make_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await gaps(mesh(), "unable", monkeypatch, 12)
    assert found[1:4] == [4, 8, 16]
    assert all(25 <= gap < 75 for gap in found[6:]), "no more often than where all goes well"


async def test_one_word_has_a_route_checked_sooner_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = int(time.time() * 1000)
    lately = CheckFailed(SESSION.hex(), 1, (0, 2), "p", "x", now_ms)
    found = await gaps(mesh((lately,)), "same", monkeypatch, 60)
    assert 4 <= sum(found) / len(found) <= 9
    long_ago = CheckFailed(SESSION.hex(), 1, (0, 2), "p", "x", now_ms - 3_600_000)
    assert min(await gaps(mesh((long_ago,)), "same", monkeypatch, 20)) >= 25


async def test_who_asks_for_checks_names_members_and_waits_its_turn() -> None:
    around = mesh()
    checks_of(around)
    body = {
        "session": SESSION.hex(),
        "stage": 0,
        "position": 3,
        "units": [0, 2],
        "peer": "p",
        "before": "",
        "after": "nobody",
        "spans": [4],
        "token": -1,
        "sampling": [],
        "sampled": 0,
    }
    with pytest.raises(BadCommand, match="members"):
        await around.requests.answer("q", "check", body)
    around.asked._judging.add("q")
    with pytest.raises(BadCommand, match="one at a time"):
        await around.requests.answer("q", "check", body | {"after": ""})


async def test_what_others_ask_goes_to_the_checks_of_the_model_whose_session_it_is() -> None:
    around, further = mesh(), mesh()
    made = {mark: Checks(of.links, of, of.started.append) for mark, of in ((b"m", further), (b"", around))}
    CheckRequests(around.links, lambda session: made[b"m" if session.startswith(b"m") else b""])
    heard: list[tuple[str, str]] = []
    for mark, checks in made.items():
        name = "further" if mark else "own"
        setattr(checks, "odd", lambda peer, _, __, name=name: heard.append((name, peer)))  # noqa: B010
    for session in (SESSION, b"m".ljust(16, b"\0")):
        await around.requests.answer("p", "odd", {"session": session.hex(), "position": 3})
    assert heard == [("own", "p"), ("further", "p")]


def test_what_was_checked_of_several_models_is_told_together() -> None:
    counts = CheckCounts(1, 2, 3, 4)
    reports = [CheckReport(counts, counts, 5, 6, 7), CheckReport(counts, CheckCounts(0, 0, 0, 1), 1, 1, 9)]
    assert added_up(reports) == CheckReport(CheckCounts(2, 4, 6, 8), CheckCounts(1, 2, 3, 5), 6, 7, 9)
