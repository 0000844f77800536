"""Asking the mesh: from words to tokens to words, as an async stream.

Edge between `peer.session` (which decides) and people. One `Conversation` keeps one session: each next question sends
only what the stages do not hold yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from peer.askings import Outcome
from peer.chat_template import Message
from peer.effects import Broken, Emit, Ended, Reason
from peer.errors import AnswerFailed, ConnectFailed, ConnectionLost, ContextOverflow, MeshFull, NoPlan
from peer.names import named
from peer.node import Node
from peer.pinned import Ends
from peer.routes import Route
from peer.sampling import Sampling
from peer.session import Ask, Heard, OriginSession, Phase, room_for
from peer.steering import STRAIGHT, Steering, likely_pairs
from peer.text import StopStrings, StreamingDetokenizer, Text

PLAN_WAIT_S: Final = 120.0  # peers may still be fetching weights; the caller sees why meanwhile in mesh_state


class Guide(Protocol):
    """Which tokens may come next in one answer, by a grammar (peer.guiding)."""

    def allowed(self) -> tuple[int, ...]: ...  # the mask, as peer.steering has it; () where none may
    def take(self, token: int) -> None: ...
    def over(self) -> bool: ...  # nothing may follow


@dataclass(frozen=True, slots=True)
class Settings:
    """How to answer. `max_tokens` None: as many as the context has room for."""

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    plan_wait_s: float = PLAN_WAIT_S
    ignore_end: bool = False  # go on after end tokens, for measurements of equal length
    steering: Steering = STRAIGHT
    guide: Guide | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """One token, and the text that became complete with it (often "", never half a character).

    `likely`, where it was asked for: the token, then the likeliest ones, each with the logarithm of its probability.
    """

    text: str
    token: int
    likely: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer. `why`: "end", "stop", "length" or "cancelled". Times in seconds since the question."""

    why: str
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    first_token_s: float
    seconds: float
    route: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        """Decode rate: tokens after the first, over the time they took."""
        return (self.tokens - 1) / (self.seconds - self.first_token_s) if self.tokens > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Begun:
    """What is known of an answer that goes on: its tokens so far, and where it stands on its stages (1: in a session of
    its own, nowhere).
    """

    ids: tuple[int, ...]
    heard: Heard | int = 1


class _Guided:
    """A guided answer: its tokens so far. Raises AnswerFailed when the grammar allows nothing more."""

    def __init__(self, ask: Ask, guide: Guide) -> None:
        self.guide = guide
        self._ask = ask
        self._made: list[int] = []

    @property
    def goes_on(self) -> bool:
        return len(self._made) < self._ask.max_tokens

    def take(self, token: int) -> None:
        self._made.append(token)
        if token not in self._ask.end_tokens:
            self.guide.take(token)

    def next(self) -> Ask:
        """Asks for one token more."""
        allowed = self.guide.allowed()
        if not any(allowed):
            raise AnswerFailed("no token of this model fits what the answer must be; ask for another form")
        steering = replace(self._ask.steering, allowed=allowed)
        prompt, count = (*self._ask.prompt, *self._made), len(self._made)
        return replace(self._ask, prompt=prompt, max_tokens=count + 1, steering=steering, sampled=count)


class Conversation:
    """Questions and answers over one session of `node`. Use one at a time; several conversations run side by side."""

    def __init__(self, node: Node, text: Text, session: bytes, ends: Ends | None = None) -> None:
        """`ends`: embedding and head, where no other peer is to handle token ids."""
        self._node = node
        self._text = text
        self._core = OriginSession(session, node.me, ends)
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        node.attach(self._core, self._outcomes.put_nowait)

    async def chat(self, messages: Sequence[Message], settings: Settings) -> AsyncGenerator[Delta | Finished]:
        """Answers the conversation `messages`. Raises AnswerFailed, NoPlan, ContextOverflow or ConnectFailed."""
        async for piece in self.tokens(self._text.encode_chat(messages), settings):
            yield piece

    @property
    def route(self) -> tuple[str, ...]:
        """The peers that answer, or did last, in the order of the stages."""
        return self._core.route

    @property
    def way(self) -> tuple[int, tuple[str, ...]] | None:
        """The version of the plan that the running answer goes over, and its peers; None while none runs."""
        core = self._core
        running = core.current is not None and core.phase in (Phase.PREFILL, Phase.DECODE)
        return (core.current.plan, core.route) if running and core.current is not None else None

    @property
    def plan(self) -> int:
        """The version of the plan that the last answer went over; 0 before the first."""
        return self._core.current.plan if self._core.current is not None else 0

    async def complete(self, prompt: str, settings: Settings) -> AsyncGenerator[Delta | Finished]:
        """Continues plain text, without the chat template."""
        async for piece in self.tokens(self._text.encode(prompt), settings):
            yield piece

    async def tokens(
        self, prompt: Sequence[int], settings: Settings, begun_before: Begun | None = None
    ) -> AsyncGenerator[Delta | Finished]:
        """Answers a prompt of token ids. Closing the generator early stops the answer on every stage.

        `begun_before`: the answer goes on that somebody asked for in this session; only what follows is yielded.
        """
        begun = time.perf_counter()
        route = await self._route(settings.plan_wait_s)
        model = self._node.state.model
        if model is None or not prompt:
            raise ContextOverflow("the prompt is empty; ask something")
        ask = Ask(
            tuple(prompt),
            room_for(len(prompt), settings.max_tokens, model.context),
            settings.sampling,
            () if settings.ignore_end else self._text.end_tokens,
            settings.steering,
        )
        guided = _Guided(ask, settings.guide) if settings.guide is not None else None
        await self._connect(route)
        if not self._node.askings.attached(self._core.session):
            raise AnswerFailed("this conversation was closed; begin another one")
        if self._core.phase in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            raise AnswerFailed("this conversation is being answered; stop that answer, or wait for its end")
        while not self._outcomes.empty():
            self._outcomes.get_nowait()
        session = self._core.session
        now, core = time.monotonic(), self._core
        if begun_before is None:
            effects = core.begin(now, route, ask if guided is None else guided.next())
        else:
            effects = core.adopt(now, route, ask, begun_before.ids, begun_before.heard)
        self._node.askings.perform(session, effects)
        words = self._text.stream()
        for token in begun_before.ids if begun_before is not None else ():
            words.push(token)
        try:
            async for piece in self._stream(
                begun, ask, core.start, words, StopStrings(settings.stop), guided
            ):
                yield piece
        finally:
            self.stop()

    @property
    def session(self) -> bytes:
        """Its id. An answer that moves to another plan may change it."""
        return self._core.session

    @property
    def under_way(self) -> Heard:
        """Where the answer under way, or the last one, stands on its stages."""
        return self._core.under_way

    def stop(self) -> None:
        """Ends the answer under way; what came so far stays."""
        self._node.askings.perform(self._core.session, self._core.cancel())

    def close(self) -> None:
        """Frees the session's slots on every stage."""
        self._node.detach(self._core.session)

    async def _stream(
        self,
        begun: float,
        ask: Ask,
        cached: int,
        words: StreamingDetokenizer,
        stops: StopStrings,
        guided: _Guided | None,
    ) -> AsyncGenerator[Delta | Finished]:
        count, first_s = 0, 0.0

        def finished(why: str) -> Finished:
            seconds = time.perf_counter() - begun
            return Finished(why, len(ask.prompt), cached, count, first_s, seconds, self._core.route)

        while True:
            match await self._outcome(guided):
                case Emit(token, _, likely):
                    count += 1
                    first_s = first_s or time.perf_counter() - begun
                    shown = "" if token in ask.end_tokens else words.push(token)
                    shown, stopped = stops.push(shown)
                    yield Delta(shown, token, tuple(likely_pairs(likely)) if likely else ())
                    if stopped:
                        yield finished("stop")
                        return
                case Ended(why):
                    tail, stopped = stops.push(words.flush())
                    tail += "" if stopped else stops.flush()
                    if tail:
                        yield Delta(tail, -1)
                    yield finished("stop" if stopped else why)
                    return
                case Broken(text, reason):
                    raise MeshFull(text) if reason is Reason.NO_SLOT else AnswerFailed(text)

    async def _outcome(self, guided: _Guided | None) -> Outcome:
        """What comes next. Of a guided answer every token is asked for by itself, with what may follow then."""
        while True:
            outcome = await self._outcomes.get()
            match outcome:
                case Emit(token) if guided is not None:
                    guided.take(token)
                case Ended("length") if guided is not None and guided.goes_on:
                    if guided.guide.over():
                        return Ended("end")
                    core = self._core
                    route = self._node.askings.route() or core.current
                    assert route is not None
                    if route.peers != core.route:
                        await self._connect(route)
                    effects = core.begin(time.monotonic(), route, guided.next())
                    self._node.askings.perform(core.session, effects)
                    continue
            return outcome

    async def _route(self, wait_s: float) -> Route:
        node = self._node
        if not await node.until(lambda _: node.askings.route() is not None, wait_s):
            reason = named(node.state.refused, node.state.members) or "its peers are still loading"
            raise NoPlan(f"the mesh cannot answer yet: {reason}")
        route = node.askings.route()
        assert route is not None
        return route

    async def _connect(self, route: Route) -> None:
        """Connects to every stage at once, so that a token or a refusal finds its way from any of them, and begins to
        connect to those that stand by.
        """
        others = [peer for peer in dict.fromkeys(route.peers) if peer != self._node.me]
        for _, peer in route.shadows:
            if peer != self._node.me:
                self._node.dialer.prepare(peer)
        try:
            await asyncio.gather(*(self._node.dialer.dial(peer) for peer in others))
        except (ConnectFailed, ConnectionLost) as error:
            raise ConnectFailed(f"cannot reach every stage of the mesh: {error}") from error
