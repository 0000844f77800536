"""The text of a message between a member and the server, and which text is refused. Pure.

A message is one JSON object in a WebSocket text frame: `kind` and the fields that schema/signaling.toml has for it, all
of them and no others. Decoding checks size, types, lengths and ranges before anything is built, and raises a
MessageError that names the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from planner.strict_json import parse_json
from signaling.errors import MalformedMessage, MessageTooLarge, UnknownMessage
from signaling.generated.messages import (
    CLIENT,
    MAX_CLIENT_BYTES,
    MAX_SERVER_BYTES,
    SERVER,
    ClientMessage,
    Message,
    ServerMessage,
)
from signaling.message_fields import Record

T = TypeVar("T")
_KINDS: dict[Callable[..., object], tuple[str, Record[Any]]] = {
    r.kind: (kind, r) for table in (CLIENT, SERVER) for kind, r in table.items()
}


def encode(message: Message) -> str:
    """The JSON text of a message."""
    kind, record = _KINDS[type(message)]
    return json.dumps({"kind": kind, **record.write(message)}, separators=(",", ":"), ensure_ascii=False)


def decode_client(text: str) -> ClientMessage:
    """What a server received; raises a MessageError."""
    return _decode(text, CLIENT, MAX_CLIENT_BYTES)


def decode_server(text: str) -> ServerMessage:
    """What a client received; raises a MessageError."""
    return _decode(text, SERVER, MAX_SERVER_BYTES)


def _decode(text: str, table: dict[str, Record[T]], most: int) -> T:
    if len(text) > most:
        raise MessageTooLarge(f"a message has at most {most} bytes, this one has {len(text)}")
    raw = load_json(text)
    kind = raw.pop("kind", None)
    if not isinstance(kind, str):
        raise MalformedMessage("a message has a text field named kind, this one has none")
    record = table.get(kind)
    if record is None:
        raise UnknownMessage(f"messages are {', '.join(table)}; this one is {kind[:40]!r}")
    return record.read(raw, kind)


def load_json(text: str) -> dict[str, Any]:
    """A JSON object without floats or doubled names; raises MalformedMessage."""
    try:
        raw = parse_json(text, whole_numbers=True)
    except ValueError as error:
        raise MalformedMessage(f"a message is one JSON object: {str(error)[:200]}") from None
    if not isinstance(raw, dict):
        raise MalformedMessage(f"a message is one JSON object, got {type(raw).__name__}")
    return raw
