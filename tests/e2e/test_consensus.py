"""Real processes lose the peer that coordinates, by a kill and by a freeze: answers, members and memory go on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.state.generated.commands import ConversationStarted
from peer.state.member_commands import encode_command
from peer.wire.generated.requests import LEADER, PROPOSE, ProposeRequest
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from tests.e2e.command import Running, running
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

TOKENS = 120
COMMON = ("--memory", "1GiB", "--bind", "127.0.0.1")


@dataclass
class Town:
    """A signaling server, peers in processes of their own by name, and one that only asks, in this process."""

    home: Path
    store: Path
    model: str  # its id
    meeting: str  # where the signaling server is
    stack: AsyncExitStack
    link: str = ""
    asker: MeshMember = field(init=False)
    processes: dict[str, Running] = field(default_factory=dict)
    orders: list[tuple[int, int]] = field(default_factory=list)

    async def add(self, name: str) -> None:
        words = [
            "join",
            self.link,
            "--name",
            name,
            "--state",
            self.home / name,
            "--store",
            self.store,
            *COMMON,
        ]
        self.processes[name] = self.stack.enter_context(running(self.home, *words))

    def peer(self, name: str) -> str:
        return next(peer for peer, member in self.asker.view.state.members.items() if member.name == name)

    @property
    def coordinator(self) -> str:
        """By name; "" where nobody coordinates, as far as the asker knows."""
        member = self.asker.view.state.members.get(self.asker.view.leader or "")
        return member.name if member is not None else ""

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
                await asyncio.sleep(0.02)

    def found(self) -> Running:
        """Starts the founder, or starts it again."""
        words = [
            "serve",
            self.model,
            "--signaling",
            self.meeting,
            "--name",
            "founder",
            "--cuts",
            "3",
            "--keep",
        ]
        words += ["--protection", "high", "--store", self.store, "--state", self.home / "founder", *COMMON]
        self.processes["founder"] = self.stack.enter_context(running(self.home, *words))
        return self.processes["founder"]

    def all_vote(self) -> bool:
        """Three vote, and all of them are here."""
        replica = self.asker.view.replica
        voters = replica.config.voters if replica is not None else ()
        return len(voters) == 3 and set(voters) <= self.asker.view.state.members.keys()

    def doubled(self) -> bool:
        """Every stage is served, and held by a standby as well."""
        state = self.asker.view.state
        plan = state.serving()
        return plan is not None and all(
            any((stage.first, stage.stop) in state.members[peer].held for peer in stage.standbys)
            for stage in plan.stages
        )

    async def answer(self, at: int = -1, action: Callable[[], None] = lambda: None) -> list[int]:
        """The tokens of one answer; `action` is done when `at` of them are here."""
        got: list[int] = []
        conversation = Conversation(self.asker.sessions, self.asker.model.prompts, os.urandom(16))
        settings = Settings(max_tokens=TOKENS, ignore_end=True)
        async for piece in conversation.tokens([1, 2, 3, 4], settings):
            if isinstance(piece, Delta) and piece.token >= 0:
                got.append(piece.token)
                if len(got) == at:
                    action()
        conversation.close()
        return got


@asynccontextmanager
async def started(home: Path, gguf: Path) -> AsyncIterator[Town]:
    store = Store(home / "store")
    model = build_model(open_gguf(gguf, "tiny"), "8bit", store)
    async with AsyncExitStack() as stack:
        where = ["--store", store.root]
        meeting = stack.enter_context(running(home, "signaling", "--port", "0", *where))
        url = meeting.until(r"^http://\S+")[0]
        town = Town(home, store.root, model, url, stack)
        town.link = town.found().until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        options = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        asker = town.asker = await stack.enter_async_context(join(town.link, options, store))

        def obeyed() -> None:
            assert asker.view.replica is not None
            town.orders.append(asker.view.replica.order)

        asker.view.subscribe(obeyed)
        for name in ("a", "b"):
            await town.add(name)
        await town.until(lambda: town.all_vote() and town.doubled())
        yield town


async def started_conversation(town: Town, name: str) -> None:
    """Something that the mesh is to remember."""
    command = ConversationStarted(name, name, "", "", (), 1, town.asker.me, "asker", "#3366cc")
    await town.asker.view.ask_leader(PROPOSE, ProposeRequest(encode_command(command).decode()))


async def test_a_killed_founder_and_a_frozen_coordinator_take_nothing_along(tmp_path: Path) -> None:
    gguf = TinyModel().write_gguf(tmp_path / "tiny.gguf")
    async with started(tmp_path, gguf) as town:
        view = town.asker.view
        assert town.coordinator == "founder"
        undisturbed = await town.answer()
        await started_conversation(town, "before")

        # The founder coordinates and serves a stage: it is killed in the middle of an answer.
        lost = town.peer("founder")
        killed_s = 0.0

        def kill() -> None:
            nonlocal killed_s
            killed_s = time.monotonic()
            town.processes["founder"].process.kill()

        assert await town.answer(10, kill) == undisturbed
        await town.until(lambda: town.coordinator in ("a", "b"))
        print(f"another coordinator after {time.monotonic() - killed_s:.1f} s")
        await town.until(lambda: lost not in view.state.members)
        assert "before" in view.state.conversations
        await town.add("c")
        town.found()  # and the founder is back: as a voter among others
        await town.until(lambda: town.all_vote() and len(view.state.members) == 5 and town.doubled())
        await started_conversation(town, "between")
        assert await town.answer() == undisturbed

        # Whoever coordinates now is frozen until another one does, and wakes up.
        frozen = town.coordinator
        process, peer = town.processes[frozen].process, town.peer(frozen)
        process.send_signal(signal.SIGSTOP)
        try:
            await town.until(lambda: town.coordinator not in ("", frozen))
            leader = view.leader
            assert leader is not None
            await started_conversation(town, "after")
        finally:
            process.send_signal(signal.SIGCONT)
        await town.until(lambda: any(member.name == frozen for member in view.state.members.values()))
        async with asyncio.timeout(WITHIN_S):
            while True:  # it follows, and knows what was said while it was frozen
                said = await town.asker.links.ask(peer, LEADER, None)
                assert view.replica is not None
                if said.leader == view.leader and said.term == view.replica.term:
                    break
        assert {"before", "between", "after"} <= view.state.conversations.keys()
        assert town.orders == sorted(town.orders), "an old order was obeyed"
        await town.until(town.doubled)
        assert await town.answer() == undisturbed
