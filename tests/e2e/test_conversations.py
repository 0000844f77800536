"""Two people in one conversation, with the real model: who asks is killed in mid-answer, and the answer goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from peer.asking import Delta, Settings
from peer.making import day_of
from peer.mesh_conversations import Message
from peer.talking import Manner, Self, Talking
from peer.turns import prompt_of

from .command import running
from .conftest import Models, Start

TOKENS = 64
KILL_AFTER = 6  # tokens that somebody else has heard
WITHIN_S = 120.0


async def until(news: asyncio.Event, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            news.clear()
            await news.wait()


async def test_an_answer_goes_on_with_the_same_tokens_when_its_asker_is_killed(
    models: Models, start: Start, tmp_path: Path
) -> None:
    async with start((31,), 2) as (founder, bob):
        news = asyncio.Event()
        refused: list[str] = []
        talking = Talking(bob, news.set, refused.append)
        tea = talking.start(
            Manner("tea", "", (0, 0, 10**6, 0, 10**6, 0, 0, 0, TOKENS, 1)), Self("bob", "#00aa00")
        )
        await talking.said()

        def answer() -> Message | None:
            return next((m for m in talking.conversations[tea].messages if m.form == "answer"), None)

        def heard() -> int:
            stream = talking.listening.of(said.id) if (said := answer()) is not None else None
            return len(stream.ids) if stream is not None else 0

        assert founder.link is not None
        words = ["chat", founder.link.url(), "--in", "tea", "--name", "ann", "--bind", "127.0.0.1"]
        kept = ["--store", models.store.root, "--state", tmp_path / "ann"]
        with running(tmp_path, *words, *kept, typed=True) as ann:
            ann.type("//hello everybody")
            ann.type("Write a story about a cat who likes tea.")
            await until(news, lambda: heard() >= KILL_AFTER)
            ann.process.send_signal(signal.SIGKILL)
            asked = answer()
            assert asked is not None
            assert asked.state == "running"
            assert asked.author != bob.node.me
            await until(news, lambda: (said := answer()) is not None and said.state != "running")
        await talking.said()
        ended = answer()
        assert ended is not None
        assert ended.author == bob.node.me, "another peer makes it go on"
        talk = talking.conversations[tea]
        said = [(message.form, message.text) for message in talk.messages if message.form != "answer"]
        assert said == [
            ("to-people", "hello everybody"),
            ("to-model", "Write a story about a cat who likes tea."),
        ]

        question = next(message for message in talk.messages if message.form == "to-model")
        prompt = bob.text.encode_chat(prompt_of(talk, question.id), day_of(question.when_ms))
        undisturbed = founder.conversation().tokens(prompt, Settings(max_tokens=TOKENS))
        pieces = [piece async for piece in undisturbed if isinstance(piece, Delta)]
        assert ended.text == "".join(piece.text for piece in pieces)
        assert ended.tokens == sum(piece.token >= 0 for piece in pieces)
        log = bob.node.state.conversations
        assert await founder.node.until(lambda state: state.conversations == log, WITHIN_S), "one transcript"
        assert not refused
        await talking.close()
