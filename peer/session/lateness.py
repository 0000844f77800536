"""Decides when the next token of an answer is late, from the gaps between those that came. Pure, in seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

REMEMBERED: Final = 32  # gaps
FIRST_S: Final = 0.4  # before anything is known
MARGIN: Final = 1.5  # times the slowest usual gap
EXTRA_S: Final = 0.03  # of jitter on top
FLOOR_S: Final = 0.08  # below this an event loop that is merely busy looks late
CEILING_S: Final = 2.0
USUAL: Final = 0.9  # the quantile that counts as usual
KNOWN: Final = 4  # gaps that make a quantile


class Lateness:
    """The usual gap of one answer, learned as it streams; kept from one question to the next."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=REMEMBERED)

    def gap(self, seconds: float) -> None:
        """A token came so long after the one before it."""
        self._gaps.append(seconds)

    @property
    def usual_s(self) -> float:
        """The quantile USUAL of the last gaps; FIRST_S before there are enough."""
        if len(self._gaps) < KNOWN:
            return FIRST_S
        ordered = sorted(self._gaps)
        return ordered[min(int(len(ordered) * USUAL), len(ordered) - 1)]

    @property
    def late_s(self) -> float:
        """How long after the last token the next one is late."""
        if len(self._gaps) < KNOWN:
            return FIRST_S
        return min(max(self.usual_s * MARGIN + EXTRA_S, FLOOR_S), CEILING_S)
