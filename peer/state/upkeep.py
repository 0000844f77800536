"""Decides what keeps a mesh going: which standbys are ready, what its peers have begun, and where they meet again.

Pure; the same in web_peer/src/state/upkeep.ts. It also keeps what a newer version said and this one does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from peer.errors import BadCommand
from peer.wire.json_codec import (
    MAX_ITEMS,
    Codec,
    Fields,
    listed,
    matching,
    maybe,
    one_of,
    prose,
    record,
    span,
    text,
    uint,
)

OperationKind = Literal["load", "unload", "migrate", "open", "take-over", "close"]
Outcome = Literal["begun", "committed", "rolled-back"]
OPERATIONS: Final[tuple[OperationKind, ...]] = get_args(OperationKind)
MAX_TRANSACTIONS: Final = 512  # remembered; the oldest that are over go first
MAX_ADDRESSES: Final = 16
MAX_KEPT: Final = 64  # commands of a newer version
MAX_KEPT_BYTES: Final = 65536  # of all of them


@dataclass(frozen=True, slots=True)
class Standby:
    """Runs of units that a peer can take over at once, for the plan of this version."""

    version: int
    ready: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """An operation of a peer on a run of units or on a session."""

    id: str
    peer: str
    operation: OperationKind
    units: tuple[int, int] | None
    session: str
    to: str  # the peer that units migrate to
    when_ms: int
    state: Outcome = "begun"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Commands of a newer version: how many, and the last ones as they came. `broken`: entries that are no commands."""

    count: int = 0
    broken: int = 0
    kept: tuple[str, ...] = ()


# --- commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StandbyReady:
    """The runs of units that a standby can take over at once, each [first, stop)."""

    peer: str
    version: int
    ready: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """An operation on units or a session begins on a member."""

    id: str
    peer: str
    operation: OperationKind
    units: tuple[int, int] | None
    session: str
    to: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """An operation is committed or rolled back."""

    id: str
    state: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class SignalingListed:
    """Where peers meet from now on, the best first."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CutsFixed:
    """The borders of stages, fixed by hand; None: the planner decides."""

    cuts: tuple[int, ...] | None


UpkeepCommand = StandbyReady | TransactionBegun | TransactionEnded | SignalingListed | CutsFixed


def begun(transactions: tuple[Transaction, ...], command: TransactionBegun) -> tuple[Transaction, ...] | str:
    """The transactions with that one, or why it changes nothing."""
    if any(each.id == command.id for each in transactions):
        return "this transaction was begun before"
    kept = list(transactions)
    if len(kept) >= MAX_TRANSACTIONS:
        over = (at for at, each in enumerate(kept) if each.state != "begun")
        del kept[next(over, 0)]
    made = Transaction(
        command.id,
        command.peer,
        command.operation,
        command.units,
        command.session,
        command.to,
        command.when_ms,
    )
    return (*kept, made)


def ended(transactions: tuple[Transaction, ...], command: TransactionEnded) -> tuple[Transaction, ...] | str:
    """The transactions with that one over, or why it changes nothing."""
    open_one = next((each for each in transactions if each.id == command.id and each.state == "begun"), None)
    if open_one is None:
        return "no such transaction is open"
    over = replace(open_one, state=command.state, reason=command.reason)
    return tuple(over if each is open_one else each for each in transactions)


def seen(incarnations: Mapping[str, int], peer: str, incarnation: int) -> Mapping[str, int]:
    """The highest incarnation of every peer, with that of `peer`. None is kept for a peer that never had another."""
    if incarnation <= incarnations.get(peer, 0):
        return incarnations
    known = {**incarnations, peer: incarnation}
    if len(known) > MAX_ITEMS:
        del known[min(each for each in known if each != peer)]
    return known


def skip(skipped: Skipped, body: bytes) -> Skipped:
    """With a command that this build does not know; the oldest that are kept make room for it."""
    kept = list(skipped.kept)
    if len(body) <= MAX_KEPT_BYTES:
        kept.append(body.decode())
    size = sum(len(each.encode()) for each in kept)
    while len(kept) > MAX_KEPT or size > MAX_KEPT_BYTES:
        size -= len(kept.pop(0).encode())
    return replace(skipped, count=skipped.count + 1, kept=tuple(kept))


# --- wire -------------------------------------------------------------------------------------------------

_id: Final = matching("[0-9A-Za-z_.:-]{1,64}", "an id of 1 to 64 letters, digits and _.:-")
_session: Final = matching("([0-9a-f]{32})?", "a session of 16 bytes in hex, or nothing")
_address: Final = matching("https?://[0-9A-Za-z_.:/~%\\[\\]-]{1,256}", "an address such as https://host:8443")
addresses: Final = listed(_address, MAX_ADDRESSES)
cuts: Final = maybe(listed(uint))
_ready: Final[Fields] = {"version": uint, "ready": listed(span)}
_transaction: Final[Fields] = {
    "id": _id,
    "peer": text,
    "operation": one_of(*OPERATIONS),
    "units": maybe(span),
    "session": _session,
    "to": text,
    "when_ms": uint,
}
standby_codec: Final = record(Standby, _ready)
transactions_codec: Final = listed(
    record(
        Transaction, {**_transaction, "state": one_of("begun", "committed", "rolled-back"), "reason": text}
    ),
    MAX_TRANSACTIONS,
)
_skipped: Final = record(
    Skipped, {"count": uint, "broken": uint, "kept": listed(prose(MAX_KEPT_BYTES), MAX_KEPT)}
)


def _decode_skipped(value: Any, where: str) -> Skipped:
    skipped = _skipped.decode(value, where)
    if sum(len(each.encode()) for each in skipped.kept) > MAX_KEPT_BYTES:
        raise BadCommand(f"{where}: expected at most {MAX_KEPT_BYTES} bytes of commands")
    return skipped


skipped_codec: Final = Codec(_decode_skipped, _skipped.encode)
UPKEEP_COMMANDS: Final[Mapping[type[Any], Codec[Any]]] = {
    StandbyReady: record(StandbyReady, {"peer": text, **_ready}),
    TransactionBegun: record(TransactionBegun, _transaction),
    TransactionEnded: record(
        TransactionEnded, {"id": _id, "state": one_of("committed", "rolled-back"), "reason": text}
    ),
    SignalingListed: record(SignalingListed, {"addresses": addresses}),
    CutsFixed: record(CutsFixed, {"cuts": cuts}),
}
