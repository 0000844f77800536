"""The bytes of a message: strictly checked msgpack.

One message is one msgpack map with the short keys of schema/consensus.toml. Unknown keys are skipped, so that later
versions may add some; anything else that does not fit raises BadMessage naming the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgpack

from peer.consensus.errors import BadMessage
from peer.consensus.messages import BODY_FIELDS, HEAD_FIELDS, Append, Body, Install, Message
from peer.consensus.records import Config, Entry, EntryKind, Server

MAX_INT: Final = 2**53 - 1  # the largest integer that JavaScript numbers hold exactly
MAX_ID_BYTES: Final = 128
MAX_SERVERS: Final = 1024
MAX_ENTRIES: Final = 1024  # in one message
MAX_DATA_BYTES: Final = 1 << 20  # of one entry, or one chunk of a snapshot
MAX_SNAPSHOT_BYTES: Final = 1 << 28
MAX_MESSAGE_BYTES: Final = 1 << 22
_KINDS: Final[tuple[EntryKind, ...]] = ("noop", "command", "config")


# --- what fields may hold ---------------------------------------------------------------------------------


def _fail(name: str, expected: str, value: object) -> BadMessage:
    shown = repr(value)[:40] if isinstance(value, int | float | None) else type(value).__name__
    return BadMessage(f"{name}: expected {expected}, got {shown}")


def _integer(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise _fail(name, "an integer from 0 to 2^53 - 1", value)
    return value


def _flag(value: object, name: str) -> bool:
    if type(value) is not bool:
        raise _fail(name, "true or false", value)
    return value


def _identity(value: object, name: str) -> str:
    if type(value) is not str or not 1 <= len(value) <= MAX_ID_BYTES or len(value.encode()) > MAX_ID_BYTES:
        raise _fail(name, f"text of 1 to {MAX_ID_BYTES} bytes", value)
    return value


def _data(value: object, name: str) -> bytes:
    if type(value) is not bytes or len(value) > MAX_DATA_BYTES:
        raise _fail(name, f"at most {MAX_DATA_BYTES} bytes", value)
    return value


def _config(value: object, name: str) -> Config:
    if type(value) is not tuple or len(value) > MAX_SERVERS:
        raise _fail(name, f"at most {MAX_SERVERS} servers", value)
    servers: list[Server] = []
    for item in value:
        if type(item) is not tuple or len(item) != 3:
            raise _fail(name, "servers of id, incarnation, voter", item)
        server = Server(_identity(item[0], name), _integer(item[1], name), _flag(item[2], name))
        if servers and servers[-1].id >= server.id:
            raise BadMessage(
                f"{name}: expected servers in the order of their ids, each once, got another order"
            )
        servers.append(server)
    config = Config(tuple(servers))
    if not config.voters:
        raise BadMessage(f"{name}: expected at least one voter, got none")
    return config


def _entries(value: object, name: str) -> tuple[tuple[int, EntryKind, bytes], ...]:
    """Terms, kinds and data; the indexes follow from prev_index."""
    if type(value) is not tuple or len(value) > MAX_ENTRIES:
        raise _fail(name, f"at most {MAX_ENTRIES} entries", value)
    found: list[tuple[int, EntryKind, bytes]] = []
    for item in value:
        if type(item) is not tuple or len(item) != 3:
            raise _fail(name, "entries of term, kind, data", item)
        kind = _integer(item[1], name)
        if kind >= len(_KINDS):
            raise _fail(name, "a kind of entry from 0 to 2", kind)
        data = _data(item[2], name)
        if _KINDS[kind] == "config":
            parse_config(data)
        elif _KINDS[kind] == "noop" and data:
            raise BadMessage(f"{name}: expected a noop without data, got {len(data)} bytes")
        found.append((_integer(item[0], name), _KINDS[kind], data))
    return tuple(found)


# --- the wire ---------------------------------------------------------------------------------------------

Check = Callable[[object, str], Any]
_Rows = tuple[tuple[str, str, Check], ...]
_CHECKS: Final[Mapping[str, Check]] = {
    "uint": _integer,
    "flag": _flag,
    "id": _identity,
    "data": _data,
    "config": _config,
    "entries": _entries,
}


def _checked(rows: Iterable[tuple[str, str, str]]) -> _Rows:
    return tuple((name, key, _CHECKS[kind]) for name, key, kind in rows)


_HEAD: Final = _checked(HEAD_FIELDS)
_BODIES: Final[tuple[tuple[type[Any], _Rows], ...]] = tuple(
    (body, _checked(rows)) for body, rows in BODY_FIELDS
)
_KIND_OF: Final = {body: kind for kind, (body, _) in enumerate(_BODIES)}


def encode(message: Message) -> bytes:
    """The bytes on the wire."""
    kind = _KIND_OF[type(message.body)]
    wire: dict[str, Any] = {"k": kind}
    for name, key, _ in _HEAD:
        wire[key] = getattr(message, name)
    for name, key, check in _BODIES[kind][1]:
        value = getattr(message.body, name)
        if check is _entries:
            value = [(entry.term, _KINDS.index(entry.kind), entry.data) for entry in value]
        elif check is _config:
            value = [(server.id, server.incarnation, server.voter) for server in value.servers]
        wire[key] = value
    packed: bytes = msgpack.packb(wire)
    return packed


def decode(data: bytes) -> Message:
    """The message in `data`. Raises BadMessage; allocates no more than a small multiple of what came."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"message: expected at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    try:
        wire = msgpack.unpackb(
            data, use_list=False, raw=False, max_map_len=32, max_array_len=1024, max_ext_len=0
        )
    except Exception as error:  # msgpack raises several kinds for bytes that are not msgpack
        raise BadMessage(
            f"message: expected a msgpack map, got other bytes ({type(error).__name__})"
        ) from None
    if type(wire) is not dict:
        raise _fail("message", "a msgpack map", wire)
    kind = _integer(wire.get("k"), "kind")
    if kind >= len(_BODIES):
        raise _fail("kind", f"a kind of message from 0 to {len(_BODIES) - 1}", kind)
    body_type, fields = _BODIES[kind]
    values = {name: check(wire.get(key), name) for name, key, check in fields}
    head = {name: check(wire.get(key), name) for name, key, check in _HEAD}
    return Message(**head, body=_whole(body_type, values, head["term"]))


def _whole(body_type: type[Any], values: dict[str, Any], term: int) -> Body:
    """The body, once its fields fit each other as well."""
    if body_type is Append:
        before, last = values["prev_index"], values["prev_term"]
        entries: list[Entry] = []
        for place, (entry_term, kind, data) in enumerate(values["entries"]):
            if entry_term < last or entry_term > term or entry_term == 0:
                raise BadMessage(
                    f"entries: expected terms that rise from prev_term to {term}, got {entry_term}"
                )
            last = entry_term
            entries.append(Entry(before + 1 + place, entry_term, kind, data))
        if before + len(entries) > MAX_INT:
            raise _fail("prev_index", "room for the entries after it", before)
        values["entries"] = tuple(entries)
        if values["prev_term"] > term or (values["prev_index"] == 0) != (values["prev_term"] == 0):
            raise _fail(
                "prev_term", f"0 before the first entry, else a term from 1 to {term}", values["prev_term"]
            )
    elif body_type is Install:
        if values["index"] == 0 or not 0 < values["snapshot_term"] <= term:
            raise _fail("snapshot_term", f"an entry of a term from 1 to {term}", values["snapshot_term"])
        if values["total"] > MAX_SNAPSHOT_BYTES:
            raise _fail("total", f"at most {MAX_SNAPSHOT_BYTES} bytes", values["total"])
        if values["offset"] + len(values["data"]) > values["total"]:
            raise _fail("offset", "a piece inside the snapshot", values["offset"])
        if values["crc"] >= 2**32:
            raise _fail("crc", "an integer from 0 to 2^32 - 1", values["crc"])
    body: Body = body_type(**values)
    return body


def config_bytes(config: Config) -> bytes:
    """The data of a "config" entry: canonical JSON."""
    servers = [[server.id, server.incarnation, server.voter] for server in config.servers]
    return json.dumps({"servers": servers}, ensure_ascii=False, separators=(",", ":")).encode()


def parse_config(data: bytes) -> Config:
    """Raises BadMessage where `data` is no configuration with at least one voter."""
    try:
        wire = json.loads(data)
    except (ValueError, RecursionError):
        raise BadMessage("config: expected canonical JSON, got other bytes") from None
    servers = wire.get("servers") if type(wire) is dict else None
    if type(servers) is not list:
        raise _fail("config", "an object with a list of servers", wire)
    try:
        config = _config(tuple(tuple(item) if type(item) is list else item for item in servers), "config")
        spelt = config_bytes(config)
    except UnicodeEncodeError:  # JSON can spell half a character, UTF-8 cannot
        raise BadMessage("config: expected canonical JSON, got other bytes") from None
    if spelt != data:
        raise BadMessage("config: expected canonical JSON, got another spelling of it")
    return config
