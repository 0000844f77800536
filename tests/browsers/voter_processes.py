"""Voters in processes of their own, and what somebody who watches the mesh sees of its log."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.state.generated.commands import ConversationStarted
from peer.state.member_commands import encode_command
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.wire.generated.requests import PROPOSE, ProposeRequest
from tests.patience import WITHIN_S

TOKENS = 16
MEMORY = 1 << 30


@dataclass
class Processes:
    """Peers in processes of their own, by name; all of them end with the test."""

    store: Path
    home: Path
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(self, name: str, *words: str) -> str:
        """The first line that it prints."""
        command = (str(Path(__file__).with_name("voter_process.py")), str(self.store), str(self.home / name))
        process = self.running[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, *command, *words),
            stdin=asyncio.subprocess.PIPE,  # its end is this process's
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            line = (await process.stdout.readline()).decode().strip()
        assert line, f"{name} ended"
        return line

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def processes(store: Path, home: Path) -> AsyncIterator[Processes]:
    made = Processes(store, home)
    try:
        yield made
    finally:
        for name in list(made.running):
            await made.kill(name)


class Watch:
    """A member that only asks, and sees what the log says."""

    def __init__(self, mesh: MeshMember) -> None:
        self.mesh = mesh

    @property
    def state(self) -> MeshState:
        return self.mesh.view.state

    @property
    def voters(self) -> set[str]:
        replica = self.mesh.view.replica
        return set(replica.config.voters) if replica is not None else set()

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
                    await asyncio.sleep(0.02)
        except TimeoutError:
            members = {member.name: (peer[:8], member.status) for peer, member in self.state.members.items()}
            leader = self.mesh.view.leader
            pytest.fail(f"{what} did not come about: {leader=} {self.voters=} {members=} {self.state.plan=}")

    def whole(self, count: int) -> bool:
        """So many vote, all of them are here, and whoever of those who lend goes, every stage is served."""
        plan, members = self.state.serving(), self.state.members
        return (
            len(self.voters) == count
            and self.voters <= members.keys()
            and self.mesh.view.leader in members
            and plan is not None
            and all(
                any(
                    (stage.first, stage.stop) in members[peer].held
                    for peer in stage.standbys
                    if peer in members
                )
                for stage in plan.stages
            )
        )

    def relieved(self, slower: str) -> bool:
        plan = self.state.serving()
        return plan is not None and slower not in route_of(plan) and slower in self.state.members

    def standing(self) -> set[str]:
        """Who holds a stage of the plan that serves."""
        plan = self.state.serving()
        return {peer for stage in plan.stages for peer in (stage.primary, *stage.standbys)} if plan else set()

    def led_without(self, lost: str) -> bool:
        return self.mesh.view.leader in self.state.members and lost not in self.state.members

    async def tokens(self) -> list[int]:
        conversation = Conversation(self.mesh.sessions, self.mesh.model.prompts, os.urandom(16))
        settings = Settings(max_tokens=TOKENS, ignore_end=True)
        pieces = conversation.tokens([1, 2, 3, 4], settings)
        got = [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
        conversation.close()
        return got

    async def say(self, name: str) -> None:
        """Something that the log is to keep."""
        me = self.mesh.me
        command = ConversationStarted(name, name, "", "", (), 1, me, "asker", "#3366cc")
        await self.mesh.view.ask_leader(PROPOSE, ProposeRequest(encode_command(command).decode()))
