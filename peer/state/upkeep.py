"""Decides what keeps a mesh going: which standbys are ready, what its peers have begun, and where they meet again.

Pure; the same in web_peer/src/state/upkeep.ts. It also keeps what a newer version said and this one does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from peer.errors import BadCommand
from peer.limits import MAX_ITEMS
from peer.state.generated.commands import (
    MAX_KEPT,
    MAX_KEPT_BYTES,
    MAX_TRANSACTIONS,
    Skipped,
    Transaction,
    TransactionBegun,
    TransactionEnded,
    skipped_codec,
)
from peer.wire.json_codec import Codec


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


def _decode_skipped(value: Any, where: str) -> Skipped:
    skipped = skipped_codec.decode(value, where)
    if sum(len(each.encode()) for each in skipped.kept) > MAX_KEPT_BYTES:
        raise BadCommand(f"{where}: expected at most {MAX_KEPT_BYTES} bytes of commands")
    return skipped


bounded_skipped_codec: Final = Codec(_decode_skipped, skipped_codec.encode)
