"""Asks a set of questions at once and notes each token's time; compares what the stages cached.

Edge over `peer.origin.answer_stream`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from peer.errors import PeerError
from peer.limits import SESSION_BYTES
from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.origin.answer_stream import Conversation, Delta, Finished, Settings
from peer.validation.scenarios.figures import Stream
from peer.validation.scenarios.workload import Question
from peer.wire.generated.requests import KV_DIGEST, KvDigestAnswer, KvDigestRequest

RANGE_TOKENS: Final = 32  # positions that one digest covers
ANSWER_WITHIN_S: Final = 120.0  # an answer that takes longer has failed, whatever it waits for
Caches = dict[tuple[int, int], dict[str, str]]  # by range of positions: the digest of each array
OnToken = Callable[[int, int], None]
Talks = Sequence[Conversation]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer and what the stages of its last route cached for it; None: some stage does not tell."""

    stream: Stream
    caches: Caches | None


def nothing(_: int, __: int) -> None:
    """No fault hangs on a token."""


async def answer_all(
    mesh: MeshMember,
    asked: Sequence[Question],
    on_token: OnToken = nothing,
    *,
    digests: bool = True,
    show: Callable[[Talks], None] = lambda _: None,
) -> list[Answered]:
    """All answers at the same time. `on_token(number, count)` is called when answer `number` has `count` tokens, from 0
    on; `show` gets the conversations first. Never raises for an answer that broke off, which its stream says.
    """
    conversations = [(os.urandom(SESSION_BYTES), question) for question in asked]
    talks = [Conversation(mesh.sessions, mesh.model.prompts, session) for session, _ in conversations]
    show(talks)
    try:
        found = await asyncio.gather(
            *(
                _answer(talk, question, number, on_token)
                for number, (talk, question) in enumerate(zip(talks, asked, strict=True))
            )
        )
        caches: list[Caches | None] = [None] * len(found)
        if digests:
            for place, (stream, prompt) in enumerate(found):
                stop = prompt + len(stream.tokens) - 1
                caches[place] = await _caches(mesh, talks[place].session, stream, stop)
    finally:
        for talk in talks:
            talk.close()
    return [Answered(stream, cached) for (stream, _), cached in zip(found, caches, strict=True)]


async def _answer(
    talk: Conversation, question: Question, number: int, on_token: OnToken
) -> tuple[Stream, int]:
    prompt = (await talk.prompt([Message("user", question.text)])).tokens
    settings = Settings(question.sampling, question.tokens, ignore_end=True)
    asked_s = time.perf_counter()
    tokens: list[int] = []
    at_s: list[float] = []
    route: tuple[str, ...] = ()
    error = "it never ended"
    asyncio.get_running_loop().call_soon(on_token, number, 0)
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            async for piece in talk.tokens(prompt, settings):
                match piece:
                    case Delta(_, token) if token >= 0:
                        at_s.append(time.perf_counter())
                        tokens.append(token)
                        on_token(number, len(tokens))
                    case Finished():
                        route, error = piece.route, ""
    except PeerError as broken:
        error = f"{type(broken).__name__}: {broken}"
    except TimeoutError:
        error = f"no end within {ANSWER_WITHIN_S:.0f} s"
    return Stream(tuple(tokens), asked_s, tuple(at_s), error, route), len(prompt)


async def _caches(mesh: MeshMember, session: bytes, stream: Stream, stop: int) -> Caches | None:
    """What the stages of the route hold, range by range. None when one of them does not say."""
    if stream.error:
        return None
    found: Caches = {}
    for first in range(0, stop, RANGE_TOKENS):
        span = (first, min(first + RANGE_TOKENS, stop))
        said = KvDigestRequest(session.hex(), *span)
        try:
            answers = await asyncio.gather(
                *(mesh.links.call(peer, KV_DIGEST, said, 10.0) for peer in dict.fromkeys(stream.route))
            )
        except (PeerError, TimeoutError):
            return None
        cached = found[span] = {}
        for name, digest in (pair for answer in answers for pair in _arrays(answer, span[1])):
            if cached.setdefault(name, digest) != digest:
                cached[name] = "two that differ"  # a peer that stands by for another stage of the route
    return found


def _arrays(answer: KvDigestAnswer, stop: int) -> list[tuple[str, str]]:
    return [pair for run in answer.runs for pair in sorted(run.arrays.items()) if run.have >= stop]


def same_caches(undisturbed: Caches | None, seen: Caches | None) -> bool | None:
    """Whether every array of every range is the same; None when one side does not know."""
    if undisturbed is None or seen is None or not undisturbed:
        return None
    return undisturbed == seen


def first_other(undisturbed: Caches, seen: Caches) -> str:
    """Where two caches differ first, for people."""
    for span, arrays in sorted(undisturbed.items()):
        theirs = seen.get(span, {})
        for name in sorted(arrays.keys() | theirs.keys()):
            if arrays.get(name) != theirs.get(name):
                return (
                    f"{name} at positions {span[0]}-{span[1] - 1}: {arrays.get(name)} and {theirs.get(name)}"
                )
    return "nowhere"
