"""Decides when a client's next request may be read: so many at once, then so many a second, and few that wait. Pure.

The generic cell rate algorithm (ITU-T I.371): one time for each client says when it would have earned all it asked.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

MOST_CLIENTS: Final = 1024  # that are remembered, of those that asked last


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one client may ask."""

    at_once: int = 20
    each_s: float = 0.02  # between two requests after these
    most_waiting: int = 128  # for that time to come; more are refused


@dataclass(frozen=True, slots=True)
class TooOften:
    """The request is refused: one would be read after `wait_s`."""

    wait_s: float


class ClientPace:
    """Times are of one clock of the caller, in seconds."""

    def __init__(self, bounds: Bounds = Bounds()) -> None:
        self._bounds = bounds
        self._earned_s: dict[
            Hashable, float
        ] = {}  # when all requests of a client are earned; lately changed last

    def take(self, client: Hashable, now_s: float) -> float | TooOften:
        """How long the request waits before it is read. Who leaves meanwhile has asked all the same."""
        bounds = self._bounds
        earned_s = max(self._earned_s.pop(client, now_s), now_s)
        wait_s = max(0.0, earned_s + bounds.each_s - bounds.at_once * bounds.each_s - now_s)
        refused = wait_s > bounds.most_waiting * bounds.each_s
        self._earned_s[client] = earned_s if refused else earned_s + bounds.each_s
        if len(self._earned_s) > MOST_CLIENTS:
            del self._earned_s[next(iter(self._earned_s))]
        return TooOften(wait_s) if refused else wait_s
