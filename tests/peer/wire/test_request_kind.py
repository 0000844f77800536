"""Bodies of requests as the schema has them: what comes back, what is refused, and what may be missing."""

from __future__ import annotations

from typing import Any

import pytest

from peer.errors import BadCommand
from peer.wire.generated.requests import (
    CHECK,
    JOIN,
    KV_COPY,
    LEADER_REQUESTS,
    LEAVING,
    STATUS,
    WAIT,
    WITNESS,
    WORK,
    CheckRequest,
    Claim,
    JoinRequest,
    KvCopyRequest,
    WaitRequest,
    WitnessRequest,
    WorkRequest,
)
from peer.wire.json_codec import dump, load
from peer.wire.request_kind import RequestKind, Sender

SESSION = "ab" * 16
SAID: tuple[tuple[RequestKind[Any], Any], ...] = (
    (STATUS, None),
    (WAIT, WaitRequest(SESSION, 3, 1, 45, 2**20 - 1, -1)),
    (KV_COPY, KvCopyRequest(SESSION, 2, 4, 0, 9)),
    (CHECK, CheckRequest(SESSION, 1, 1023, (2, 9), "p", "", "q", (5, 2), -1, (), 0)),
    (WITNESS, WitnessRequest(SESSION, 0, "match", 0, 4, "00" * 32)),
    (JOIN, JoinRequest("ann", True, 4, 2**53 - 1, fresh=True, epoch=1, headless=False, durable=True)),
    (WORK, WorkRequest((Claim(SESSION, 1, "p", (0, 4), (0, 9), "tokens"),))),
)


@pytest.mark.parametrize(("kind", "said"), SAID, ids=lambda each: getattr(each, "method", ""))
def test_what_is_said_is_heard(kind: RequestKind[Any], said: Any) -> None:
    assert kind.read(load(dump(kind.body(said)))) == said
    newer = {**kind.body(said), "newer": [1]}
    assert kind.read(newer) == said, "fields of a newer peer are passed over"


def test_a_word_of_python_is_spelled_without_a_line_on_the_wire() -> None:
    assert KV_COPY.body(KvCopyRequest(SESSION, 2, 4, 0, 9)) == {
        "session": SESSION,
        "first": 2,
        "stop": 4,
        "from": 0,
        "to": 9,
    }


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (WAIT, {"session": SESSION.upper()}),
        (WAIT, {"plan": 2**20}),
        (WAIT, {"tokens": -1}),
        (WAIT, {"positions": 1.0}),
        (WAIT, {"stage": True}),
        (WITNESS, {"side": "all"}),
        (WITNESS, {"seen": 7}),
        (CHECK, {"spans": [0] * 513}),
        (CHECK, {"units": [4, 4]}),
        (WORK, {"entries": [{}]}),
        (WORK, {"entries": None}),
    ],
)
def test_another_value_is_refused_with_the_name_of_its_field(
    kind: RequestKind[Any], change: dict[str, Any]
) -> None:
    said = next(said for each, said in SAID if each is kind)
    with pytest.raises(BadCommand, match=next(iter(change))):
        kind.read({**kind.body(said), **change})


@pytest.mark.parametrize(
    ("kind", "absent"),
    [(WAIT, {"place": -1}), (CHECK, {"also": -1, "pinned": False}), (WITNESS, {"seen": ""})],
)
def test_an_older_peer_leaves_out_what_came_later_and_nothing_else(
    kind: RequestKind[Any], absent: dict[str, Any]
) -> None:
    body = kind.body(next(said for each, said in SAID if each is kind))
    older = {name: value for name, value in body.items() if name not in absent}
    assert kind.body(kind.read(older)) == {**body, **absent}
    for name in older:
        with pytest.raises(BadCommand, match=name):
            kind.read({each: value for each, value in older.items() if each != name})


def test_an_older_peer_that_joins_is_told_of_its_version_and_not_of_a_field() -> None:
    assert JOIN.read({"name": "ann", "compute": True}).protocol == 0


def test_whoever_leads_answers_its_own() -> None:
    methods = {kind.method for kind in LEADER_REQUESTS}
    assert {"join", "propose", "work"} <= methods
    assert methods.isdisjoint({"status", "wait", "leader"})
    assert (JOIN.sender, LEAVING.sender) == (Sender.ANYONE, Sender.MEMBERS)
