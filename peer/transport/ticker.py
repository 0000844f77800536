"""Wakes all that looks at something now and then at the same moments, so that an idle peer wakes up seldom.

Edge over the loop: whoever ticks says what time it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

SLACK_S: Final = 0.05  # a tick so little too early counts: the next one would be late

After = Callable[[float], Awaitable[None]]  # seconds; returns at a tick after about that time


class Ticks:
    """`now`: seconds of the loop's clock."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    async def after(self, seconds: float) -> None:
        """Returns at the first tick after that time."""
        loop = asyncio.get_running_loop()
        ticked = loop.create_future()
        self._waiting.append((loop.time() + seconds, ticked))
        await ticked

    def tick(self, now: float) -> None:
        """Wakes whose time has come."""
        due = [ticked for at, ticked in self._waiting if at - SLACK_S <= now]
        self._waiting = [(at, ticked) for at, ticked in self._waiting if at - SLACK_S > now]
        for ticked in due:
            if not ticked.done():  # nobody waits for one that was cancelled
                ticked.set_result(None)
