"""Decides which changes of a place in line a person at a terminal is told of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from peer.stage.seat_waiting import Waits

AGAIN_S: Final = 15.0  # an estimate that changes is told so often, a place at once


class WaitingLines:
    """Given each change of where a question stands, says some of them. None: its turn has come."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._told: Waits | None = None
        self._told_at = 0.0

    def __call__(self, waits: Waits | None) -> None:
        """Says the place in the queue when it changes, and other text at most each AGAIN_S; None: the wait is over."""
        now, told = self._clock(), self._told
        if waits is None:
            self._told = None
            return
        if (
            told is not None
            and told.place == waits.place
            and (told.text == waits.text or now - self._told_at < AGAIN_S)
        ):
            return
        self._told, self._told_at = waits, now
        self._say(f"all sessions of the mesh are in use: {waits.text}" if told is None else waits.text)
