"""Waiting for a seat where all of them are taken: the line that a stage keeps, and an asker that stands in it.

Edge around `peer.session.admission_queue`, which decides. An asker whose OPEN was refused with NO_SLOT asks whoever
refused, with REQUEST `wait`, again and again: each answer comes when its place changes, or after a while. Called, it
opens again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from peer.errors import BadCommand, MeshError, MeshFull, PeerError
from peer.session.admission_queue import FULL, Busy, waiting_text
from peer.session.seat_admission import MILLI
from peer.session.stage import StageCore
from peer.wire.generated.requests import WAIT, WaitAnswer, WaitRequest
from peer.wire.request_kind import RequestKind

ANSWER_WITHIN_S: Final = 3.0  # a place that does not change is said again after this
AGAIN_S: Final = 0.5  # after a peer that was asked could not answer
MAX_WHY: Final = 400  # characters
_SESSION: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Waits:
    """Where a question stands that waits for a free session: `place` 1 is next. `wait_s` None: not known."""

    place: int
    wait_s: float | None

    @property
    def text(self) -> str:
        """For people: "you are third in line, about 20 s"."""
        return waiting_text(self.place, -1 if self.wait_s is None else int(self.wait_s * MILLI))


# --- the stage's side


class Queue:
    """Answers `wait` from the line of `core`."""

    def __init__(self, core: StageCore) -> None:
        self._core = core
        self._moved = asyncio.Event()

    def look(self) -> None:
        """Seats may have become free."""
        line = self._core.admitting.line
        if len(line):
            before = line.places
            self._core.admitting.look(time.monotonic())
            if line.places != before:
                self._moved.set()

    async def answer(self, asker: str, said: WaitRequest) -> WaitAnswer:
        """Where `asker` stands. Raises BadCommand, and MeshError when there is no such line any more."""
        run = self._core.run_of(said.plan, said.stage)
        if run is None:
            raise BadCommand("wait: these units are not served here")
        session, wants = said.session, Busy(said.positions, 0, said.tokens)
        admitting = self._core.admitting
        now = time.monotonic()
        why = self._core.may_ask(asker) or admitting.line.enter(int(now * MILLI), asker, session, run, wants)
        if why:
            return WaitAnswer(-1, why=why)
        admitting.look(now)
        until = now + ANSWER_WITHIN_S
        while True:
            waiter = admitting.line.find(asker, session)
            if waiter is None:
                raise MeshError("this line is over: ask for another seat")
            left = until - time.monotonic()
            if waiter.place != said.place or left <= 0:
                return WaitAnswer(waiter.place, waiter.wait_ms)
            self._moved.clear()
            try:
                async with asyncio.timeout(left):
                    await self._moved.wait()
            except TimeoutError:
                admitting.look(time.monotonic())


# --- the asker's side


class Asks(Protocol):
    """How an asker reaches a stage."""

    def __call__(
        self, peer: str, kind: RequestKind[WaitRequest, WaitAnswer], said: WaitRequest
    ) -> Awaitable[WaitAnswer]:
        """The answer of `peer` to a request."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What waits: a session, the positions that it will send, and the most tokens that may come."""

    session: bytes
    positions: int
    tokens: int


async def called(
    ask: Asks,
    full: Mapping[str, tuple[int, int]],
    wanted: Wanted,
    told: Callable[[Waits], None],
    within_s: float,
) -> str:
    """Stands in line at each peer of `full`, which are those that refused, with the version of the plan and the place
    in its route. Returns who calls; "" when no line is left, and a new try is due. Raises MeshFull.
    """
    places: dict[str, Waits] = {}

    def best() -> Waits:
        return min(places.values(), key=lambda each: each.place, default=Waits(0, None))

    def stands(peer: str, waits: Waits) -> None:
        before = best()
        places[peer] = waits
        if best() != before:
            told(best())

    tries = {asyncio.ensure_future(_in_line(ask, peer, at, wanted, stands)) for peer, at in full.items()}
    refused: list[MeshFull] = []
    lost = False
    try:
        async with asyncio.timeout(within_s):
            while tries:
                done, tries = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
                ends = [each.result() for each in done]
                if found := [end for end in ends if isinstance(end, str) and end]:
                    return found[0]
                lost = lost or "" in ends  # the places in the other lines stay
                refused += [end for end in ends if isinstance(end, MeshFull)]
    except TimeoutError:
        text = f"{FULL}, for {within_s:.0f} s already; try again later"
        raise MeshFull(text, best().wait_s) from None
    finally:
        for each in tries:
            each.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
    if lost:
        return ""
    raise refused[0]


async def _in_line(
    ask: Asks, peer: str, at: tuple[int, int], wanted: Wanted, stands: Callable[[str, Waits], None]
) -> str | MeshFull:
    """`peer` when it calls; "" when it is no more what it was; why nobody may wait there."""
    place = -1
    while True:
        said = WaitRequest(wanted.session.hex(), *at, wanted.positions, wanted.tokens, place)
        try:
            answer = await ask(peer, WAIT, said)
        except MeshError as error:
            if str(error).startswith("unknown request"):  # it is of an older version, which has no line
                return MeshFull(f"{FULL}; try again when one has finished")
            await asyncio.sleep(AGAIN_S)
            return ""
        except (PeerError, TimeoutError):
            await asyncio.sleep(AGAIN_S)
            return ""
        place = answer.place
        wait_s = answer.wait_ms / MILLI if answer.wait_ms >= 0 else None
        if place < 0:
            return MeshFull(answer.why[:MAX_WHY] or f"{FULL}; try again later", wait_s)
        if place == 0:
            return peer
        stands(peer, Waits(place, wait_s))
