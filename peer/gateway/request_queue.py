"""Decides whose turn it is when more requests come than the mesh takes at once: who came first goes first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from peer.errors import ApiError

RETRY_AFTER_S = 5  # told to whoever finds the line full before anything was measured
MOST_RETRY_AFTER_S = 600
MEASURED = 16  # requests that left last: how fast the line moves


def full(text: str, wait_s: float) -> ApiError:
    """What a program hears that cannot be let in now; it may ask again after `wait_s`."""
    retry_after_s = max(1, min(-int(-wait_s // 1), MOST_RETRY_AFTER_S))
    return ApiError(text, 503, "server_error", code="mesh_full", retry_after_s=retry_after_s)


class Line:
    """At most `most()` are in at once; at most `longest` wait. For one event loop."""

    def __init__(self, most: Callable[[], int], longest: int) -> None:
        self._most = most
        self._longest = longest
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._left_s: deque[float] = deque(maxlen=MEASURED)  # when others left
        self.inside = 0

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._waiting)

    def check(self, more: int) -> None:
        """Raises ApiError (503) when the line has no room for `more`."""
        if self.waiting + more > self._longest + max(self._most() - self.inside, 0):
            text = f"{self.waiting} requests wait already, and {self._longest} may: try again later"
            raise full(text, self._each_s() * more if self._left_s else RETRY_AFTER_S)

    def _each_s(self) -> float:
        """The time between two that leave, as measured."""
        since = self._left_s[0]
        return (asyncio.get_running_loop().time() - since) / len(self._left_s)

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
        self._left_s.append(asyncio.get_running_loop().time())
        self.look()

    def look(self) -> None:
        """Lets in whoever there is room for: the mesh may take more now."""
        while self._waiting and self.inside < self._most():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self.inside += 1
