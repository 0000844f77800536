"""Looks for a coordinator that was lost: when, how often, and what people read meanwhile.

Edge. `Mesh` starts a search the moment the connection breaks, so that nobody wonders why nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from peer.errors import PeerError
from signaling.errors import SignalingError

PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)  # before each try

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Away:
    """The coordinator is gone and is looked for."""

    name: str  # what people call it
    needed: bool  # whether the plan that serves has it among its stages
    attempt: int  # the one that is made or comes next, from 1
    attempts: int

    def __str__(self) -> str:
        meanwhile = (
            "no answer without it, it holds a part of the model"
            if self.needed
            else "answers go on, but peers that come or go are not planned for"
        )
        return (
            f"the coordinator{f' ({self.name})' if self.name else ''} is gone: {meanwhile}; "
            f"looking for it again (try {self.attempt} of {self.attempts})"
        )


class Returning:
    """One search. `enter` makes one try; `changed` is called whenever `away` changes."""

    def __init__(
        self,
        enter: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self.away: Away | None = None
        self._enter = enter
        self._changed = changed
        self._pauses_s = pauses_s
        self._now = asyncio.Event()

    def try_now(self) -> None:
        """Spares the pause before the next try."""
        self._now.set()

    async def search(self, name: str, needed: bool) -> bool:
        """True when this peer is back with the coordinator, False when every try failed."""
        for attempt, pause_s in enumerate(self._pauses_s, 1):
            self._become(Away(name, needed, attempt, len(self._pauses_s)))
            await self._pause(pause_s)
            try:
                await self._enter()
            except (PeerError, SignalingError, TimeoutError) as error:
                log.info("the coordinator is still away: %s", error)
                continue
            self._become(None)
            return True
        return False

    async def _pause(self, pause_s: float) -> None:
        self._now.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._now.wait()
        except TimeoutError:
            return

    def _become(self, away: Away | None) -> None:
        self.away = away
        self._changed()
