"""Asks a peer that is said to be silent, at the coordinator: there, silent, gone; and watches for its return.

Edge. Whoever is silent is left alone for the quiet time of its breaker, which grows when it flaps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from peer.transport.circuit_breakers import Breakers

SECOND_ASKING: Final = 4.0  # times the patience: who is still at the signaling server may only be busy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reach:
    """How the coordinator finds out. `answers(peer, times)`: within so many times the patience of the link."""

    answers: Callable[[str, float], Awaitable[bool]]
    present: Callable[[str], bool]  # at the signaling server


@dataclass(frozen=True, slots=True)
class Findings:
    """What is done about a peer. `silent` and `gone` say whether it is worth watching for its return."""

    silent: Callable[[str], bool]
    gone: Callable[[str], bool]
    back: Callable[[str], None]


class Suspicions:
    """`wait_s()`: how long a silent peer is waited for before anything is done about it."""

    def __init__(self, reach: Reach, findings: Findings, wait_s: Callable[[], float]) -> None:
        self.breakers = Breakers()
        self._reach = reach
        self._findings = findings
        self._wait_s = wait_s
        self._looking: dict[str, asyncio.Task[None]] = {}

    def look(self, peer: str) -> None:
        """Asks `peer` now, unless that is under way or it is watched already."""
        if peer not in self._looking:
            self._start(peer, self._look(peer))

    def watch(self, peer: str) -> None:
        """Another coordinator found it silent, and watches for its return no more."""
        if peer not in self._looking:
            self.breakers.broke(peer, _now_ms())
            self._start(peer, self._watch(peer))

    def ended(self, peer: str) -> None:
        """The connection to `peer` ended: it is gone for good, or comes back by joining."""
        task = self._looking.pop(peer, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """No task is left."""
        tasks = list(self._looking.values())
        self._looking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, peer: str) -> None:
        if await self._there(peer):
            return
        wait_s = self._wait_s()
        until = time.monotonic() + wait_s
        while wait_s and time.monotonic() < until:
            if await self._there(peer):
                return
            await asyncio.sleep(min(0.25, max(0.0, until - time.monotonic())))
        self.breakers.broke(peer, _now_ms())
        gone = not self._reach.present(peer)
        log.info("%s is silent%s", peer[:8], " and gone" if gone else "")
        if (self._findings.gone if gone else self._findings.silent)(peer):
            await self._watch(peer)

    async def _there(self, peer: str) -> bool:
        if await self._reach.answers(peer, 1.0):
            return True
        return self._reach.present(peer) and await self._reach.answers(peer, SECOND_ASKING)

    async def _watch(self, peer: str) -> None:
        while True:
            until = self.breakers.quiet_until(peer)
            await asyncio.sleep(max(0, (until or 0) - _now_ms()) / 1000)
            self.breakers.chosen(peer, _now_ms())
            if await self._reach.answers(peer, SECOND_ASKING):
                self.breakers.succeeded(peer, _now_ms())
                self._findings.back(peer)
                return
            self.breakers.failed(peer, _now_ms())

    def _start(self, peer: str, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(step)
        self._looking[peer] = task

        def done(task: asyncio.Task[None]) -> None:
            if self._looking.get(peer) is task:
                del self._looking[peer]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("asking %s failed", peer[:8], exc_info=error)

        task.add_done_callback(done)


def _now_ms() -> int:
    return round(time.monotonic() * 1000)
