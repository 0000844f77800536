"""Takes a member's requests to whoever coordinates: follows it when it changes, waits while there is nobody.

Edge. Every request may be sent twice: the leader may be gone before its answer comes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from peer.errors import ConnectFailed, ConnectionLost, NotLeader
from peer.state.member_commands import Command, encode_command
from peer.transport.rpc import CALL_TIMEOUT_S
from peer.wire.request_kind import RequestKind

PATIENCE_S: Final = 30.0  # several elections, and a coordinator that has only just begun
AGAIN_S: Final = 0.25  # after a refusal that names nobody, unless somebody leads before that

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")
Ask = Callable[[str, RequestKind[Any, Any], Any], Awaitable[Any]]  # peer, kind, what it says


class LeaderLine:
    """`leader()` is who leads as far as this peer knows, or ""; `ask` asks one peer, this one itself included."""

    def __init__(self, leader: Callable[[], str], ask: Ask) -> None:
        self._leader = leader
        self._ask = ask
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Somebody else leads, or nobody."""
        self._changed.set()

    async def ask(
        self, kind: RequestKind[T, A], said: T, patience_s: float = PATIENCE_S, first: str = ""
    ) -> A:
        """The leader's answer. `first`: whom to ask first. Raises its refusal, or NotLeader when patience ends."""
        until, hint = time.monotonic() + patience_s, first
        while True:
            leader = hint or self._leader()
            self._changed.clear()
            why, hint = "nobody coordinates now", ""
            if leader:
                try:
                    return await self._with(leader, kind, said, until - time.monotonic())
                except NotLeader as error:
                    why, hint = str(error), error.leader if error.leader != leader else ""
                except (ConnectFailed, ConnectionLost, TimeoutError) as error:
                    why = f"the coordinator cannot be reached: {error}"
                log.debug("%s: %s", kind.method, why)
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise NotLeader(why)
            if not hint or hint == leader:
                await self._pause(min(AGAIN_S, left_s))

    async def _with(self, leader: str, kind: RequestKind[T, A], said: T, left_s: float) -> A:
        """One try, given up as soon as another leader is known: this one may be frozen."""
        asking: asyncio.Task[A] = asyncio.ensure_future(self._once(leader, kind, said))
        changing = asyncio.ensure_future(self._other_than(leader))
        try:
            limit_s = min(CALL_TIMEOUT_S, max(left_s, 0.01))
            await asyncio.wait({asking, changing}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return await asking
            raise ConnectionLost("it does not answer")
        finally:
            for task in (asking, changing):
                task.cancel()
            await asyncio.gather(asking, changing, return_exceptions=True)

    async def _once(self, leader: str, kind: RequestKind[T, A], said: T) -> A:
        answer: A = await self._ask(leader, kind, said)
        return answer

    async def _other_than(self, leader: str) -> None:
        while self._leader() in ("", leader):
            self._changed.clear()
            await self._changed.wait()

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            return


def spelled(command: Command) -> str:
    """Returns a command as requests carry it: its JSON."""
    return encode_command(command).decode()
