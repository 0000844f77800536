"""Decides which work counts, for whom and against whom, so that nothing counts twice.

Pure; the same in web_peer/src/state/work_ledger.ts. Work is the positions of a session that a peer computed through a
run of units. What a session has counted is kept as rectangles of positions and units, and an entry that touches one of
them does not count. Of the oldest sessions only the horizon is kept: what began up to then and is not listed does not
count any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any, Final

from peer.errors import BadCommand
from peer.limits import MAX_INT, MAX_ITEMS
from peer.state.generated.commands import Work
from peer.wire.json_codec import Codec, items_of, listed, record, span, table, uint

MAX_SESSIONS: Final = 4096  # whose work can still be counted
MAX_AREAS: Final = 64  # rectangles of a session, after joining those that touch


@dataclass(frozen=True, slots=True)
class Area:
    """Positions through units that have been counted."""

    units: tuple[int, int]
    positions: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted of one answer."""

    started_ms: int
    areas: tuple[Area, ...] = ()  # none touches another


@dataclass(frozen=True, slots=True)
class Balance:
    """Thousandths of credits that a peer ever earned and spent."""

    earned: int = 0
    spent: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """What all earned is what all spent. A session that began by `horizon_ms` and is not listed is over."""

    sessions: Mapping[str, Counted] = field(default_factory=dict)
    balances: Mapping[str, Balance] = field(default_factory=dict)
    horizon_ms: int = 0


def tally(ledger: Ledger, entries: tuple[Work, ...]) -> tuple[Ledger, tuple[str, ...]]:
    """The ledger with those of `entries` that count, and for each why it does not ("": it does)."""
    sessions, balances = dict(ledger.sessions), dict(ledger.balances)
    why = []
    for work in entries:
        areas = _areas_with(sessions.get(work.session), work, ledger.horizon_ms)
        reason = areas if isinstance(areas, str) else _paid(balances, work)
        if not reason and not isinstance(areas, str):
            sessions[work.session] = Counted(work.started_ms, areas)
        why.append(reason)
    horizon = ledger.horizon_ms
    if len(sessions) > MAX_SESSIONS:
        by_age = ((counted.started_ms, session) for session, counted in sessions.items())
        for started_ms, session in nsmallest(len(sessions) - MAX_SESSIONS, by_age):
            del sessions[session]
            horizon = started_ms
    return Ledger(sessions, balances, horizon), tuple(why)


def _areas_with(counted: Counted | None, work: Work, horizon_ms: int) -> tuple[Area, ...] | str:
    """The areas of a session with those of `work`, or why it cannot have them."""
    if counted is None:
        if work.started_ms <= horizon_ms:
            return "this session began too long ago"
        return (Area(work.units, work.positions),)
    if counted.started_ms != work.started_ms:
        return "this session began at another time"
    first, stop = work.positions
    others = []
    for area in counted.areas:
        if _meet(area.units, work.units) and _meet(area.positions, work.positions):
            return "this work was counted before"
        if area.units == work.units and stop == area.positions[0]:
            stop = area.positions[1]
        elif area.units == work.units and area.positions[1] == first:
            first = area.positions[0]
        else:
            others.append(area)
    if len(others) >= MAX_AREAS:
        return f"this session has {MAX_AREAS} areas, which is the most"
    others.append(Area(work.units, (first, stop)))
    return tuple(sorted(others, key=lambda area: (area.units, area.positions)))


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _paid(balances: dict[str, Balance], work: Work) -> str:
    """Moves the price from the asker to the peer. Says why not, and moves nothing, where a balance has no room."""
    strangers = len({work.peer, work.asker} - balances.keys())
    if strangers and len(balances) + strangers > MAX_ITEMS:
        return f"{MAX_ITEMS} peers have a balance, which is the most"
    earned = balances.get(work.peer, Balance()).earned + work.milli
    spent = balances.get(work.asker, Balance()).spent + work.milli
    if max(earned, spent) > MAX_INT:
        return "a balance holds no more than 2^53-1"
    balances[work.peer] = replace(balances.get(work.peer, Balance()), earned=earned)
    balances[work.asker] = replace(balances.get(work.asker, Balance()), spent=spent)
    return ""


# --- wire -------------------------------------------------------------------------------------------------


def _decode_area(value: Any, where: str) -> Area:
    numbers = items_of(value, where)
    if len(numbers) != 4:
        raise BadCommand(f"{where}: expected first and stop of units and of positions, got {value!r:.60}")
    return Area(span.decode(numbers[:2], where), span.decode(numbers[2:], where))


_area: Final = Codec(_decode_area, lambda area: [*area.units, *area.positions])
ledger_codec: Final = record(
    Ledger,
    {
        "sessions": table(
            record(Counted, {"started_ms": uint, "areas": listed(_area, MAX_AREAS)}), MAX_SESSIONS
        ),
        "balances": table(record(Balance, {"earned": uint, "spent": uint})),
        "horizon_ms": uint,
    },
)
