"""Decides which peer is left alone for a while after failing: circuit breakers.

Pure; whole milliseconds only, so that web_peer/src/transport/circuit_breakers.ts does the same. A
breaker is closed (used), open (left alone until a quiet time has passed since its last fault) or half-open (one probe
may find out). Only a success closes it again. Each time it opens soon after it had closed, the quiet time doubles, up
to MAX_QUIET_MS: a flapping peer is not chosen until it is quiet. `order` never removes anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

State = Literal["closed", "half-open", "open"]

WINDOW_MS: Final = 10_000  # faults older than this are forgotten
FAILED_WEIGHT: Final = 3
TRIP_WEIGHT: Final = 6  # two failures
QUIET_MS: Final = 2_000  # the first quiet time
MAX_QUIET_MS: Final = 128_000
CALM_MS: Final = 300_000  # closed for so long: the next quiet time is the first one again
PROBE_MS: Final = 10_000  # a probe that nobody heard of is given up, and another may go
MAX_KEYS: Final = 1024

_RANK: Final[dict[State, int]] = {"closed": 0, "half-open": 1, "open": 2}


@dataclass(slots=True)
class _Breaker:
    """One key. `opened_ms` None: closed."""

    faults: list[tuple[int, int]] = field(default_factory=list)  # (when, weight) within the window
    opened_ms: int | None = None  # when it opened, or failed last while open
    closed_ms: int | None = None  # when it closed again; None: it never opened
    quiet_ms: int = 0  # the present quiet time, or the last one
    probe_ms: int | None = None  # since when a probe is under way


class Breakers:
    """All breakers of one peer's view. `now` is any rising time in whole milliseconds."""

    def __init__(self) -> None:
        self._all: dict[str, _Breaker] = {}

    # --- asking

    def state(self, key: str, now: int) -> State:
        """How `key` stands."""
        breaker = self._all.get(key)
        if breaker is None or breaker.opened_ms is None:
            return "closed"
        return "half-open" if now - breaker.opened_ms >= breaker.quiet_ms else "open"

    def allows(self, key: str, now: int) -> bool:
        """Whether `key` may be used now: always when closed; half-open, when no probe is under way."""
        match self.state(key, now):
            case "closed":
                return True
            case "open":
                return False
            case "half-open":
                probe_ms = self._all[key].probe_ms
                return probe_ms is None or now - probe_ms >= PROBE_MS

    def order(self, candidates: Iterable[str], now: int) -> list[str]:
        """All of `candidates`, the closed first, then those that may be probed, then the others; else as given."""

        def rank(key: str) -> int:
            state = self.state(key, now)
            return _RANK["open" if state == "half-open" and not self.allows(key, now) else state]

        return sorted(candidates, key=rank)

    def shown(self, now: int) -> list[tuple[str, State]]:
        """Every breaker that is not closed, by key."""
        states = [(key, self.state(key, now)) for key in sorted(self._all)]
        return [(key, state) for key, state in states if state != "closed"]

    def quiet_until(self, key: str) -> int | None:
        """When an open breaker turns half-open; None for a closed one."""
        breaker = self._all.get(key)
        if breaker is None or breaker.opened_ms is None:
            return None
        return breaker.opened_ms + breaker.quiet_ms

    # --- what happened

    def chosen(self, key: str, now: int) -> None:
        """`key` is about to be used: of a half-open one, this is the probe."""
        if self.state(key, now) == "half-open" and self.allows(key, now):
            self._all[key].probe_ms = now

    def failed(self, key: str, now: int) -> None:
        """A step, a request or a connection failed."""
        self._fault(key, now, FAILED_WEIGHT)

    def broke(self, key: str, now: int) -> None:
        """It is certain that `key` is not there: opens at once."""
        self._fault(key, now, TRIP_WEIGHT)

    def succeeded(self, key: str, now: int) -> None:
        """A step or a probe came out well: closes what is half-open."""
        breaker = self._all.get(key)
        if breaker is not None and self.state(key, now) == "half-open":  # while open it must be quiet first
            breaker.opened_ms, breaker.probe_ms, breaker.closed_ms = None, None, now

    # --- inner moves

    def _breaker(self, key: str) -> _Breaker:
        breaker = self._all.get(key)
        if breaker is None:
            if len(self._all) >= MAX_KEYS:
                closed = (old for old, each in self._all.items() if each.opened_ms is None)
                del self._all[next(closed, next(iter(self._all)))]
            breaker = self._all[key] = _Breaker()
        return breaker

    def _fault(self, key: str, now: int, weight: int) -> None:
        breaker = self._breaker(key)
        match self.state(key, now):
            case "closed":
                kept = [(when, each) for when, each in breaker.faults if now - when < WINDOW_MS]
                breaker.faults = [*kept, (now, weight)]
                if sum(each for _, each in breaker.faults) >= TRIP_WEIGHT:
                    self._open(breaker, now)
            case "half-open":
                self._open(breaker, now)
            case "open":
                breaker.opened_ms = now

    def _open(self, breaker: _Breaker, now: int) -> None:
        closed_ms = breaker.closed_ms if breaker.opened_ms is None else None
        calm = closed_ms is not None and now - closed_ms >= CALM_MS
        grown = QUIET_MS if calm or breaker.quiet_ms == 0 else 2 * breaker.quiet_ms
        breaker.quiet_ms = min(grown, MAX_QUIET_MS)
        breaker.opened_ms, breaker.probe_ms, breaker.faults = now, None, []
