"""Decides what people read while nobody coordinates, and looks for the mesh when this peer is alone or was left out.

Edge. `LeaderWatch` starts a search the moment the coordinator is lost, so that nobody wonders why nothing happens.
Mostly the others have chosen another one before the first try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from peer.errors import PeerError
from signaling.errors import SignalingError

FIRST_PAUSE_S: Final = 1.0  # an election on a quiet mesh is over before anybody need be asked twice
MOST_PAUSE_S: Final = 8.0
SOON: Final = 20  # tries; after them nobody waits in front of it, and the pauses go on growing
SELDOM_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Away:
    """Nobody coordinates, as far as this peer knows."""

    name: str  # of who did, as people call it
    needed: bool  # whether a stage of the plan that serves has nobody who is here
    voters: int
    here: int  # voters that this peer reaches, itself among them
    attempt: int = 0  # to find the mesh again; 0: the others are choosing
    refused: str = ""  # why this peer's own copy of the log stands still

    @property
    def stuck(self) -> bool:
        """Whether too few voters are here to choose anybody."""
        return 2 * self.here <= self.voters

    def __str__(self) -> str:
        if self.refused:
            return f"the log of the mesh stands still here: {self.refused}; tried again every second"
        meanwhile = (
            "no answer meanwhile, nobody here has a part of the model"
            if self.needed
            else "answers go on, but peers that come or go are not planned for"
        )
        lost = f"the coordinator{f' ({self.name})' if self.name else ''} is gone: {meanwhile}; "
        if not self.stuck:
            return lost + "the others choose another one"
        if self.voters <= 1:
            tries = f" (looking for it, try {self.attempt})" if self.attempt else ""
            waits = f"nobody can take its place, it has to come back{tries}"
            return f"{lost}{waits}; if it is gone for good, shoal recover goes on without it"
        waits = f"{self.here} of {self.voters} voters are here, {self.voters // 2 + 1} are needed to choose another one"
        tries = f" (looking for them, try {self.attempt})" if self.attempt else ""
        return f"{lost}{waits}{tries}; if they are gone for good, shoal recover goes on without them"


def pauses() -> Iterator[float]:
    """Seconds before each try. There is no last one: a machine that lends itself is there whenever others return."""
    pause_s = FIRST_PAUSE_S
    for tried in count(1):
        yield pause_s
        pause_s = min(2 * pause_s, MOST_PAUSE_S if tried < SOON else SELDOM_S)


class Returning:
    """Searches for as long as `lost()` says what is missing. `enter` makes one try; `changed` follows `away`."""

    def __init__(
        self,
        lost: Callable[[int], Away | None],
        enter: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        pauses_of: Callable[[], Iterator[float]] = pauses,
    ) -> None:
        self.away: Away | None = None
        self._lost = lost
        self._enter = enter
        self._changed = changed
        self._pauses = pauses_of
        self._now = asyncio.Event()

    def try_now(self) -> None:
        """Spares the pause before the next try, or ends the search when nothing is missing any more."""
        self._now.set()

    async def search(self) -> None:
        """Returns when nothing is missing."""
        for attempt, pause_s in enumerate(self._pauses()):
            if not self._look(attempt):
                return
            await self._pause(pause_s)
            if not self._look(attempt + 1):
                return
            try:
                await self._enter()
            except (PeerError, SignalingError, TimeoutError) as error:
                log.info("the mesh is not found yet: %s", error)

    def _look(self, attempt: int) -> bool:
        away = self._lost(attempt)
        if away != self.away:
            self.away = away
            self._changed()
        return away is not None

    async def _pause(self, pause_s: float) -> None:
        self._now.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._now.wait()
        except TimeoutError:
            return
