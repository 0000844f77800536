"""Which rows are odd, what a file of envelopes may say, and what an asker makes of word of an odd row."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from peer.audit.envelope_recording import envelopes_path, recorded
from peer.audit.norm_envelopes import FORMAT, Envelopes, decode_envelopes, encode_envelopes, widened
from peer.audit.outlier_reports import Oddities
from peer.audit.step_checks import Answer, CheckRequests, Checks
from peer.errors import BadCommand
from peer.session.effects import RunStep
from peer.transport.request_table import Requests
from peer.wire.generated.requests import OddRequest
from peer.wire.request_kind import RequestKind
from planner.model.store import Store

SESSION = bytes(range(16))
SEEN = [np.array([1.0, 4.0], np.float32), np.array([8.0, 16.0], np.float32)]  # behind two units of three
BORDERS = widened(SEEN)


def rows(*lengths: float) -> Any:
    found = np.zeros((len(lengths), 4), np.float32)
    found[:, 1] = lengths
    return found


@pytest.mark.parametrize(
    ("unit", "given", "expected"),
    [
        (1, (1.0, 4.0, 2.0), None),
        (1, (0.51, 7.9), None),
        (1, (2.0, 8.1), 1),
        (1, (0.49, 9.0), 0),
        (1, (0.0,), 0),
        (2, (8.0, 31.0), None),
        (2, (8.0, 33.0), 1),
        (0, (1e9,), None),
        (3, (1e9,), None),
        (1, (), None),
    ],
)
def test_rows_far_shorter_or_longer_than_any_that_were_seen_are_odd(
    unit: int, given: tuple[float, ...], expected: int | None
) -> None:
    assert BORDERS.odd(unit, rows(*given)) == expected


def test_a_file_says_what_was_written() -> None:
    assert decode_envelopes(encode_envelopes(BORDERS), 3) == BORDERS
    assert Envelopes(((0, 2000), (3000, 4000))) == BORDERS


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b" " * (1 << 21),
        json.dumps({"format": "another", "borders": [[0, 1], [0, 1]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], [2, 1]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], [0, 10**9]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], [0, True]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], [0.5, 1]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], [0, 1, 2]]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], 7]}).encode(),
        json.dumps({"format": FORMAT, "borders": [[0, 1], [0, 3]], "crc32": 1}).encode(),
    ],
)
def test_a_file_that_makes_no_sense_is_as_none(said: bytes) -> None:
    assert decode_envelopes(said, 3) is None


def test_a_model_without_the_file_has_none(tmp_path: Path) -> None:
    assert recorded(Store(tmp_path), "ab" * 32) is None
    assert not envelopes_path(Store(tmp_path), "ab" * 32).exists()


async def test_an_asker_hears_of_an_odd_row_and_not_of_each() -> None:
    heard: list[tuple[str, str, OddRequest]] = []

    async def call(peer: str, kind: RequestKind[OddRequest, None], said: OddRequest, _: float) -> None:
        heard.append((peer, kind.method, said))

    links: Any = SimpleNamespace(call=call)
    stage: Any = SimpleNamespace(units=SimpleNamespace(asker_of=lambda _: "q"))
    nothing: Any = None
    tasks: list[asyncio.Task[None]] = []
    start = lambda step: tasks.append(asyncio.ensure_future(step))  # noqa: E731
    looks = Oddities(links, nothing, stage, nothing, None, start)
    step = RunStep((1, 3), SESSION, 1, 7, None, rows(2.0, 99.0), False, None, False, 0, False)
    looks.look(step)
    assert not looks.seen, "there are no envelopes"
    looks.envelopes = BORDERS
    looks.look(step)
    looks.look(step)
    await asyncio.gather(*tasks)
    assert heard == [("q", "odd", OddRequest(SESSION.hex(), 8))]
    assert (looks.seen, looks.told) == (2, 1)


class Asker:
    """One that has an answer over the route p, q, r, and notes what it has checked."""

    def __init__(self) -> None:
        fairness = SimpleNamespace(checks_ppm=20_000, findings=(), quarantined={})
        state = SimpleNamespace(fairness=fairness, members={})
        self.tokens = list(range(20))
        self.requests = Requests()
        self.requests.know(("q", "r"), "")
        links: Any = SimpleNamespace(me="me", on=self.requests.on)
        view: Any = SimpleNamespace(state=state, me="me")
        sessions: Any = SimpleNamespace(tokens=lambda _: self.tokens)
        nothing: Any = None
        self.tasks: list[asyncio.Task[None]] = []
        start = lambda step: self.tasks.append(asyncio.ensure_future(step))  # noqa: E731
        of: Any = SimpleNamespace(view=view, stage=nothing, sessions=sessions, model=nothing)
        self.checks = Checks(links, of, start)
        CheckRequests(links, lambda _: self.checks)
        self.checked: list[tuple[int, int]] = []
        opening = SimpleNamespace(session=SESSION, route=("p", "q", "r"), sampling=(0,) * 8)
        self.checks.opened(cast(Any, opening), cast(Any, None))

        async def check_stage(_: Answer, stage: int, position: int, *, alone: bool) -> str:
            assert alone
            self.checked.append((stage, position))
            return "same"

        setattr(self.checks, "_check_stage", check_stage)  # noqa: B010 - instead of judges

    async def hears(self, peer: str, position: int = 5, session: bytes = SESSION) -> None:
        await self.requests.answer(peer, "odd", {"session": session.hex(), "position": position})
        await asyncio.gather(*self.tasks)


async def test_the_stage_before_whoever_finds_a_row_odd_is_checked_at_once() -> None:
    asker = Asker()
    await asker.hears("q", 5)
    await asker.hears("r", 6)
    assert asker.checked == [(0, 5), (1, 6)]
    await asker.hears("r", 7)
    assert len(asker.checked) == 2, "one peer brings about one check in a while"


async def test_an_odd_row_is_checked_when_its_token_has_come() -> None:
    asker = Asker()
    asker.tokens = list(range(6))
    await asker.hears("q", 5)
    asker.checks.emitted(SESSION, 5)
    assert asker.checked == []
    asker.tokens.append(6)
    asker.checks.emitted(SESSION, 6)
    await asyncio.gather(*asker.tasks)
    assert asker.checked[:1] == [(0, 5)]


@pytest.mark.parametrize(("peer", "session"), [("p", SESSION), ("stranger", SESSION), ("q", bytes(16))])
async def test_only_later_stages_of_a_running_answer_are_heard(peer: str, session: bytes) -> None:
    asker = Asker()
    with pytest.raises(BadCommand, match="odd"):
        await asker.hears(peer, session=session)
    assert not asker.checked
