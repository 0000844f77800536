"""How term, vote, entries and snapshots of the consensus log lie in files, and what of a log file a crash explains.

Pure. A log file is a mark, eight random bytes, and records numbered from 0. Record 0 is the beginning, every later one
what a single Persist changed; nothing of a record counts without the whole of it. Its two checksums begin with the
random bytes: nothing that a peer sends can look like a record. Each record is on the disk before the next is written,
so a crash can only have spoilt the last one, and spoilt means: cut short, or whole sectors of it not written. Anything
else is damage, and is never taken for a crash: `read_log` refuses it, `read_damaged_log` finds what of it is whole.

    file    MARK, 8 bytes of salt, records
    record  RECORD_MARK, number, payload bytes, checksum of these, checksum of the payload; payload; END
    payload msgpack: record 0 [format, incarnation, snapshots before, first index, term, vote, entries]
                     others   [term, vote, truncate from, entries], an entry is [index, term, kind, data]
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

import msgpack

from peer.consensus.message_codec import MAX_ID_BYTES, MAX_SERVERS, MAX_SNAPSHOT_BYTES
from peer.consensus.records import Config, Entry, EntryKind, HardState, Server, Snapshot
from peer.errors import DamagedStore

FORMAT: Final = 1
MAX_INT: Final = 2**53 - 1
MAX_RECORD_BYTES: Final = 1 << 30  # the first record of a log holds every entry that is kept
SALT_BYTES: Final = 8
MARK: Final = b"ShoalLog"
RECORD_MARK: Final = b"\xf5Rec"
END: Final = b"\xa5"  # never zero: a last sector that was not written shows
SNAPSHOT_MARK: Final = b"ShoalSnp"
SECTOR_BYTES: Final = 512  # the smallest that a disk writes whole
HEAD: Final = struct.Struct(">4sIIII")
PREFIX_BYTES: Final = len(MARK) + SALT_BYTES
_KINDS: Final = ("noop", "command", "config")


@dataclass(frozen=True, slots=True)
class Beginning:
    """Record 0: everything as it stood when the file was made."""

    incarnation: int
    snapshots: (
        int  # stored before; a snapshot file with a higher number was stored, and the log not yet cut for it
    )
    first: int  # index of the first entry, or of the first that will be
    hard_state: HardState
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """What one Persist changed."""

    hard_state: HardState
    truncate_from: int  # 0: nothing
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LogFile:
    """What a log file holds."""

    salt: bytes
    beginning: Beginning
    groups: tuple[Group, ...]
    good_bytes: int  # what follows is a record that a crash cut short


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """What a damaged log file holds nevertheless."""

    beginning: Beginning | None  # None: record 0 cannot be read
    groups: tuple[Group, ...]  # whole records, each numbered after the one before; from 1 on
    beyond: tuple[Group, ...]  # whole records behind the first that cannot be read


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """What a snapshot file holds."""

    number: int
    first: int  # the log is cut to first..last with it
    last: int
    snapshot: Snapshot


# --- writing


def log_bytes(salt: bytes, beginning: Beginning) -> bytes:
    """A whole log file that holds nothing but its beginning."""
    hard = beginning.hard_state
    payload = [
        FORMAT,
        beginning.incarnation,
        beginning.snapshots,
        beginning.first,
        hard.term,
        hard.vote,
        _entries(beginning.entries),
    ]
    return MARK + salt + _record(salt, 0, payload)


def group_bytes(salt: bytes, number: int, group: Group) -> bytes:
    """Record `number` of the file with that salt."""
    hard = group.hard_state
    return _record(salt, number, [hard.term, hard.vote, group.truncate_from, _entries(group.entries)])


def snapshot_bytes(file: SnapshotFile) -> bytes:
    """Returns the bytes of a snapshot file: mark, SHA-256, msgpack."""
    found = file.snapshot
    servers = [[server.id, server.incarnation, server.voter] for server in found.config.servers]
    payload: bytes = msgpack.packb(
        [FORMAT, file.number, file.first, file.last, found.index, found.term, servers, found.data]
    )
    return SNAPSHOT_MARK + sha256(payload).digest() + payload


def _entries(entries: Iterable[Entry]) -> list[list[Any]]:
    return [[entry.index, entry.term, entry.kind, entry.data] for entry in entries]


def _record(salt: bytes, number: int, value: list[Any]) -> bytes:
    payload: bytes = msgpack.packb(value)
    start = RECORD_MARK + struct.pack(">II", number, len(payload))
    return start + struct.pack(">II", _check(salt, start), _check(salt, payload)) + payload + END


def _check(salt: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(salt))


# --- reading


def read_log(data: bytes) -> LogFile:
    """What the file holds, without what a crash cut short. Raises DamagedStore naming the place."""
    if len(data) < PREFIX_BYTES or not data.startswith(MARK):
        raise DamagedStore(f"a log begins with {MARK.decode()}, this file with {data[:8]!r}")
    salt = data[len(MARK) : PREFIX_BYTES]
    at, number = PREFIX_BYTES, 0
    beginning: Beginning | None = None
    groups: list[Group] = []
    while at < len(data):
        payload = _payload(data, at, salt, number)
        if payload is None:
            if number > 0 and _crash_explains(data, at, salt, number):
                break
            raise DamagedStore(f"record {number} at byte {at} fails its checksum")
        try:
            if beginning is None:
                beginning = _beginning(payload)
            else:
                groups.append(_group(payload))
        except DamagedStore as error:
            raise DamagedStore(f"record {number} at byte {at}: {error}") from error
        at += HEAD.size + len(payload) + len(END)
        number += 1
    if beginning is None:
        raise DamagedStore("the file ends before its first record")
    return LogFile(salt, beginning, tuple(groups), at)


def read_damaged_log(data: bytes) -> DamagedLog:
    """Every record of the file that is whole, wherever it stands: those that follow one another, and those behind."""
    salt = _salt(data)
    beginning: Beginning | None = None
    groups: list[Group] = []
    beyond: list[Group] = []
    following = 1  # the number of the record that follows on `groups`
    for number, payload in _whole_records(data, salt):
        try:
            if number == 0:
                beginning = beginning or _beginning(payload)
            elif number == following and not beyond:
                groups.append(_group(payload))
                following += 1
            elif number > following:
                beyond.append(_group(payload))
        except DamagedStore:
            continue  # another version wrote it
    return DamagedLog(beginning, tuple(groups), tuple(beyond))


def _salt(data: bytes) -> bytes:
    """The salt of the file. One byte of it may be damaged: then the first record tells which."""
    own = data[len(MARK) : PREFIX_BYTES]
    others = (
        own[:place] + bytes([byte]) + own[place + 1 :] for place in range(len(own)) for byte in range(256)
    )
    right = (salt for salt in (own, *others) if _payload(data, PREFIX_BYTES, salt, 0) is not None)
    return next(right, own)


def _whole_records(data: bytes, salt: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and payload of each record that passes its checksums. Those inside of another one are not looked for."""
    at = data.find(RECORD_MARK)
    while at >= 0:
        number = HEAD.unpack_from(data, at)[1] if at + HEAD.size <= len(data) else 0
        payload = _payload(data, at, salt, number)
        if payload is not None:
            yield number, payload
            at += HEAD.size + len(payload)
        at = data.find(RECORD_MARK, at + 1)


def read_snapshot(data: bytes) -> SnapshotFile:
    """Raises DamagedStore: a snapshot file has its name only when all of it is on the disk."""
    start = len(SNAPSHOT_MARK) + 32
    payload = data[start:]
    if not data.startswith(SNAPSHOT_MARK) or sha256(payload).digest() != data[len(SNAPSHOT_MARK) : start]:
        raise DamagedStore("the snapshot fails its checksum")
    form, number, first, last, index, term, servers, body = _array(_unpacked(payload), 8)
    _format(form)
    if not isinstance(body, bytes) or len(body) > MAX_SNAPSHOT_BYTES:
        raise DamagedStore("the snapshot's data are no bytes, or too many")
    if not isinstance(servers, list) or len(servers) > MAX_SERVERS:
        raise DamagedStore("the snapshot's servers are no array, or too many")
    config = Config(tuple(_server(item) for item in servers))
    ids = [server.id for server in config.servers]
    if ids != sorted(set(ids)):
        raise DamagedStore("the snapshot's servers are not in the order of their ids")
    snapshot = Snapshot(_whole(index, "index", 1), _whole(term, "term"), config, body)
    return SnapshotFile(
        _whole(number, "number", 1), _whole(first, "first", 1), _whole(last, "last"), snapshot
    )


def _payload(data: bytes, at: int, salt: bytes, number: int) -> bytes | None:
    """The payload of the record at `at`; None unless all of it is right."""
    length = _length(data, at, salt, number)
    start = at + HEAD.size
    if length is None or data[start + length : start + length + len(END)] != END:
        return None
    payload = data[start : start + length]
    return payload if _check(salt, payload) == HEAD.unpack_from(data, at)[4] else None


def _length(data: bytes, at: int, salt: bytes, number: int | None) -> int | None:
    """How long the payload is by the head at `at`; None unless that is right and has `number` (None: any)."""
    if at + HEAD.size > len(data):
        return None
    mark, found, length, check, _ = HEAD.unpack_from(data, at)
    right = mark == RECORD_MARK and length <= MAX_RECORD_BYTES and number in (None, found)
    return length if right and _check(salt, data[at : at + 12]) == check else None


def _crash_explains(data: bytes, at: int, salt: bytes, number: int) -> bool:
    """Whether what begins at `at` can be one write that a crash ended: cut short, or with unwritten sectors."""
    if at + HEAD.size > len(data):
        return True
    length = _length(data, at, salt, number)
    if length is not None:
        stop = at + HEAD.size + length + len(END)
        return stop > len(data) or (stop == len(data) and _has_unwritten_sector(data, at, stop))
    if not _has_unwritten_sector(data, at, at + HEAD.size):
        return False
    later = data.find(RECORD_MARK, at + 1)
    while later >= 0:
        if _length(data, later, salt, None) is not None:
            return False  # that one was written when this one was on the disk already
        later = data.find(RECORD_MARK, later + 1)
    return True


def _has_unwritten_sector(data: bytes, start: int, stop: int) -> bool:
    while start < stop:
        end = min(stop, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(data[start:end]):
            return True
        start = end
    return False


def _beginning(payload: bytes) -> Beginning:
    form, incarnation, snapshots, first, term, vote, entries = _array(_unpacked(payload), 7)
    _format(form)
    return Beginning(
        _whole(incarnation, "incarnation", 1),
        _whole(snapshots, "snapshots"),
        _whole(first, "first", 1),
        _hard_state(term, vote),
        _entry_row(entries),
    )


def _group(payload: bytes) -> Group:
    term, vote, truncate_from, entries = _array(_unpacked(payload), 4)
    return Group(_hard_state(term, vote), _whole(truncate_from, "truncate_from"), _entry_row(entries))


def _entry_row(value: Any) -> tuple[Entry, ...]:
    if not isinstance(value, list):
        raise DamagedStore("entries are no array")
    return tuple(_entry(item) for item in value)


def _entry(value: Any) -> Entry:
    index, term, kind, data = _array(value, 4)
    if kind not in _KINDS or not isinstance(data, bytes):
        raise DamagedStore("an entry of an unknown kind, or without bytes")
    return Entry(_whole(index, "index", 1), _whole(term, "term"), cast(EntryKind, kind), data)


def _server(value: Any) -> Server:
    peer, incarnation, voter = _array(value, 3)
    if not isinstance(voter, bool):
        raise DamagedStore("a server that neither votes nor does not")
    return Server(_name(peer), _whole(incarnation, "incarnation"), voter)


def _hard_state(term: Any, vote: Any) -> HardState:
    return HardState(_whole(term, "term"), _name(vote))


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value.encode()) > MAX_ID_BYTES:
        raise DamagedStore("an id is no text, or too long")
    return value


def _whole(value: Any, name: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_INT:
        raise DamagedStore(f"{name} is no whole number from {least} to 2^53-1")
    return value


def _format(value: Any) -> None:
    if value != FORMAT:
        raise DamagedStore(f"expected format {FORMAT}, got {value!r}: another version wrote it")


def _array(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise DamagedStore(f"expected an array of {count}")
    return value


def _unpacked(payload: bytes) -> Any:
    try:
        return msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise DamagedStore(f"not msgpack: {error}") from error
