"""What this peer says in conversations: kept in order until it is committed, and shown as said meanwhile.

Edge; the same in web_peer/src/replication/proposal_queue.ts. While nobody leads it waits; what was said counts here at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from peer.errors import ConnectFailed, ConnectionLost, NotLeader, PeerError
from peer.state.conversations import Conversations, converse
from peer.state.generated.commands import ConversationChanged, ConversationCommand, ParticipantSet

AGAIN_S: Final = 0.5  # after nobody could take it
MAX_WAITING: Final = 4096  # commands; beyond that nothing more is taken


@dataclass(slots=True)
class _Waiting:
    command: ConversationCommand
    said: bool = False  # committed, though this peer may not know it by its log yet


class Proposals:
    """`propose` has the log say a command; `changed()` and `refused(command, why)` are called when that is so."""

    def __init__(
        self,
        propose: Callable[[ConversationCommand], Awaitable[None]],
        logged: Callable[[], Conversations],
        changed: Callable[[], None],
        refused: Callable[[ConversationCommand, str], None],
    ) -> None:
        self._propose = propose
        self._logged = logged
        self._changed = changed
        self._refused = refused
        self._waiting: list[_Waiting] = []
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def say(self, *commands: ConversationCommand) -> None:
        """Says each once, in this order, as soon as somebody takes it."""
        if len(self._waiting) + len(commands) > MAX_WAITING:
            for command in commands:
                self._refused(command, "too much waits for the coordinator")
            return
        self._waiting += map(_Waiting, commands)
        self._empty.clear()
        self._news.set()
        self._changed()

    def extends(self, message: str) -> bool:
        """Whether something of this peer about that message is not in the log yet."""
        return any(getattr(each.command, "id", None) == message for each in self._waiting)

    @property
    def count(self) -> int:
        """Commands that nobody has taken yet."""
        return sum(not each.said for each in self._waiting)

    async def said(self) -> None:
        """Waits until everything was taken, or refused."""
        await self._empty.wait()

    def over(self, log: Conversations) -> Conversations:
        """The conversations as the log has them, and what this peer said on top."""
        every, kept = log, []
        for each in self._waiting:
            after = converse(every, each.command)
            if isinstance(after, str):
                if not each.said:
                    kept.append(each)
                continue  # it has no effect (any more): it is in the log, or void
            every = after
            kept.append(each)
        self._waiting = kept
        return every

    async def run(self) -> None:
        """Says what waits, for as long as this peer is a member."""
        while True:
            following = next((each for each in self._waiting if not each.said), None)
            if following is None:
                self._empty.set()
                self._news.clear()
                await self._news.wait()
                continue
            await self._say(following)
            self._changed()

    async def _say(self, waiting: _Waiting) -> None:
        command = waiting.command
        try:
            await self._propose(command)
        except (NotLeader, ConnectFailed, ConnectionLost, TimeoutError):
            await asyncio.sleep(AGAIN_S)
        except PeerError as error:
            self._drop(waiting)
            if not isinstance(
                converse(self._logged(), command), str
            ):  # else it was said before the answer was lost
                self._refused(command, str(error))
        else:
            waiting.said = True
            if isinstance(command, ConversationChanged | ParticipantSet):
                self._drop(waiting)  # saying it again would always seem to change something

    def _drop(self, gone: _Waiting) -> None:
        self._waiting = [each for each in self._waiting if each is not gone]
