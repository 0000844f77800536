"""Two people in one conversation, with the real model: who asks is killed in mid-answer, and the answer goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from peer.conversation.conversation_client import Manner, Self
from peer.conversation.turn_order import prompt_of
from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Delta, Settings, day_of
from peer.state.generated.commands import Form, Message
from tests.e2e.command import running
from tests.e2e.real_mesh import Models, Start
from tests.patience import WITHIN_S

QUESTION = "Write a story about a cat who likes tea."
TOKENS = 48
KILL_AFTER = 6  # tokens that somebody else has heard
STEP_S = 0.04  # longer than a step of this peer takes on a calm machine
ATTEMPTS = 4


async def until(news: asyncio.Event, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            news.clear()
            await news.wait()


def slowed(mesh: MeshMember, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of this peer begins a moment later, so that an answer lasts long enough to be hit in its middle."""
    serving = mesh.stage.units
    assert serving is not None
    loop = asyncio.get_running_loop()
    submit, free = serving.submit, serving.free
    monkeypatch.setattr(serving, "submit", lambda step: loop.call_later(STEP_S, submit, step))
    monkeypatch.setattr(serving, "free", lambda slot: loop.call_later(STEP_S, free, slot))


async def test_an_answer_goes_on_with_the_same_tokens_when_its_asker_is_killed(
    models: Models, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start((31,), 2) as (founder, bob):
        news = asyncio.Event()
        refused: list[str] = []
        talking = bob.talking(news.set, refused.append)
        tea = talking.start(
            Manner("tea", "", (0, 0, 10**6, 0, 10**6, 0, 0, 0, TOKENS, 1)), Self("bob", "#00aa00")
        )
        await talking.said()
        slowed(founder, monkeypatch)
        assert founder.link is not None
        words = ["chat", founder.link.url(), "--in", "tea", "--name", "ann", "--bind", "127.0.0.1"]

        def said(form: Form) -> list[Message]:
            return [message for message in talking.conversations[tea].messages if message.form == form]

        for attempt in range(1, ATTEMPTS + 1):  # on a busy machine an answer may be over before the kill
            kept = ["--store", models.store.root, "--state", tmp_path / f"ann{attempt}"]
            with running(tmp_path, *words, *kept, typed=True) as ann:
                ann.type("//hello everybody")
                ann.type(QUESTION)
                await until(news, lambda count=attempt: len(said("answer")) == count)  # type: ignore[misc]
                answer = said("answer")[-1].id

                def heard(answer: str = answer) -> int:
                    stream = talking.listening.of(answer)
                    return len(stream.ids) if stream is not None else 0

                def ended() -> bool:
                    return said("answer")[-1].state != "running"

                await until(news, lambda: heard() >= KILL_AFTER or ended())
                ann.process.send_signal(signal.SIGKILL)
                await until(news, ended)
            if said("answer")[-1].author == bob.me:
                break
        await talking.said()
        last = said("answer")[-1]
        assert last.author == bob.me, "another peer makes it go on"
        assert [message.text for message in said("to-people")] == ["hello everybody"] * attempt
        question = said("to-model")[-1]
        assert question.text == QUESTION
        assert question.author != bob.me
        prompt = bob.text.encode_chat(
            prompt_of(talking.conversations[tea], question.id), day_of(question.when_ms)
        )
        undisturbed = founder.conversation().tokens(prompt, Settings(max_tokens=TOKENS))
        pieces = [piece async for piece in undisturbed if isinstance(piece, Delta)]
        assert last.text == "".join(piece.text for piece in pieces)
        assert last.tokens == sum(piece.token >= 0 for piece in pieces)
        log = bob.view.state.conversations
        assert await founder.view.until(lambda state: state.conversations == log, WITHIN_S), "one transcript"
        assert not refused
        await talking.close()
