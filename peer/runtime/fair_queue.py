"""Decides whose work a worker does next: of those that wait, the asker who got the fewest tokens. Pure.

Deficit round robin over tokens, counted from below: who comes anew, or was away, starts level with the one who got
least of those that waited already, so that nobody saves up turns. Within an asker the order is that of arrival. Only
the order changes: what is computed together does not change any result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_KNOWN: Final = 1024  # askers; those that got least are forgotten first, and start anew


class FairQueue:
    """Tokens that each asker got here."""

    def __init__(self) -> None:
        self._got: dict[str, int] = {}
        self._waited: frozenset[str] = frozenset()  # askers at the last look
        self._floor = 0  # what the one who got least of those had

    def ordered(self, waiting: Sequence[tuple[bytes, str]]) -> list[bytes]:
        """Sessions, each with its asker, in the order in which they should run."""
        askers = frozenset(asker for _, asker in waiting)
        stayed = [self._got[asker] for asker in askers & self._waited]
        self._floor = max(self._floor, min(stayed, default=0))
        for asker in askers - self._waited:
            self._got[asker] = max(self._got.get(asker, 0), self._floor)
        self._waited = askers
        return [session for session, _ in sorted(waiting, key=lambda pair: self._got[pair[1]])]

    def ran(self, asker: str, tokens: int) -> None:
        """`asker` got so many tokens."""
        self._got[asker] = self._got.get(asker, self._floor) + tokens
        if len(self._got) > MAX_KNOWN:
            away = self._got.keys() - self._waited
            for other in sorted(away, key=lambda each: (self._got[each], each))[: len(self._got) - MAX_KNOWN]:
                del self._got[other]
