"""Messages as bytes: all kinds there and back; cut, changed and made-up bytes are refused, and name their field."""

from __future__ import annotations

import random

import msgpack
import pytest

from peer.consensus import trace_json
from peer.consensus.errors import BadMessage
from peer.consensus.events import (
    AddLearner,
    Boot,
    ChangeConfig,
    Entry,
    HardState,
    Promote,
    Propose,
    Received,
    Role,
    Send,
    StoreSnapshot,
    founding,
)
from peer.consensus.message_codec import MAX_INT, config_bytes, decode, encode, parse_config
from peer.consensus.messages import (
    Append,
    AppendReply,
    Body,
    Install,
    InstallReply,
    Message,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.peer.consensus.hands import config_of

ENTRIES = (
    Entry(5, 2, "noop", b""),
    Entry(6, 2, "config", config_bytes(config_of("aé", "c"))),
    Entry(7, 3, "command", bytes(range(256))),
)
BODIES: list[Body] = [
    PreVote(4, 9, 3),
    PreVoteReply(4, True),
    Vote(9, 3, False),
    VoteReply(True),
    Append(12, 4, 2, 4, ENTRIES),
    Append(13, 0, 0, 0, ()),
    AppendReply(12, False, 7, 3, 2),
    Install(14, 7, 2, config_of("ab"), 10, 99, 2, b"abc"),
    InstallReply(14, 7, 2, 5),
    TimeoutNow(),
    ReadIndex(MAX_INT),
    ReadIndexReply(3, True, 7),
]


def message(body: Body) -> Message:
    return Message("mesh", 1, "aé", 2, 3, 3, body)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_there_and_back(body: Body) -> None:
    packed = encode(message(body))
    assert decode(packed) == message(body)
    assert trace_json.message_of(trace_json.text_of(message(body))) == message(body)
    later = msgpack.unpackb(packed) | {"zz": [1, 2]}
    assert decode(msgpack.packb(later)) == message(body), "keys of later versions are skipped"
    for cut in range(len(packed)):
        with pytest.raises(BadMessage):
            decode(packed[:cut])


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_missing_or_wrong_field_is_named_or_refused(body: Body) -> None:
    wire = msgpack.unpackb(encode(message(body)))
    for key in wire:
        for wrong in (None, -1, 2**53, 1.5, "x" * 200, b"x", [], [[1]], {"a": 1}, True):
            changed = wire | {key: wrong}
            if wrong is True and isinstance(wire[key], bool):
                continue
            if wrong == [] and key == "e":
                continue
            if wrong == b"x" and isinstance(wire[key], bytes):
                continue
            with pytest.raises(BadMessage, match=r"^[a-z_]+: expected .*, got "):
                decode(msgpack.packb(changed))


@pytest.mark.parametrize(
    ("body", "change", "field"),
    [
        (4, {"p": 0}, "prev_term"),
        (4, {"r": 4}, "entries"),
        (4, {"e": [[9, 1, b""]]}, "entries"),
        (4, {"e": [[0, 1, b""]]}, "entries"),
        (4, {"e": [[2, 1, b""], [1 + 1, 0, b"x"]]}, "entries"),
        (4, {"e": [[2, 3, b""]]}, "entries"),
        (4, {"e": [[2, 2, b"{}"]]}, "config"),
        (4, {"e": [[2, 1, b""]] * 1025}, "message"),
        (4, {"p": MAX_INT}, "prev_index"),
        (7, {"f": 8}, "offset"),
        (7, {"x": 0}, "snapshot_term"),
        (7, {"r": 9}, "snapshot_term"),
        (7, {"n": 2**40}, "total"),
        (7, {"z": 2**32}, "crc"),
        (7, {"c": [["b", 1, True], ["a", 1, True]]}, "config"),
        (7, {"c": [["a", 1, True], ["a", 1, True]]}, "config"),
        (7, {"c": [["a", 1, False]]}, "config"),
        (7, {"c": [["", 1, True]]}, "config"),
        (0, {"k": 11}, "kind"),
        (0, {"s": ""}, "sender"),
        (0, {"s": "é" * 65}, "sender"),
    ],
)
def test_fields_that_do_not_fit_each_other(body: int, change: dict, field: str) -> None:
    wire = msgpack.unpackb(encode(message(BODIES[body])))
    with pytest.raises(BadMessage, match=f"^{field}: "):
        decode(msgpack.packb(wire | change))


def test_hostile_bytes_raise_nothing_else() -> None:
    rng = random.Random(7)
    packed = [encode(message(body)) for body in BODIES]
    good = 0
    for _ in range(6000):
        data = bytearray(rng.choice(packed))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            found = decode(bytes(data))
        except BadMessage:
            continue
        good += 1
        assert decode(encode(found)) == found
    assert good > 0
    for data in (b"", b"\xc1", b"\x80", b"\x93\x01\x02\x03", b"\xdf\xff\xff\xff\xff", bytes(5 << 20)):
        with pytest.raises(BadMessage):
            decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"{}", b'{"servers":{}}', b'{"servers":[]}', b'{"servers":[["a",1]]}', b"[" * 100_000,
        b'{"servers":[["a",1,1]]}', b'{"servers":[["a",1.5,true]]}', b'{"servers":[["a",true,true]]}', b"\xff",
        b'{"servers":[["\\ud800",1,true]]}',
    ],
)  # fmt: skip
def test_configurations_that_are_none(data: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_config(data)


def test_configurations_there_and_back() -> None:
    config = config_of("abé", "cd")
    assert parse_config(config_bytes(config)) == config


def test_events_and_effects_in_traces() -> None:
    boot = Boot(HardState(2, "a"), founding("a", 3, b"x"), ENTRIES, "mesh", 0, "a", 3, 9)
    events = [boot, Propose(b"x", 1), ChangeConfig(AddLearner("b", 2), 3), ChangeConfig(Promote("b"), 3)]
    events += [Received("b", message(body)) for body in BODIES]
    for event in events:
        assert trace_json.event_of(trace_json.text_of(event)) == event
    effects = [
        Role("leader", 3, "a"),
        StoreSnapshot(4, founding("a", 3), 2, 1),
        Send("b", message(BODIES[4])),
    ]
    for effect in effects:
        assert trace_json.effect_of(trace_json.text_of(effect)) == effect
    assert (
        trace_json.text_of(Role("leader", 3, "a")) == '{"kind":"role","leader":"a","role":"leader","term":3}'
    )
