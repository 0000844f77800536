"""Answers for the gateway: each choice of a request takes its turn, a session of the mesh, and ends or is undone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from peer.errors import MeshFull
from peer.gateway.request_queue import RETRY_AFTER_S, Line, full
from peer.gateway.responses import Likely
from peer.gateway.tool_calls import CallScanner, Style, ToolCall
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.origin.answering_model import AnsweringModel

FULL_AGAIN_S: Final = 1.0  # where the mesh keeps no line, or has no room in it

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Begun:
    """The answer has its place now."""

    index: int


@dataclass(frozen=True, slots=True)
class Said:
    """Words, and the tokens that came since, where probabilities were asked for."""

    index: int
    text: str
    likely: tuple[Likely, ...]


@dataclass(frozen=True, slots=True)
class Called:
    """The calls of tools that the answer ends with."""

    index: int
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The end of one choice. `why`: as Finished says, or "tool_calls"."""

    index: int
    why: str
    finished: Finished


Event = Begun | Said | Called | Done


@dataclass(frozen=True, slots=True)
class Calling:
    """The tools that an answer may call, and how its model writes calls. `parallel` False: the first only."""

    style: Style
    names: frozenset[str]
    parallel: bool


@dataclass(frozen=True, slots=True)
class Task:
    """One choice to be made."""

    index: int
    prompt: tuple[int, ...]
    settings: Settings
    calling: Calling | None = None
    client: str = ""  # whose it is: each has its turn


class Answers:
    """Makes choices over sessions of one model, as `line` lets them in."""

    def __init__(self, asked: AnsweringModel, line: Line, full_wait_s: float) -> None:
        self._asked = asked
        self._full_wait_s = full_wait_s
        self._line = line

    async def together(self, tasks: Sequence[Task]) -> AsyncGenerator[Event]:
        """The events of all choices as they come. Closing this early stops every one of them on every stage."""
        events: asyncio.Queue[Event | BaseException] = asyncio.Queue()

        async def pump(task: Task) -> None:
            try:
                async with aclosing(self._choice(task)) as pieces:
                    async for event in pieces:
                        events.put_nowait(event)
            except Exception as error:
                events.put_nowait(error)

        running = [asyncio.ensure_future(pump(task)) for task in tasks]
        try:
            left = len(tasks)
            while left:
                event = await events.get()
                if isinstance(event, BaseException):
                    raise event
                left -= isinstance(event, Done)
                yield event
        finally:
            for pumping in running:
                pumping.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _choice(self, task: Task) -> AsyncGenerator[Event]:
        since = time.monotonic()
        waiting = self._line.waiting
        await self._line.enter(task.client)
        try:
            if waiting:
                log.info("a request waited %.1f s behind %d others", time.monotonic() - since, waiting)
            yield Begun(task.index)
            until, said = since + self._full_wait_s, False
            while True:
                try:
                    async with aclosing(self._session(task)) as events:
                        async for event in events:
                            said = True
                            yield event
                    return
                except MeshFull as error:  # others of this mesh ask, too
                    again_s = error.wait_s if error.wait_s is not None else RETRY_AFTER_S
                    if said or time.monotonic() + FULL_AGAIN_S > until:
                        raise full(str(error), again_s) from error
                    await asyncio.sleep(FULL_AGAIN_S)
        finally:
            self._line.leave(task.client)

    async def _session(self, task: Task) -> AsyncGenerator[Event]:
        """One answer over a session of its own, which is freed on every stage at its end."""
        conversation = self._asked.conversation()
        try:
            async with aclosing(conversation.tokens(task.prompt, task.settings)) as pieces:
                async for event in _events(task, pieces, self._asked.model.text):
                    yield event
        finally:
            with suppress(Exception):
                conversation.close()
            if task.settings.guide is not None:
                task.settings.guide.close()


def shown_likely(pairs: Sequence[tuple[int, float]], words: Text) -> Likely:
    """A token and its probability as programs read it."""

    def one(token: int, logprob: float, others: tuple[Likely, ...] = ()) -> Likely:
        return Likely(token, words.token_text(token), words.token_bytes(token), logprob, others)

    return one(*pairs[0], tuple(one(*pair) for pair in pairs[1:]))


async def _events(task: Task, pieces: AsyncGenerator[Delta | Finished], words: Text) -> AsyncGenerator[Event]:
    likely: list[Likely] = []
    calling = task.calling
    scanner = CallScanner(calling.style, calling.names) if calling is not None else None
    async for piece in pieces:
        match piece:
            case Delta():
                if piece.likely:
                    likely.append(shown_likely(piece.likely, words))
                text = piece.text if scanner is None else scanner.push(piece.text, piece.control)
                if text or likely:
                    yield Said(task.index, text, tuple(likely))
                    likely.clear()
            case Finished():
                why = piece.why
                text, calls = ("", ()) if scanner is None else scanner.end()
                if text or likely:
                    yield Said(task.index, text, tuple(likely))
                if calls:
                    assert calling is not None
                    why = "tool_calls"
                    yield Called(task.index, calls if calling.parallel else calls[:1])
                yield Done(task.index, why, piece)
