"""Ctrl-C on a peer's process in the middle of an answer: it leaves politely, and people hardly notice or hear why."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

import pytest

from peer.errors import AnswerFailed, NoPlan
from peer.launch.local_mesh import joined
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Conversation, Delta, Finished, Settings
from peer.state.generated.commands import Protection
from peer.state.plan_record import route_of
from peer.state.protection import PRESETS, STANDARD
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import CONTEXT, PLEDGE, Models, options
from tests.patience import WITHIN_S, soon

QUESTION = [Message("user", "What is the capital of France? Tell me about it in a paragraph.")]
HEARS_WITHIN_S = 5.0  # long before a silent peer would be given up
TOO_LITTLE = 1 << 20  # a pledge with which a peer holds nothing


class World:
    """A founder in this process and peers in processes of their own."""

    def __init__(self, founder: MeshMember, models: Models, stack: AsyncExitStack) -> None:
        self.founder = founder
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._models = models
        self._stack = stack
        self._numbers = count(1)

    async def add(self) -> str:
        """Starts one more peer; returns its name."""
        name = f"peer {next(self._numbers)}"
        args = argparse.Namespace(threads=1, transport="aiortc", store=self._models.store.root)
        assert self.founder.link is not None
        entering = joined(args, self.founder.link.url(), name, Lent(PLEDGE))
        self.processes[name] = await self._stack.enter_async_context(entering)
        return name

    def interrupt(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGINT)

    def name(self, peer: str) -> str:
        return self.founder.view.state.members[peer].name


@asynccontextmanager
async def world(
    models: Models, cuts: tuple[int, ...] | None, founder_memory: int, protection: Protection = STANDARD
) -> AsyncIterator[World]:
    mesh = MeshOptions(CONTEXT, 4, "latency", cuts, protection)
    promise = Founding(models.ids["8bit"], mesh, ServerOptions())
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(32))
        founding = found(promise, options("founder", founder_memory), models.store, key)
        yield World(await stack.enter_async_context(founding), models, stack)


async def whole(conversation: Conversation, tokens: int) -> str:
    text = ""
    async for piece in conversation.chat(QUESTION, Settings(max_tokens=tokens)):
        if isinstance(piece, Delta):
            text += piece.text
    conversation.close()
    return text


async def test_the_answer_goes_on_at_a_peer_that_holds_the_units(models: Models) -> None:
    async with world(models, None, TOO_LITTLE) as mesh:
        await mesh.add()
        await mesh.add()
        view = mesh.founder.view

        def doubled() -> list[str]:
            """Primaries whose stage a standby holds as well: how many stages there are is the planner's choice."""
            plan, members = view.state.serving(), view.state.members
            return [
                stage.primary
                for stage in (plan.stages if plan is not None else ())
                if any((stage.first, stage.stop) in members[peer].held for peer in stage.standbys)
            ]

        assert await view.until(lambda state: bool(doubled()), WITHIN_S)
        undisturbed = await whole(mesh.founder.conversation(), 60)
        plan = view.state.serving()
        assert plan is not None
        leaver = mesh.name(doubled()[0])
        conversation, text, seen, route = mesh.founder.conversation(), "", 0, ()
        async for piece in conversation.chat(QUESTION, Settings(max_tokens=60)):
            match piece:
                case Delta():
                    text += piece.text
                    seen += 1
                    if seen == 10:
                        mesh.interrupt(leaver)
                case Finished():
                    route = piece.route
        conversation.close()
        assert text == undisturbed
        assert await mesh.processes[leaver].wait() == 0
        assert route != route_of(plan), "the answer was over before the peer left"


async def test_without_another_holder_the_asker_hears_soon_and_the_mesh_answers_again(models: Models) -> None:
    async with world(models, (31,), PLEDGE, PRESETS["basic"]) as mesh:
        leaver = await mesh.add()
        await mesh.founder.until_serving(WITHIN_S)
        undisturbed = await whole(mesh.founder.conversation(), 30)
        conversation, begun = mesh.founder.conversation(), 0.0

        async def interrupted_answer() -> None:
            nonlocal begun
            seen = 0
            async for _ in conversation.chat(QUESTION, Settings(max_tokens=400)):
                seen += 1
                if seen == 5:
                    begun = time.monotonic()
                    mesh.interrupt(leaver)

        with pytest.raises(AnswerFailed, match=r"peer 1.*left|leaving|lost"):
            await interrupted_answer()
        assert time.monotonic() - begun < soon(HEARS_WITHIN_S)
        assert await mesh.processes[leaver].wait() == 0
        with pytest.raises(NoPlan, match="need 2 peers"):
            await mesh.founder.until_serving(0.2)
        await mesh.add()
        await mesh.founder.until_serving(WITHIN_S)
        assert await whole(conversation, 30) == undisturbed


async def test_a_peer_that_joins_later_is_used(models: Models) -> None:
    async with world(models, None, TOO_LITTLE) as mesh:
        first = await mesh.add()
        await mesh.founder.until_serving(WITHIN_S)
        view = mesh.founder.view
        plan = view.state.serving()
        assert plan is not None
        assert [mesh.name(peer) for peer in route_of(plan)] == [first]
        second = await mesh.add()

        def used(state: object) -> bool:
            present = view.state.serving()
            if present is None:
                return False
            return second in {mesh.name(p) for s in present.stages for p in (s.primary, *s.standbys)}

        assert await view.until(used, WITHIN_S)
        assert await whole(mesh.founder.conversation(), 5)
