"""Numbered commands that are proposed all the time, and reads that must see them: what was acknowledged must be there.

Edge. The commands are messages of conversations, said as any member says them; reads go through ReadIndex.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from peer.errors import CannotServe, PeerError
from peer.member.epoch_recovery import kept_peers
from peer.member.mesh_member import MeshMember
from peer.replication.log_keeping import LogKeeping, state_of
from peer.state.generated.commands import ConversationStarted, MessageAdded
from peer.state.mesh_state import MeshState
from peer.validation.world.child_processes import JoinedProcess

EACH: Final = 4096  # messages in one conversation
EVERY_S: Final = 0.2  # a command; they do not wait for each other
READ_EVERY_S: Final = 0.25
WAITING: Final = 150  # commands without an answer, at most: 30 s of them
LAST_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One command that the mesh said it has."""

    number: int
    said_s: float
    at_s: float


class Writing:
    """Says commands and reads until it is closed. All figures are of the whole time."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self.said = 0
        self.acknowledged: list[Acknowledged] = []
        self.unknown = 0  # commands that nobody acknowledged: they may be in the log or not
        self.reads = 0
        self.refused_reads = 0
        self.stale_reads = 0
        self.went_back = 0  # orders that were obeyed after newer ones
        self._order = (0, 0)
        self._unsubscribe: Callable[[], None] | None = None  # None: it does not follow the mesh
        self._since: list[int] = []  # numbers acknowledged since the last good read began

    async def begin(self) -> None:
        """Raises PeerError when the mesh does not take the first command."""
        await self._start_conversation(0)
        self._unsubscribe = self._mesh.view.subscribe(self._obeyed)
        self._loops = [asyncio.ensure_future(self._write()), asyncio.ensure_future(self._read())]

    async def close(self) -> None:
        """No more commands; waits for the answers to those that were said."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WITHIN_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def first_after(self, at_s: float) -> float | None:
        """When the first command was acknowledged that was said after `at_s`."""
        return min((each.at_s for each in self.acknowledged if each.said_s >= at_s), default=None)

    def lost_in(self, state: MeshState) -> list[int]:
        """Numbers of acknowledged commands that `state` does not have."""
        return [each.number for each in self.acknowledged if not _has(state, each.number)]

    def _obeyed(self) -> None:
        replica = self._mesh.view.replica
        if replica is None:
            return
        if replica.order < self._order:
            self.went_back += 1
        self._order = replica.order

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if len(self._tasks) < WAITING:
                task = asyncio.ensure_future(self._say(self.said))
                self.said += 1
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _say(self, number: int) -> None:
        me = self._mesh.me
        place = number // EACH
        said_s = time.perf_counter()
        try:
            if number % EACH == EACH // 2:
                await self._start_conversation(place + 1)  # long before it is needed
            command = MessageAdded(
                _conversation(place), f"n{number}", "", me, "to-people", str(number), 0, "", "", (), 0
            )
            await self._mesh.propose(command)
        except (PeerError, TimeoutError):
            self.unknown += 1
            return
        self.acknowledged.append(Acknowledged(number, said_s, time.perf_counter()))
        self._since.append(number)

    async def _start_conversation(self, place: int) -> None:
        name = _conversation(place)
        me = self._mesh.me
        await self._mesh.propose(ConversationStarted(name, name, "", "", (), 0, me, "asker", "#3366cc"))

    async def _read(self) -> None:
        """A read that begins now must see what was acknowledged before now."""
        while True:
            await asyncio.sleep(READ_EVERY_S)
            replica = self._mesh.view.replica
            if replica is None:
                continue
            since, self._since = self._since, []
            try:
                await replica.read()
            except PeerError:
                self.refused_reads += 1
                self._since = since + self._since
                continue
            self.reads += 1
            if not all(_has(replica.state, number) for number in since):
                self.stale_reads += 1


def kept_states(mesh: str, children: Collection[JoinedProcess]) -> dict[str, MeshState]:
    """What the logs on the disks of ended peers say, by name. Raises CannotServe where one kept none."""
    found: dict[str, MeshState] = {}
    for child in children:
        kept = kept_peers(child.state, mesh)
        if not kept:
            raise CannotServe(f"{child.name} kept no log")
        best = max(kept, key=lambda peer: peer.epoch)
        keeping = LogKeeping(mesh, "", best.beside)
        begin = keeping.open(best.epoch)
        found[child.name] = state_of(begin.snapshot, begin.entries)
        keeping.close()
    return found


def _has(state: MeshState, number: int) -> bool:
    conversation = state.conversations.get(_conversation(number // EACH))
    return conversation is not None and conversation.messages.get(f"n{number}") is not None


def _conversation(place: int) -> str:
    return f"numbers-{place}"
