"""Somebody with a valid link who means harm, in a mesh of the real model: others get their tokens all the same."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peer.consensus.message_codec import encode
from peer.consensus.messages import Append, Body, Message, TimeoutNow, Vote, VoteReply
from peer.consensus.records import Entry
from peer.errors import AnswerFailed, ContextOverflow, PeerError
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message as Said
from peer.origin.answer_stream import Conversation, Delta, Finished, Settings
from peer.session.sampling import Sampling
from peer.state.generated.commands import LinkFacts, MemberMeasured, UnitsHeld
from peer.state.member_commands import encode_command
from peer.state.plan_record import route_of
from peer.wire.generated.frames import (
    Cancel,
    Consensus,
    Feed,
    Frame,
    Here,
    Open,
    Probe,
    Refuse,
    Release,
    Request,
    Step,
    Token,
    Where,
)
from peer.wire.tensors import tensor_of
from tests.e2e.real_mesh import CONTEXT, UNITS, Models, Start, options, until
from tests.patience import WITHIN_S

TOKENS = 60
QUESTION = [Said("user", "What is the capital of France? Tell me about it in a paragraph.")]
WIRE = tuple(Sampling().to_wire())


async def answer(conversation: Conversation, tokens: int = TOKENS) -> list[int]:
    settings = Settings(max_tokens=tokens, ignore_end=True)
    return [
        p.token async for p in conversation.chat(QUESTION, settings) if isinstance(p, Delta) and p.token >= 0
    ]


async def collected(stream: AsyncIterator[Delta | Finished]) -> list[Delta | Finished]:
    return [piece async for piece in stream]


def opening(evil: MeshMember, number: int, **change: Any) -> Open:
    plan = evil.view.state.serving()
    assert plan is not None
    fields: dict[str, Any] = {"stage": 0, "origin": evil.me, "prompt_tokens": 4, "history": ()}
    fields |= {"plan": plan.version, "route": route_of(plan)} | change
    return Open(
        number.to_bytes(16, "big"), 1, fields["plan"], fields["route"], fields["stage"], fields["origin"], 0,
        fields["prompt_tokens"], 2**53 - 1, WIRE, (), 0, 0, 1, 0, 0, (fields["prompt_tokens"],), (), (),
        fields["history"],
    )  # fmt: skip


def deeds(evil: MeshMember, session: bytes, victim: str) -> Iterator[Frame]:
    """What can be sent; `session` is the one that is to be disturbed, as if its id had leaked."""
    ids = tensor_of(np.array([1, 2, 3, 2**31 - 1], dtype=np.int32))
    nan = tensor_of(np.full((1, 576), np.nan, dtype=np.float32))
    for turn in (1, 2, 2**53 - 1):
        yield Token(session, turn, 50, 7, 0)
        yield Cancel(session, turn, 0, "\x1b[2J")
        yield Refuse(session, turn, 0, 0, 0, 6, "\x1b]0;mine\x07")
        yield Step(session, turn, 1, 0, 4, 1, ids)
        yield Step(session, turn, 1, 0, 1, 1, nan)
        yield Step(session, turn, 0, 0, 4, 1, ids)
        yield Feed(session, turn, 1, 0)
        yield Where(session, turn, 0)
        yield Here(session, turn, 1, 2**53 - 1, 2**53 - 1, 7)
    yield Release(session)
    for number in range(100, 130):
        yield opening(evil, number, origin=f"stranger{number}", stage=number % 2)
        yield opening(evil, number, origin=victim)
        yield opening(evil, number, route=("nobody", evil.me), stage=number % 2)
        yield opening(evil, number, plan=2**53 - 1)
        yield replace(opening(evil, number), role=1, shadow_stages=(0,), shadows=(victim,))
    for number in (1, 2, 3):  # slots, and work that is wrong
        yield opening(evil, number, prompt_tokens=2**53 - 1, history=tuple(range(1000)))
        yield Step(number.to_bytes(16, "big"), 1, 0, 0, 4, 1, ids)
        yield Step(number.to_bytes(16, "big"), 1, 0, 2**53 - 2, 1, 1, tensor_of(np.zeros(1, dtype=np.int32)))
    yield Probe(1, bytes(1024 * 1024))
    me = evil.me
    profile = evil.view.state.members[victim].profile
    assert profile is not None
    lies = (
        ("join", {"name": "\ud800", "compute": True, "protocol": 1}),
        ("join", {"name": "\x1b[31m", "compute": False, "protocol": 1}),
        ("measured", MemberMeasured(me, profile, (LinkFacts("a", "b", 1, 1, 1),))),
        ("held", UnitsHeld(victim, ())),
        ("held", UnitsHeld(me, ((0, UNITS),))),
        ("leaving", {"peer": victim}),
        ("status", {"deep": [[[[]]]] * 1000}),
        ("measure_link", {}),
    )
    for number, (method, lie) in enumerate(lies):
        body = lie if isinstance(lie, dict) else {"command": encode_command(lie).decode()}
        yield Request(number, method, json.dumps(body).encode())
    yield Request(99, "join", b"[" * 100_000)
    for number in range(100, 160):
        yield Request(number, "measure_link", b"{}")
    assert evil.log is not None
    words: tuple[Body, ...] = (
        Vote(2**53 - 1, 2**53 - 1, True),
        VoteReply(True),
        TimeoutNow(),
        Append(1, 0, 0, 2**53 - 1, (Entry(1, 2**53 - 1, "command", encode_command(UnitsHeld(victim, ()))),)),
    )
    for word in words:
        for life in (0, 1, incarnation_of(evil, victim)):
            yield Consensus(encode(Message(evil.log.mesh, 1, me, life, life, 2**53 - 1, word)))


def incarnation_of(mesh: MeshMember, peer: str) -> int:
    return mesh.view.state.members[peer].incarnation


def ends(mesh: str, victim: str) -> tuple[Frame, ...]:
    """What ends the connection of whoever sends it."""
    return (
        Consensus(b"\x80"),
        Consensus(encode(Message(mesh, 1, victim, 1, 1, 2**53 - 1, VoteReply(True)))),
    )


async def test_a_member_that_means_harm_disturbs_nobody(start: Start, models: Models) -> None:
    async with start((31,), 2, sessions=4) as meshes:
        founder, second = meshes
        await founder.until_serving(WITHIN_S)
        assert founder.link is not None
        undisturbed = await answer(second.conversation())
        async with join(founder.link.url(), options("evil"), models.store) as evil:
            session = os.urandom(16)
            conversation = Conversation(second.sessions, second.model.prompts, session)
            settings = Settings(max_tokens=TOKENS, ignore_end=True)
            got, seen = list[int](), 0
            misdeeds = deeds(evil, session, second.me)
            async for piece in conversation.chat(QUESTION, settings):
                if isinstance(piece, Delta) and piece.token >= 0:
                    got.append(piece.token)
                    for frame in (f for f, _ in zip(misdeeds, range(6), strict=False)):
                        for mesh in meshes:
                            evil.links.dialer.send(mesh.me, frame)
            assert got == undisturbed
            assert next(misdeeds, None) is None, "all was sent while the answer came"
            for frame in ends(founder.client.own.mesh, second.me):
                again = asyncio.ensure_future(answer(second.conversation(), 20))
                for mesh in meshes:
                    await evil.links.dialer.dial(mesh.me)
                    gone = asyncio.Event()
                    evil.links.on_gone(lambda *_, gone=gone: gone.set())
                    evil.links.dialer.send(mesh.me, frame)
                    await asyncio.wait_for(gone.wait(), WITHIN_S)
                    seen += 1
                assert await again == undisturbed[:20]
            assert seen == 4
        assert [member.name for member in founder.view.state.members.values()] == ["founder", "peer1"]
        assert await answer(founder.conversation(), 20) == undisturbed[:20]
        await until(lambda: second.view.state == founder.view.state)


async def test_conversations_end_clearly_and_leave_nothing(start: Start) -> None:
    """Asked twice, closed early or while answered, cancelled in a long prompt, at the border of the context."""
    async with start((31,), 2, sessions=2) as meshes:
        founder, second = meshes
        await founder.until_serving(WITHIN_S)
        prompt = founder.text.encode("All the rivers of Europe, one after the other: " * 60)
        full = prompt[: CONTEXT - 3]
        conversation = second.conversation()
        pieces = [p async for p in conversation.tokens(full, Settings(ignore_end=True))]
        assert isinstance(pieces[-1], Finished)
        assert (pieces[-1].why, pieces[-1].tokens) == ("length", 3)
        with pytest.raises(ContextOverflow, match="at most 3"):
            await anext(conversation.tokens(full, Settings(max_tokens=4)))
        with pytest.raises(ContextOverflow, match="shorten the prompt by 1 "):
            await anext(conversation.tokens(prompt[:CONTEXT], Settings()))

        first = conversation.tokens(prompt[:40], Settings(max_tokens=100))
        await anext(first)
        with pytest.raises(AnswerFailed, match="being answered"):
            await anext(conversation.tokens(prompt[:40], Settings()))
        assert isinstance(await anext(first), Delta), "the first answer goes on"
        await first.aclose()
        await founder.stage.idle()

        waiting = asyncio.ensure_future(anext(conversation.tokens(prompt[1:300], Settings(max_tokens=5))))
        while founder.stage.core.active() == 0:
            founder.stage.touched.clear()
            await founder.stage.touched.wait()
        conversation.stop()  # in the middle of its prompt
        assert isinstance(await waiting, Finished)
        left = conversation.tokens(prompt[:40], Settings(max_tokens=1))
        assert await asyncio.wait_for(anext(left), WITHIN_S)

        closing = conversation.tokens(prompt[:30], Settings(max_tokens=200))
        await anext(closing)
        await left.aclose()
        assert isinstance(await anext(closing), Delta), "one that is closed late ends no other answer"
        conversation.close()
        rest = [piece async for piece in closing]
        assert isinstance(rest[-1], Finished)
        with pytest.raises(AnswerFailed, match="closed"):
            await anext(conversation.tokens(prompt[:30], Settings()))

        threads, tasks = len(second.links.dialer.connected_peers()), len(asyncio.all_tasks())
        for number in range(60):
            passing = meshes[number % 2].conversation()
            stream = passing.tokens(prompt[number : number + 8], Settings(max_tokens=2 + number % 3))
            async for _ in stream:
                if number % 2:
                    break
            await stream.aclose()
            passing.close()
        for mesh in meshes:
            async with asyncio.timeout(WITHIN_S):
                while mesh.stage.core.sessions():
                    mesh.stage.touched.clear()
                    await mesh.stage.touched.wait()
            assert not mesh.sessions
        assert (len(second.links.dialer.connected_peers()), len(asyncio.all_tasks())) == (threads, tasks)

        last = second.conversation().tokens(prompt[:30], Settings(max_tokens=300))
        await anext(last)
        await second.leave("left")
        with pytest.raises(PeerError):
            await asyncio.wait_for(collected(last), WITHIN_S)
