"""Counts what happened lately: a rate over a sliding window. Pure: handed `now`."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0  # long enough to be readable, short enough to follow a conversation


class Meter:
    """Events per second over the last WINDOW_S; idle seconds count."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def add(self, now: float) -> None:
        self._times.append(now)
        self._trim(now)

    def per_second(self, now: float) -> float:
        """Rate between the first event in the window and `now`."""
        self._trim(now)
        if len(self._times) < 2:
            return 0.0
        return len(self._times) / max(now - self._times[0], 1e-3)

    def _trim(self, now: float) -> None:
        while self._times and self._times[0] < now - WINDOW_S:
            self._times.popleft()
