"""Plans as text, and requests and answers as JSON: round trips, and hostile bytes that each get a RequestError."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from planner.cost import wording
from planner.errors import PlannerError, RequestError
from planner.reports.plan_text import explain
from planner.service import request_codec
from planner.service.request_codec import decode_request, encode_request
from planner.solvers import placement
from planner.types import Infeasible, Link, PeerProfile, Plan, PlanRequest, Stage, Unit

MIB = 2**20
UNITS = (
    Unit("embed", "embed", 30 * MIB, 0, 0, 2304),
    *(
        unit
        for block in range(16)
        for unit in (
            Unit(f"attn.{block}", "attn", 2 * MIB, 10, 1024, 2304),
            Unit(f"ffn.{block}", "ffn", 3 * MIB, 20, 0, 2304),
        )
    ),
    Unit("head", "head", 30 * MIB, 30, 0, 4),
)


def peer(name: str, memory_mib: int) -> PeerProfile:
    times = {"embed": 1e-5, "attn": 1e-4, "ffn": 2e-4, "head": 2e-3}
    return PeerProfile(name, memory_mib * MIB, 80 * MIB, times, times, 1e-4, {"attn": 5e-5})  # type: ignore[arg-type]


REQUEST = PlanRequest(
    UNITS,
    (peer("anna", 200), peer("bert", 200), peer("carl", 202)),
    tuple(
        Link(a, b, 0.01, 1e7, 5e-4)
        for a in ("anna", "bert", "carl")
        for b in ("anna", "bert", "carl")
        if a != b
    ),
    1024,
    2,
)
TOO_SMALL = replace(REQUEST, peers=(peer("anna", 90),))


def planned(request: PlanRequest) -> Plan:
    plan = placement.plan(request)
    assert isinstance(plan, Plan)
    return plan


def test_a_plan_as_text() -> None:
    assert explain(REQUEST, planned(REQUEST)) == (
        "stage  peer  units              weights  KV      overhead  of pledge        decode   standbys",
        "1      anna  embed, blocks 0-2  45 MiB   6 MiB   80 MiB    66% of 200 MiB   1.01 ms  bert",
        "2      carl  blocks 3-15, head  95 MiB   26 MiB  80 MiB    100% of 202 MiB  6.00 ms  -",
        "hop anna -> carl: 5.73 ms, 2304 bytes",
        "hop carl -> anna: 5.50 ms, 4 bytes (the token, back to the first stage)",
        "one stream: 18.2 ms a token, 54.8 tokens/s; first token of a 512-token prompt after 2083.7 ms",
        "2 sessions of 1024 tokens: 109.6 tokens/s in total; slowest part 6.00 ms a token",
        "Split over 2 peers: none has room for all units; carl comes closest, 50 MiB short.",
        "2 sessions get 109.6 tokens/s together; limit: the round of 18.2 ms that a batch of 1 takes.",
        "The best of all choices and orders of 3 peers.",
    )


def test_an_infeasible_request_as_text() -> None:
    answer = placement.plan(TOO_SMALL)
    assert explain(TOO_SMALL, answer) == (
        "No plan: needs 162 MiB more on anna, for 2 sessions of 1024 tokens; "
        "or fewer sessions, a shorter context, or another peer.",
    )


def test_a_plan_of_another_request_is_refused() -> None:
    with pytest.raises(RequestError, match="no such peer"):
        explain(TOO_SMALL, planned(REQUEST))


@pytest.mark.parametrize(
    ("first", "stop", "text"),
    [
        (0, 34, "embed, blocks 0-15, head"),
        (0, 1, "embed"),
        (1, 3, "block 0"),
        (1, 31, "blocks 0-14"),
        (0, 4, "embed, block 0, attn.1"),
        (4, 7, "ffn.1, block 2"),
        (2, 3, "ffn.0"),
        (33, 34, "head"),
    ],
)
def test_units_as_people_say_them(first: int, stop: int, text: str) -> None:
    assert wording.units_text(REQUEST, first, stop) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1025, "1.1 KiB"),
        (210 * MIB, "210 MiB"),
        (210 * MIB + 1, "211 MiB"),
        (3 * MIB // 2, "1.5 MiB"),
    ],
)
def test_sizes_are_rounded_up(size: int, text: str) -> None:
    assert wording.mib(size) == text


# -- JSON


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST,
        TOO_SMALL,
        replace(REQUEST, objective="throughput", origin="anna"),
        replace(REQUEST, peers=(), links=()),
    ],
)
def test_round_trips(request_: PlanRequest) -> None:
    assert decode_request(encode_request(request_)) == request_


def test_the_encoding_is_canonical_and_defaults_may_be_left_out() -> None:
    raw = json.loads(encode_request(REQUEST))
    assert json.dumps(raw, sort_keys=True, separators=(",", ":")).encode() == encode_request(REQUEST)
    plain = replace(REQUEST, links=tuple(replace(link, overhead_s=0.0) for link in REQUEST.links))
    plain = replace(plain, peers=tuple(replace(p, step_s=0.0, batch_s={}) for p in plain.peers))
    raw = json.loads(encode_request(plain))
    for item in raw["links"]:
        del item["overhead_s"]
    for item in raw["peers"]:
        del item["step_s"], item["batch_s"]
    del raw["objective"], raw["origin"]
    assert decode_request(json.dumps(raw).encode()) == plain


def changed(*path: str | int, value: object) -> bytes:
    """The encoded request with one value replaced (or added); `...` removes it."""
    raw = json.loads(encode_request(REQUEST))
    inner: Any = raw
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected UTF-8 JSON"),
        (b"\xff{}", "expected UTF-8 JSON"),
        (b"[]", "request: expected an object, got"),
        (b"null", "request: expected an object"),
        (b'{"units":[],"units":[]}', "a name occurs twice"),
        (b'{"context": NaN}', "NaN is no number of JSON"),
        (b'{"context": -Infinity}', "-Infinity is no number of JSON"),
        (b"[" * 200_000, "JSON"),
        (b"9" * 5000, "expected"),
        (b" " * (request_codec.MAX_BYTES + 1), "expected at most 4194304 bytes"),
        (changed("units", value=...), "request: expected the field units"),
        (changed("units", value={}), "request.units: expected a list of at most 320"),
        (changed("units", value=[]), "at least one unit"),
        (changed("units", value=[0] * 321), "request.units: expected a list of at most 320"),
        (changed("peers", value=[0] * 65), "request.peers: expected a list of at most 64"),
        (changed("surprise", value=1), "request: expected only the fields units, peers"),
        (changed("context", value=0), "context and sessions of at least 1"),
        (changed("context", value=1.0), "request.context: expected an integer"),
        (changed("context", value=True), "request.context: expected an integer"),
        (changed("context", value=-1), "request.context: expected an integer"),
        (changed("context", value=10**30), "request.context: expected an integer"),
        (changed("sessions", value=5000), "request.sessions: expected an integer from 0 to 4096"),
        (changed("objective", value="beauty"), "request.objective: expected latency or throughput"),
        (changed("objective", value=["latency"]), "request.objective"),
        (changed("origin", value=7), "request.origin: expected 1 to 128 printable"),
        (changed("origin", value=""), "request.origin: expected 1 to 128 printable"),
        (changed("units", 3, "kind", value="conv"), r"request.units\[3\].kind: expected embed or attn"),
        (changed("units", 3, "kind", value=None), r"request.units\[3\].kind"),
        (changed("units", 3, "name", value="x" * 129), r"request.units\[3\].name"),
        (changed("units", 3, "weight_bytes", value=2**53), r"request.units\[3\].weight_bytes"),
        (changed("units", 3, "weight_bytes", value="1"), r"request.units\[3\].weight_bytes"),
        (changed("peers", 0, "peer", value="a\nb"), r"request.peers\[0\].peer"),
        (changed("peers", 0, "peer", value="bert"), "each peer once, got bert"),
        (changed("peers", 0, "decode_s", value=[1]), r"request.peers\[0\].decode_s: expected an object"),
        (changed("peers", 0, "decode_s", value={"conv": 1}), r"decode_s: expected kinds out of"),
        (changed("peers", 0, "decode_s", "attn", value=-1), r"decode_s.attn: expected a number from 0"),
        (changed("peers", 0, "decode_s", "attn", value=1e300), r"decode_s.attn: expected a number from 0"),
        (changed("peers", 0, "decode_s", "attn", value=1e9), "expected seconds from 0 to 1e"),
        (changed("peers", 0, "decode_s", "attn", value=...), "attn is missing"),
        (changed("peers", 0, "holding", value=["packed"]), r"request.peers\[0\].holding: expected"),
        (changed("links", 0, "bytes_per_s", value=0), "bytes_per_s > 0"),
        (changed("links", 0, "rtt_s", value=None), r"request.links\[0\].rtt_s: expected a number"),
        (changed("links", 0, value="anna bert"), r"request.links\[0\]: expected an object"),
        (changed("units", 0, "weight_bytes", value=2**53 - 1), None),
    ],
)
def test_hostile_requests_are_refused_by_name(data: bytes, says: str | None) -> None:
    if says is None:  # the largest size there is: no error, no plan
        answer = placement.plan(decode_request(data))
        assert isinstance(answer, Infeasible)
        assert answer.missing_bytes > 2**52
        return
    with pytest.raises(RequestError, match=says) as caught:
        decode_request(data)
    assert isinstance(caught.value, PlannerError)
    assert len(str(caught.value)) < 500


def test_mutated_requests_are_refused_or_planned() -> None:
    """No other error than RequestError leaves the decoder, whatever is flipped, cut or repeated."""
    rng, good = random.Random(5), encode_request(replace(REQUEST, units=UNITS[-4:], peers=REQUEST.peers[:2]))
    refused = 0
    for _ in range(10_000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at : at + rng.randint(1, 40)]
                case 2:
                    data[at:at] = data[at : at + rng.randint(1, 40)]
                case _:
                    data[at] = rng.choice(b'0123456789eE+-.{}[]",:')
            if not data:
                break
        try:
            placement.plan(decode_request(bytes(data)))
        except RequestError:
            refused += 1
    assert refused > 3000


def test_a_plan_without_any_delay_has_a_finite_rate() -> None:
    zero = dict.fromkeys(("embed", "attn", "ffn", "head"), 0.0)
    request = replace(REQUEST, peers=(PeerProfile("anna", 2**40, 0, zero, zero),), links=())  # type: ignore[arg-type]
    plan = planned(request)
    assert plan.stages == (Stage(0, 34, "anna", (), 140 * MIB, 32 * MIB, 0),)
    assert explain(request, plan)
