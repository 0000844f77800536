"""Bodies of requests as the schema has them: what comes back, what is refused, and what may be missing."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from peer.errors import BadCommand
from peer.wire.generated.requests import (
    CHECK,
    JOIN,
    KV_COPY,
    KV_DIGEST,
    LEADER,
    LEADER_REQUESTS,
    LEAVING,
    MEASURE,
    MEASURE_LINK,
    RELAY,
    RUN_FOLDER,
    STATUS,
    WAIT,
    WITNESS,
    WORK,
    CachedRun,
    CheckAnswer,
    CheckCounts,
    CheckReport,
    CheckRequest,
    Claim,
    JoinAnswer,
    JoinRequest,
    KvCopyAnswer,
    KvCopyRequest,
    KvDigestAnswer,
    LeaderAnswer,
    MeasureAnswer,
    MeasureLinkAnswer,
    RelayAnswer,
    RunFolderAnswer,
    StatusAnswer,
    WaitAnswer,
    WaitRequest,
    WitnessAnswer,
    WitnessRequest,
    WorkRequest,
)
from peer.wire.json_codec import dump, load
from peer.wire.request_kind import RequestKind, Sender

SESSION = "ab" * 16
WITNESSED = tuple(field.name for field in dataclasses.fields(WitnessAnswer))
STATUS_ANSWER = StatusAnswer(
    *("ann", "shoal", ((0, 4), (6, 9)), 1, 2, 3, 4, 5, 6, 7, 8, 9, {"b": 1500}),
    step_us=((0, 4, 99),),
    replayed_bytes=0,
    taken_over=1,
    copied=2,
    breakers=(("b", "open"),),
    checks=CheckReport(CheckCounts(1, 0, 0, 2), CheckCounts(0, 0, 0, 0), 1, 45, 3),
)
SAID: tuple[tuple[RequestKind[Any, Any], Any], ...] = (
    (STATUS, None),
    (WAIT, WaitRequest(SESSION, 3, 1, 45, 2**20 - 1, -1)),
    (KV_COPY, KvCopyRequest(SESSION, 2, 4, 0, 9)),
    (CHECK, CheckRequest(SESSION, 1, 1023, (2, 9), "p", "", "q", (5, 2), -1, (), 0)),
    (WITNESS, WitnessRequest(SESSION, 0, "match", 0, 4, "00" * 32)),
    (JOIN, JoinRequest("ann", True, 4, 2**53 - 1, fresh=True, epoch=1, headless=False, durable=True)),
    (WORK, WorkRequest((Claim(SESSION, 1, "p", (0, 4), (0, 9), "tokens"),))),
)


@pytest.mark.parametrize(("kind", "said"), SAID, ids=lambda each: getattr(each, "method", ""))
def test_what_is_said_is_heard(kind: RequestKind[Any, Any], said: Any) -> None:
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


ANSWERED: tuple[tuple[RequestKind[Any, Any], Any, frozenset[str]], ...] = (
    (LEADER, LeaderAnswer("a", 7, 1, ("a", "b")), frozenset()),
    (MEASURE_LINK, MeasureLinkAnswer(1500, 2**20, 30, True), frozenset()),
    (MEASURE_LINK, MeasureLinkAnswer(1500, 2**20), frozenset({"relayed"})),
    (RELAY, RelayAnswer(("192.0.2.1",), 7, 65535), frozenset()),
    (WAIT, WaitAnswer(2, 900), frozenset({"why"})),
    (WAIT, WaitAnswer(-1, why="it is full"), frozenset()),
    (KV_DIGEST, KvDigestAnswer((CachedRun((0, 4), 9, {"key.3": "ab"}),)), frozenset()),
    (KV_COPY, KvCopyAnswer(9, "ab" * 32), frozenset()),
    (RUN_FOLDER, RunFolderAnswer("/dev/shm/x"), frozenset()),
    (CHECK, CheckAnswer("differs"), frozenset()),
    (WITNESS, WitnessAnswer(token=7), frozenset(WITNESSED) - {"token"}),
    (WITNESS, WitnessAnswer(), frozenset(WITNESSED)),
    (MEASURE, MeasureAnswer(True), frozenset()),
    (JOIN, JoinAnswer(2**53 - 1), frozenset()),
    (STATUS, STATUS_ANSWER, frozenset({"tasks", "term", "commit", "applied", "log_bytes", "fresh"})),
    (WORK, None, frozenset()),
)


@pytest.mark.parametrize(("kind", "answer", "omitted"), ANSWERED)
def test_an_answer_is_heard_as_it_was_said_and_names_only_what_there_is(
    kind: RequestKind[Any, Any], answer: Any, omitted: frozenset[str]
) -> None:
    body = load(dump(kind.answer_body(answer)))
    assert kind.read_answer({**body, "newer": [1]}) == answer
    fields = {field.name for field in dataclasses.fields(answer)} if answer is not None else set()
    assert body.keys() == fields - omitted


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (LEADER, {"leader": None}),
        (LEADER, {"epoch": -1}),
        (LEADER, {"voters": ["a"] * 257}),
        (MEASURE_LINK, {"rtt_us": 1.5}),
        (RELAY, {"hosts": ["192.0.2.1"] * 5}),
        (RELAY, {"mine": 65536}),
        (WAIT, {"place": "1"}),
        (WAIT, {"why": 7}),
        (KV_DIGEST, {"runs": [{"run": [4, 4], "have": 1, "arrays": {}}]}),
        (KV_COPY, {"sha256": "AB" * 32}),
        (RUN_FOLDER, {"folder": ["x"]}),
        (CHECK, {"verdict": "guilty"}),
        (WITNESS, {"tokens": list(range(1025))}),
        (WITNESS, {"marks": "0" * 15}),
        (WITNESS, {"rows": 7}),
        (MEASURE, {"measured": "yes"}),
        (JOIN, {"index": 2**53}),
        (STATUS, {"active": -1}),
        (STATUS, {"step_us": [[0, 9]]}),
        (STATUS, {"breakers": [["a", "open", "b"]]}),
        (STATUS, {"checks": {"made": {}}}),
    ],
)
def test_a_hostile_answer_is_refused_with_the_request_and_the_field(
    kind: RequestKind[Any, Any], change: dict[str, Any]
) -> None:
    answer = next(answer for each, answer, _ in ANSWERED if each is kind)
    with pytest.raises(BadCommand, match=f"the answer to {kind.method}.{next(iter(change))}"):
        kind.read_answer({**kind.answer_body(answer), **change})
    with pytest.raises(BadCommand, match=f"the answer to {kind.method}"):
        kind.read_answer(cast(Any, []))


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
    kind: RequestKind[Any, Any], change: dict[str, Any]
) -> None:
    said = next(said for each, said in SAID if each is kind)
    with pytest.raises(BadCommand, match=next(iter(change))):
        kind.read({**kind.body(said), **change})


@pytest.mark.parametrize(
    ("kind", "absent"),
    [(WAIT, {"place": -1}), (CHECK, {"also": -1, "pinned": False}), (WITNESS, {"seen": ""})],
)
def test_an_older_peer_leaves_out_what_came_later_and_nothing_else(
    kind: RequestKind[Any, Any], absent: dict[str, Any]
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
