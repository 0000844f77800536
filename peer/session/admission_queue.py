"""Decides who gets the next seat where all of them are taken, in which order, and how long the others will wait.

Pure; the same in web_peer/src/session/admission_queue.ts. A line for each run of units that a peer serves. Who has
fewest answers under way goes first, then who came first; a balance of the ledger moves that by at most `HEAD_START_MS`
either way. So who gives more waits less, and nobody waits for ever: whoever comes later than twice that is behind.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from peer.session.seat import Run_

MAX_WAITING: Final = 256  # in all lines of a peer
MAX_OF_ONE: Final = 16  # of one asker
HOLD_MS: Final = 5_000  # a seat is kept so long for who was called
LEASE_MS: Final = 15_000  # who has not asked again for so long has gone
HEAD_START_MS: Final = 30_000  # what a balance is worth at most
HALF_AT_MILLI: Final = 2_000_000  # of a balance: it is worth half of that then
MOST_MILLI: Final = 1 << 36  # beyond that a balance is worth no more: products stay below 2^53
MAX_LENGTHS: Final = 32  # answers that were measured last
MOST_GAP_US: Final = 10_000_000  # a longer one was no work
FULL: Final = "all sessions of this mesh are in use"
UNKNOWN: Final = -1  # nothing was measured yet


def head_start_ms(owed_milli: int) -> int:
    """How much earlier an asker counts as come that has spent `owed_milli` more than it earned; later, below zero."""
    size = min(abs(owed_milli), MOST_MILLI)
    worth = HEAD_START_MS * size // (size + HALF_AT_MILLI)
    return -worth if owed_milli > 0 else worth


@dataclass(frozen=True, slots=True)
class Busy:
    """An answer under way: positions of its prompt to come, its tokens so far, and the most that it may have."""

    positions: int
    made: int
    most: int


@dataclass(slots=True)
class Pace:
    """How fast answers go here, each beside the others, and how long they were."""

    token_us: int = 0  # between two tokens of one answer; 0: not measured
    position_us: int = 0  # the same for a prompt
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_LENGTHS))

    def ran(self, gap_us: int, count: int, *, given: bool) -> None:
        """A step of `count` positions was done `gap_us` after the one before of the same answer."""
        if not 0 < gap_us <= MOST_GAP_US or count < 1:
            return
        each = gap_us // count
        if given:
            self.position_us = (self.position_us * 7 + each) // 8 if self.position_us else each
        else:
            self.token_us = (self.token_us * 7 + each) // 8 if self.token_us else each

    def ended(self, tokens: int) -> None:
        """An answer had so many tokens."""
        if tokens > 0:
            self.lengths.append(tokens)

    def tokens_left(self, made: int, most: int) -> int:
        """What an answer with `made` tokens may still produce: what those before that were longer had beyond that, on
        average; where none was, as much as it may.
        """
        longer = [length - made for length in self.lengths if length > made]
        limit = max(most - made, 0)
        return min(limit, -(-sum(longer) // len(longer))) if longer else limit

    def lasts_ms(self, busy: Busy) -> int:
        """How long an answer still takes."""
        tokens = self.tokens_left(busy.made, busy.most)
        return (busy.positions * self.position_us + tokens * self.token_us) // 1000


@dataclass(slots=True)
class Waiter:
    """One who waits. `place`: 1 is next, 0 is called; `wait_ms` until then, or UNKNOWN."""

    asker: str
    session: str
    run: Run_
    wants: Busy
    number: int  # in the order of coming
    since_ms: int
    until_ms: int
    place: int = 0
    wait_ms: int = UNKNOWN
    called_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """Seats of a run: how many there are, and the answers under way on them, each with its asker."""

    seats: int
    busy: Sequence[tuple[str, Busy]]


class Line:
    """Those who wait for a seat on this peer, in one line for each run."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._waiters: dict[tuple[str, str], Waiter] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def runs(self) -> set[Run_]:
        """For which runs somebody waits."""
        return {waiter.run for waiter in self._waiters.values()}

    @property
    def places(self) -> dict[tuple[str, str], int]:
        """By asker and session: 1 is next, 0 is called."""
        return {key: waiter.place for key, waiter in self._waiters.items()}

    def find(self, asker: str, session: str) -> Waiter | None:
        """Returns the waiter for that session of that origin, or None."""
        return self._waiters.get((asker, session))

    def enter(self, now_ms: int, asker: str, session: str, run: Run_, wants: Busy) -> str:
        """Stands in line, or stays there; why not, or ""."""
        known = self._waiters.get((asker, session))
        if known is not None and known.run == run:
            known.until_ms = now_ms + LEASE_MS
            return ""
        if known is None:
            own = sum(waiter.asker == asker for waiter in self._waiters.values())
            if own >= MAX_OF_ONE:
                return f"{FULL}, and {own} of your questions wait already; ask again later"
            if len(self._waiters) >= MAX_WAITING:
                return f"{FULL}, and {MAX_WAITING} questions wait already; ask again later"
        self._number += 1
        self._waiters[asker, session] = Waiter(
            asker, session, run, wants, self._number, now_ms, now_ms + LEASE_MS
        )
        return ""

    def leave(self, asker: str, session: str) -> None:
        """Has a seat, or wants none any more."""
        self._waiters.pop((asker, session), None)

    def put_back(self, asker: str, session: str) -> None:
        """Was called in vain, since the seat went to an answer that had to go on: stands where it stood before."""
        waiter = self._waiters.get((asker, session))
        if waiter is not None:
            waiter.called_ms = None

    def gone(self, asker: str) -> None:
        """Everything of an asker that is not connected any more."""
        for key in [key for key in self._waiters if key[0] == asker]:
            del self._waiters[key]

    def kept(self, run: Run_, but: tuple[str, str]) -> int:
        """Seats of `run` that are kept for those who were called, but for one."""
        return sum(
            waiter.run == run and waiter.called_ms is not None and key != but
            for key, waiter in self._waiters.items()
        )

    def look(self, now_ms: int, rooms: Mapping[Run_, Room], owed_milli: Callable[[str], int]) -> None:
        """Lets those go whose time is over, calls the next where there is a seat, and says to all where they stand."""
        for key, waiter in list(self._waiters.items()):
            held = waiter.called_ms is not None and now_ms >= waiter.called_ms + HOLD_MS
            if held or now_ms >= waiter.until_ms or waiter.run not in rooms:
                del self._waiters[key]
        owed: dict[str, int] = {}
        for run in sorted(self.runs):
            self._look_at(now_ms, run, rooms[run], owed, owed_milli)

    def _look_at(
        self, now_ms: int, run: Run_, room: Room, owed: dict[str, int], owed_milli: Callable[[str], int]
    ) -> None:
        mine = sorted((w for w in self._waiters.values() if w.run == run), key=lambda waiter: waiter.number)
        under_way: dict[str, int] = {}
        for asker, _ in room.busy:
            under_way[asker] = under_way.get(asker, 0) + 1
        called = [waiter for waiter in mine if waiter.called_ms is not None]
        for waiter in called:
            under_way[waiter.asker] = under_way.get(waiter.asker, 0) + 1
        ranked: list[tuple[tuple[int, int, int], Waiter]] = []
        for waiter in mine:
            if waiter.called_ms is not None:
                continue
            if waiter.asker not in owed:
                owed[waiter.asker] = head_start_ms(owed_milli(waiter.asker))
            turn = under_way.get(waiter.asker, 0)
            under_way[waiter.asker] = turn + 1
            ranked.append(((turn, waiter.since_ms - owed[waiter.asker], waiter.number), waiter))
        ranked.sort(key=lambda pair: pair[0])
        free = room.seats - len(room.busy) - len(called)
        for place, (_, waiter) in enumerate(ranked):
            if place < free:
                waiter.called_ms = now_ms
                called.append(waiter)
        for waiter in called:
            waiter.place, waiter.wait_ms = 0, 0
        self._forecast(room, called, [waiter for _, waiter in ranked if waiter.called_ms is None])

    def _forecast(self, room: Room, called: Sequence[Waiter], order: Sequence[Waiter]) -> None:
        """When each gets a seat, if answers go on as they did."""
        pace = self.pace
        ends = [pace.lasts_ms(busy) for _, busy in room.busy] + [pace.lasts_ms(w.wants) for w in called]
        heapq.heapify(ends)
        for place, waiter in enumerate(order, 1):
            waiter.place, waiter.wait_ms = place, UNKNOWN
            if pace.token_us and ends:
                waiter.wait_ms = heapq.heappop(ends)
                heapq.heappush(ends, waiter.wait_ms + pace.lasts_ms(waiter.wants))


# --- words ------------------------------------------------------------------------------------------------

_ORDINALS: Final = (
    "",
    "next",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)


def waiting_text(place: int, wait_ms: int) -> str:
    """What a person reads who waits: "you are third, about 20 s"."""
    if place < 1:
        return "your turn comes now"
    who = _ORDINALS[place] if place < len(_ORDINALS) else f"number {place}"
    if wait_ms < 0:
        return f"you are {who} in line for a free session"
    return f"you are {who} in line, {about(wait_ms)}"


def about(wait_ms: int) -> str:
    """A time that is an estimate, in as many digits as it deserves."""
    seconds = -(-wait_ms // 1000)
    if seconds <= 10:
        return f"about {max(seconds, 1)} s"
    if seconds < 120:
        return f"about {-(-seconds // 5) * 5} s"
    return f"about {-(-seconds // 60)} minutes"
