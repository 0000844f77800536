"""What abusive clients send, by kind: requests of HTTP, messages to the signaling server, frames of members. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from peer.wire.generated.requests import PROPOSE
from planner.service.request_codec import MAX_PEERS, MAX_UNITS, encode_request
from planner.types import Link, PeerProfile, PlanRequest, Unit, UnitKind

BODY_BYTES: Final = 3_900_000  # just within what the gateway takes
ENDLESS_BYTES: Final = 1 << 30  # of a body that is announced and never ends
SHORT_CHARACTERS: Final = 1_400  # read by the gateway itself, and not by a process of its own
SLOW_AT_ONCE: Final = 30  # bodies that one client sends at a time
MESSAGE_BYTES: Final = 250_000  # of what the signaling server takes
FRAME_BODY_BYTES: Final = PROPOSE.max_body_bytes - 100  # the longest that the leader reads

Body = Callable[[int], bytes]  # of the request with that number


class Way(Enum):
    """How a client sends a request, and what it does then."""

    WHOLE = "sends all and waits for the answer"
    LEFT = "sends all and is gone"
    SLOW = "sends a byte now and then"
    ENDLESS = "sends for as long as anybody reads"


@dataclass(frozen=True, slots=True)
class Posts:
    """Requests to the gateway, or to the founder's server where `path` is one of its own."""

    path: str
    body: Body
    way: Way = Way.WHOLE
    at_once: int = 1  # of one client


@dataclass(frozen=True, slots=True)
class Messages:
    """Texts for the signaling server, a socket for each."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requests:
    """Bodies of requests to the peer that coordinates, over data channels, by clients that joined the mesh."""

    bodies: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is sent: the clients compute for themselves, which shows what their share of the processors costs."""


Abuse = Posts | Messages | Requests | Nothing

_CHAT: Final = "/v1/chat/completions"
_TEXT: Final = "/v1/completions"


def _alternating(*bodies: bytes) -> Body:
    return lambda number: bodies[number % len(bodies)]


def _prompts(model: str) -> Abuse:
    """One line of digits, and one of letters without a space."""
    return Posts(
        _TEXT,
        _alternating(
            _json(model=model, prompt="1" * BODY_BYTES, max_tokens=2),
            _json(model=model, prompt="a" * BODY_BYTES, max_tokens=2),
        ),
    )


def _short(model: str) -> Abuse:
    """As much as is read at once, and then refused, as often as can be."""
    body = _json(model=model, prompt="1" * SHORT_CHARACTERS, max_tokens=1_000_000)
    return Posts(_TEXT, lambda _: body)


def _grammars(model: str) -> Abuse:
    def body(number: int) -> bytes:
        return _formed(model, {"type": "integer", "multipleOf": 999_983 - 2 * number})

    return Posts(_CHAT, body)


def _schemas(model: str) -> Abuse:
    names = [f"field {place}" for place in range(1200)]

    def body(number: int) -> bytes:
        fields = {name: {"type": "string", "maxLength": 500 + number} for name in names}
        return _formed(model, {"type": "object", "properties": fields, "required": names})

    return Posts(_CHAT, body)


def _bodies(model: str) -> Abuse:
    """Millions of numbers as a prompt, and as a field that nobody knows."""
    numbers = [1] * (BODY_BYTES // 2 - 100)
    return Posts(
        _TEXT,
        _alternating(
            _json(model=model, prompt=numbers, max_tokens=2), _json(model=model, prompt="a", unknown=numbers)
        ),
    )


def _nesting(model: str) -> Abuse:
    deep = "[" * 99 + "]" * 99
    wide = ",".join([deep] * (BODY_BYTES // len(deep) - 10))
    return Posts(
        _CHAT,
        _alternating(
            b"[" * BODY_BYTES, b'{"model":"' + model.encode() + b'","messages":[' + wide.encode() + b"]}"
        ),
    )


def _turns(model: str) -> Abuse:
    turn = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    count = BODY_BYTES // (len(json.dumps(turn)) + 4)
    body = _json(model=model, messages=[*turn] * count + [turn[0]])
    return Posts(_CHAT, lambda _: body)


def _dropped(model: str) -> Abuse:
    """Fair questions that nobody waits for, and long ones."""
    fair = _json(
        model=model, messages=[{"role": "user", "content": "Tell me about rivers. " * 40}], max_tokens=100
    )
    long = _json(model=model, prompt="1" * BODY_BYTES, max_tokens=2)
    return Posts(_CHAT, _alternating(fair, fair, fair, long), Way.LEFT)


def _slow(_: str) -> Abuse:
    return Posts(_CHAT, lambda _: b" " * BODY_BYTES, Way.SLOW, SLOW_AT_ONCE)


def _endless(_: str) -> Abuse:
    return Posts(_CHAT, lambda _: b"", Way.ENDLESS)


def _plans(_: str) -> Abuse:
    """Meshes as large as may be asked about, and bytes that are none."""
    return Posts("/plan", _alternating(large_mesh(), b"[" * BODY_BYTES, b"{" + b'"a":1,' * 500_000 + b"}"))


def _signaling(_: str) -> Abuse:
    return Messages(hostile_messages())


def _frames(_: str) -> Abuse:
    return Requests(hostile_bodies())


def _busy(_: str) -> Abuse:
    return Nothing()


KINDS: Final[dict[str, Callable[[str], Abuse]]] = {
    "busy": _busy,
    "prompts": _prompts,
    "short": _short,
    "grammars": _grammars,
    "schemas": _schemas,
    "bodies": _bodies,
    "nesting": _nesting,
    "turns": _turns,
    "dropped": _dropped,
    "slow": _slow,
    "endless": _endless,
    "plans": _plans,
    "signaling": _signaling,
    "frames": _frames,
}


def hostile_messages() -> tuple[str, ...]:
    """Texts that the signaling server has to look at and refuse."""
    whole = MESSAGE_BYTES
    return (
        "[" * whole,
        "{" + ",".join(f'"{place}":0' for place in range(whole // 10)) + "}",
        '{"kind":"join","invite":"' + "A" * whole + '"}',
        '{"kind":"register","request":1,"grants":[' + ",".join(["{}"] * (whole // 3)) + '],"revocations":[]}',
        '{"kind":"relay","signal":{"text":"' + "\\u0000" * (whole // 6) + '"}}',
    )


def hostile_bodies() -> tuple[bytes, ...]:
    """JSON that a peer has to look at and refuse."""
    whole = FRAME_BODY_BYTES
    return (
        b"[" * whole,
        b'{"x":[' + b",".join([b"1"] * (whole // 2 - 10)) + b"]}",
        b"{" + b",".join(b'"%d":{}' % place for place in range(whole // 11)) + b"}",
        b'{"x":"' + b"\\u0000" * (whole // 6 - 10) + b'"}',
    )


def large_mesh() -> bytes:
    """A plan request with as many peers and units as one may have, which takes the planner long."""
    kinds: tuple[UnitKind, ...] = ("embed", *("attn", "ffn") * ((MAX_UNITS - 2) // 2), "head")
    units = [Unit(f"unit {place}", kind, 10**7, 10**7, 1024, 2048) for place, kind in enumerate(kinds)]
    peers = [f"peer {place}" for place in range(MAX_PEERS)]
    links = [
        Link(src, dst, 0.001 + (at * 7 + to * 13) % 90 / 1000, 1e7)
        for at, src in enumerate(peers)
        for to, dst in enumerate(peers)
        if src != dst
    ]
    profiles = [_peer(name, place) for place, name in enumerate(peers)]
    return encode_request(PlanRequest(tuple(units), tuple(profiles), tuple(links), 2048, 4))


def _peer(name: str, place: int) -> PeerProfile:
    times: dict[UnitKind, float] = {
        "embed": 0.0001,
        "attn": 0.001 + place % 7 / 5000,
        "ffn": 0.002 + place % 5 / 4000,
        "head": 0.01,
    }
    return PeerProfile(
        name, (200 + place % 9 * 50) << 20, 50 << 20, times, {kind: times[kind] / 4 for kind in times}
    )


def _formed(model: str, schema: dict[str, Any]) -> bytes:
    return _json(
        model=model,
        messages=[{"role": "user", "content": "a"}],
        max_tokens=2,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def unknown(kinds: Sequence[str]) -> list[str]:
    """Returns those that there are not."""
    return [kind for kind in kinds if kind not in KINDS]
