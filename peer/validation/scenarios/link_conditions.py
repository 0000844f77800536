"""Decides what happens to each datagram between two peers: when it arrives, or that it never does. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

REORDERED_S: Final = 0.02  # how much later a datagram comes that others overtake


@dataclass(frozen=True, slots=True)
class Conditions:
    """One link's, both ways. `cuts`: spans of seconds since they began in which nothing passes."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0  # share of datagrams
    reorder: float = 0.0  # share of datagrams that others overtake
    cuts: tuple[tuple[float, float], ...] = ()

    def cut_at(self, since_s: float) -> bool:
        """Whether nothing passes now."""
        return any(first <= since_s < stop for first, stop in self.cuts)


CLEAR: Final = Conditions()
CUT: Final = Conditions(cuts=((0.0, float("inf")),))


class Direction:
    """One way of one link. `draw()` is uniform in [0, 1): the same draws, the same fates."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._last_due = 0.0

    def due(self, now: float, since: float, conditions: Conditions) -> float | None:
        """When a datagram of `now` arrives under `conditions` that began at `since`; None: it is lost.

        Delay and jitter keep the order; a reordered datagram is late by REORDERED_S and holds nobody up.
        """
        if conditions.cut_at(now - since):
            return None
        lost, late, jitter = self._draw(), self._draw(), self._draw()
        if lost < conditions.loss:
            return None
        due = now + conditions.delay_s + jitter * conditions.jitter_s
        if late < conditions.reorder:
            return due + REORDERED_S
        self._last_due = max(due, self._last_due)
        return self._last_due
