"""Decides how fast tokens came lately, while any came. Pure: handed `now`."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

WINDOW_S = 10.0  # long enough to be readable, short enough to follow a conversation


class Meter:
    """A rate from readings of a counter over the last WINDOW_S. Time in which nothing came does not count."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def read(self, now: float, total: int) -> None:
        """The counter shows `total`."""
        self._readings.append((now, total))
        self._trim(now)

    def per_second(self, now: float) -> float:
        """0 when nothing came within the window."""
        self._trim(now)
        readings = list(self._readings)
        spans = [
            (later - before, more - less)
            for (before, less), (later, more) in pairwise(readings)
            if more > less
        ]
        seconds = sum(span for span, _ in spans)
        return sum(count for _, count in spans) / seconds if seconds > 0 else 0.0

    def _trim(self, now: float) -> None:
        while self._readings and self._readings[0][0] < now - WINDOW_S:
            self._readings.popleft()
