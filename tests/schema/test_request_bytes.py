"""How long requests and answers may be: what the schema works out is what the longest honest ones need."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from peer.limits import MAX_BODY_BYTES, MAX_ENTRY_BYTES, MAX_ITEMS, MAX_NAME_BYTES, MAX_TEXT
from peer.state.generated.commands import MAX_MESSAGE_BYTES
from peer.wire.generated import requests as generated
from peer.wire.generated.requests import (
    HELD,
    KV_DIGEST,
    LEADER,
    MAX_CLAIMS,
    MAX_HELD_BYTES,
    MAX_RUN_STAGES,
    MAX_VOTERS_TOLD,
    MEASURED,
    PROPOSE,
    RUN_OPEN,
    STATUS,
    WITNESS,
    WORK,
)
from peer.wire.json_codec import Body, dump
from peer.wire.request_kind import RequestKind
from schema.definitions import Number, Reader, SchemaError, Type, load, numbers_of, read_limits
from schema.records import Record, RecordField, Vocabulary
from schema.request_bytes import NEWER_BYTES, STEP_BYTES, max_bytes
from schema.requests import read_requests

ASKED = read_requests(numbers_of(read_limits()))
KINDS = {each.method: each for each in vars(generated).values() if isinstance(each, RequestKind)}
GIVEN = load("requests")["requests"]
LETTER = "\U0001f41f"
MEMBERS = 512
PEER = "p" * MAX_NAME_BYTES
SESSION = "ab" * 16
LATEST = 2**53 - 1


def longest(type_: Type) -> Any:
    """A value of the type whose JSON is as long as any, in lists and texts at their bounds."""
    match type_.name:
        case "text":
            return LETTER * MAX_TEXT
        case "prose":
            return "\x01" * int(type_.number(0).value)
        case "uint" | "integer":
            return LATEST
        case "up_to":
            return int(type_.number(0).value)
        case "flag":
            return False
        case "span":
            return [LATEST - 1, LATEST]
        case "word":
            return max(ASKED.words[type_.type().name], key=len)
        case "pattern":
            return "0" * ASKED.patterns[type_.type().name].longest
        case "maybe":
            return longest(type_.type())
        case "record":
            return longest_of(next(each for each in ASKED.records if each.name == type_.type().name))
    each = longest(type_.type())
    count = int(type_.number(1).value) if len(type_.args) > 1 else MAX_ITEMS
    return [each] * count


def longest_of(record: Record) -> Body:
    """A body with the longest value of each field."""
    return {field.name: longest(field.type) for field in record.fields}


DERIVED = [
    (KINDS[request.method], record, is_answer)
    for request in ASKED.requests
    for record, given, is_answer in (
        (request.record, GIVEN[request.record.name], False),
        (request.answer, GIVEN[request.record.name].get("answer", {}), True),
    )
    if record is not None and record.fields and "max_bytes" not in given
]


@pytest.mark.parametrize(
    ("kind", "record", "is_answer"),
    DERIVED,
    ids=[f"{kind.method}-{record.name}" for kind, record, _ in DERIVED],
)
def test_the_longest_that_the_fields_allow_fits_and_newer_fields_do_too(
    kind: RequestKind[Any, Any], record: Record, is_answer: bool
) -> None:
    body = longest_of(record)
    if is_answer:
        kind.read_answer(body)
    else:
        kind.read(body)
    size, most = len(json.dumps(body)), kind.max_answer_bytes if is_answer else kind.max_body_bytes
    assert size + NEWER_BYTES <= most < size + NEWER_BYTES + STEP_BYTES + size // 10


def command(kind: RequestKind[Any, Any], spelled: bytes) -> Body:
    """A request whose command has these bytes."""
    return {**kind.body(kind.read({"command": ""})), "command": spelled.decode()}


LINK = {
    "src": PEER,
    "dst": PEER,
    "rtt_us": LATEST,
    "bytes_per_s": LATEST,
    "overhead_us": LATEST,
    "relayed": False,
}
CLAIM = {"session": SESSION, "started_ms": LATEST, "peer": PEER, "of": "weights"}
SPAN = [LATEST - 1, LATEST]
HONEST: tuple[tuple[RequestKind[Any, Any], bool, Body], ...] = (
    (RUN_OPEN, False, {
        "run": SESSION, "epoch": LATEST, "model": "m" * MAX_TEXT,
        "spans": [SPAN] * MAX_RUN_STAGES, "peers": [PEER] * MAX_RUN_STAGES,
    }),
    (WORK, False, {"entries": [{**CLAIM, "positions": SPAN, "units": SPAN}] * MAX_CLAIMS}),
    (HELD, False, command(HELD, b'{"x":"' + b"1" * (MAX_HELD_BYTES - 8) + b'"}')),
    (HELD, False, command(HELD, dump({"peer": PEER, "held": [[2**31 - 2, 2**31 - 1]] * MAX_ITEMS}))),
    (MEASURED, False, command(MEASURED, b'"' * MAX_ENTRY_BYTES)),
    (MEASURED, False, command(MEASURED, dump([LINK] * MEMBERS))),
    (PROPOSE, False, command(PROPOSE, b'"' * MAX_ENTRY_BYTES)),
    (PROPOSE, False, command(PROPOSE, ("\u0439" * (MAX_ENTRY_BYTES // 2)).encode())),
    (PROPOSE, False, command(PROPOSE, dump({"text": '"' * MAX_MESSAGE_BYTES}))),
    (PROPOSE, False, command(PROPOSE, dump({"text": "\U0001f41f" * (MAX_MESSAGE_BYTES // 4)}))),
    (LEADER, True, {"leader": PEER, "term": LATEST, "epoch": LATEST, "voters": [PEER] * MAX_VOTERS_TOLD}),
    (KV_DIGEST, True, {
        "runs": [
            {"run": [2 * at, 2 * at + 2], "have": LATEST, "arrays": {f"{of}.{at}": "ab" * 32 for of in ("key", "val")}}
            for at in range(600)
        ]
    }),
    (WITNESS, True, {"rows": "A" * (MAX_BODY_BYTES - 100)}),
    (STATUS, True, {
        **STATUS.answer_body(STATUS.read_answer({
            "name": "n" * MAX_TEXT, "agent": "a" * MAX_TEXT, "runs": [SPAN] * 64, "rtt_us": {},
            **dict.fromkeys(("rss_bytes", "weight_bytes", "kv_bytes", "pledge_bytes", "sessions"), LATEST),
            **dict.fromkeys(("active", "steps", "tokens", "tokens_per_s_milli"), LATEST),
        })),
        "rtt_us": {f"{at:0{MAX_NAME_BYTES}}": LATEST for at in range(MEMBERS)},
        "breakers": [[f"{PEER}>{PEER}", "half-open"]] * MEMBERS,
        "fresh": [PEER] * MEMBERS,
        "step_us": [[LATEST] * 3] * 64,
    }),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "is_answer", "body"), HONEST, ids=lambda each: getattr(each, "method", ""))
def test_what_a_mesh_of_512_members_has_to_say_fits_where_the_schema_says_less_than_the_fields_allow(
    kind: RequestKind[Any, Any], is_answer: bool, body: Body
) -> None:
    size = len(json.dumps(body))
    if is_answer:
        kind.read_answer(body)
        assert size <= kind.max_answer_bytes
    else:
        kind.read(body)
        assert size <= kind.max_body_bytes


def test_no_bound_is_that_of_all_frames_without_need() -> None:
    bounds = [most for kind in KINDS.values() for most in (kind.max_body_bytes, kind.max_answer_bytes)]
    assert [most for most in bounds if most == MAX_BODY_BYTES] == [WITNESS.max_answer_bytes]
    assert max(kind.max_body_bytes for kind in KINDS.values()) == PROPOSE.max_body_bytes < MAX_BODY_BYTES


NUMBERS = {**numbers_of(read_limits()), "MOST": Number("4", 4)}
NO_WORDS = Vocabulary((), {}, {}, {}, ())


def one_field(spelled: str) -> Record:
    """A record with one field of that type."""
    field = RecordField("x", Reader(NUMBERS).type(spelled), None, None, False, False, "", "")
    return Record("XRequest", "", (field,))


@pytest.mark.parametrize(
    ("spelled", "given"),
    [
        ("list(text)", {}),  # may be longer than any frame
        ("uint", {"max_bytes": "4096"}),  # bounds nothing: the field allows less
        ("list(text)", {"max_bytes": "MAX_BODY_BYTES + 1"}),
    ],
)
def test_a_bound_that_is_missing_or_bounds_nothing_is_refused(spelled: str, given: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="max_bytes"):
        max_bytes(NO_WORDS, NUMBERS, one_field(spelled), given)


def test_a_bound_is_worked_out_or_said() -> None:
    assert max_bytes(NO_WORDS, NUMBERS, one_field("uint"), {}) == 2048
    assert max_bytes(NO_WORDS, NUMBERS, one_field("list(text, MOST)"), {}) == 26624
    assert max_bytes(NO_WORDS, NUMBERS, one_field("list(text)"), {"max_bytes": "3 * MOST"}) == 12
    assert max_bytes(NO_WORDS, NUMBERS, replace(one_field("uint"), fields=()), {}) == 2048
