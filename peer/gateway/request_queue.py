"""Decides whose turn it is when more requests come than the mesh takes at once: each client in turn, each its first.

A client is a key, or an address where there are no keys. Who has the fewest answers under way goes first, among equals
who was not let in for longest: many requests of one client keep no other waiting for more than those under way.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from peer.errors import ApiError

RETRY_AFTER_S = 5  # told to whoever finds the line full before anything was measured
MOST_RETRY_AFTER_S = 600
MEASURED = 16  # requests that left last: how fast the line moves


def full(text: str, wait_s: float) -> ApiError:
    """What a program hears that cannot be let in now; it may ask again after `wait_s`."""
    return ApiError(text, 503, "server_error", code="mesh_full", retry_after_s=_whole(wait_s))


def too_many(text: str, wait_s: float) -> ApiError:
    """What a program hears that asks more than its share; it may ask again after `wait_s`."""
    return ApiError(text, 429, "requests", code="rate_limit_exceeded", retry_after_s=_whole(wait_s))


def _whole(wait_s: float) -> int:
    return max(1, min(-int(-wait_s // 1), MOST_RETRY_AFTER_S))


class Line:
    """At most `most()` are in at once; at most `longest` wait, half of them of one client. For one event loop."""

    def __init__(self, most: Callable[[], int], longest: int) -> None:
        self._most = most
        self._longest = longest
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client: none is empty
        self._inside: Counter[str] = Counter()  # by client
        self._let_in: dict[str, int] = {}  # the number of the last one, of clients that have any here
        self._number = 0
        self._left_s: deque[float] = deque(maxlen=MEASURED)  # when others left

    @property
    def inside(self) -> int:
        """How many are in."""
        return self._inside.total()

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return sum(map(len, self._waiting.values()))

    def check(self, more: int, client: str = "") -> None:
        """Raises ApiError when the line has no room for `more` (503), or not of that client (429)."""
        free = max(self._most() - self.inside, 0)
        wait_s = self._each_s() * more if self._left_s else RETRY_AFTER_S
        if self.waiting + more > self._longest + free:
            raise full(
                f"{self.waiting} requests wait already, and {self._longest} may: try again later", wait_s
            )
        own, share = len(self._waiting.get(client, ())), max(1, self._longest // 2)
        if own + more > share + free:
            raise too_many(f"{own} requests of yours wait already, and {share} may: try again later", wait_s)

    def _each_s(self) -> float:
        """The time between two that leave, as measured."""
        since = self._left_s[0]
        return (asyncio.get_running_loop().time() - since) / len(self._left_s)

    async def enter(self, client: str = "") -> None:
        """Waits for a place. Every return needs a `leave`."""
        if not self._waiting and self.inside < self._most():
            self._enters(client)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(client)  # the place was given just now
            elif turn in (own := self._waiting.get(client, deque())):
                own.remove(turn)
                self._tidy(client)
            raise

    def leave(self, client: str = "") -> None:
        """Gives the place to the next in line."""
        self._inside[client] -= 1
        self._tidy(client)
        self._left_s.append(asyncio.get_running_loop().time())
        self.look()

    def look(self) -> None:
        """Lets in whoever there is room for: the mesh may take more now."""
        while self._waiting and self.inside < self._most():
            client = min(
                self._waiting, key=lambda each: (self._inside[each], self._let_in.get(each, 0))
            )  # the first that came, among equals
            turn = self._waiting[client].popleft()
            if not turn.done():
                turn.set_result(None)
                self._enters(client)
            self._tidy(client)

    def _enters(self, client: str) -> None:
        self._number += 1
        self._inside[client] += 1
        self._let_in[client] = self._number

    def _tidy(self, client: str) -> None:
        """Forgets what is not needed of a client."""
        if not self._waiting.get(client, True):
            del self._waiting[client]
        if not self._inside[client]:
            del self._inside[client]
            if client not in self._waiting:
                self._let_in.pop(client, None)
