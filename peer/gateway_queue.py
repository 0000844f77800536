"""Decides whose turn it is when more requests come than the mesh takes at once: who came first goes first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from peer.errors import ApiError

RETRY_AFTER_S = 5  # told to whoever finds the line full


class Line:
    """At most `most()` are in at once; at most `longest` wait. For one event loop."""

    def __init__(self, most: Callable[[], int], longest: int) -> None:
        self._most = most
        self._longest = longest
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.inside = 0

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._waiting)

    def check(self, more: int) -> None:
        """Raises ApiError (429) when the line has no room for `more`."""
        if self.waiting + more > self._longest + max(self._most() - self.inside, 0):
            raise ApiError(
                f"{self.waiting} requests wait already, and {self._longest} may: try again later",
                429,
                "rate_limit_error",
                code="rate_limit_exceeded",
                retry_after_s=RETRY_AFTER_S,
            )

    async def enter(self) -> None:
        """Waits for a place. Every return needs a `leave`."""
        if not self._waiting and self.inside < self._most():
            self.inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place was given just now
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def leave(self) -> None:
        """Gives the place to the next in line."""
        self.inside -= 1
        self.look()

    def look(self) -> None:
        """Lets in whoever there is room for: the mesh may take more now."""
        while self._waiting and self.inside < self._most():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self.inside += 1
