"""Asking the mesh: from words to tokens to words, as an async stream.

Edge between `peer.session.origin` (which decides) and people. One `Conversation` keeps one session: each next question
sends only what the stages do not hold yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Final, Protocol

from peer.errors import AnswerFailed, ConnectFailed, ConnectionLost, ContextOverflow, MustContribute, NoPlan
from peer.model.chat_template import Message
from peer.model.prompts import Prompt, Prompts
from peer.model.tokenizer import StopStrings, StreamingDetokenizer
from peer.origin.arithmetic_changes import Crossing, Crossings, parts_of
from peer.origin.session_host import Outcome, SessionHost
from peer.origin.source_rows import Sourced
from peer.session.effects import Broken, Emit, Ended, Reason
from peer.session.given_rows import GivenRows
from peer.session.origin import Ask, Heard, OriginSession, Phase, room_for
from peer.session.pinned_ends import Ends
from peer.session.routes import Route
from peer.session.sampling import GREEDY, Sampling
from peer.session.steering import STRAIGHT, Steering, likely_pairs
from peer.stage.seat_waiting import AGAIN_S, Waits, Wanted, called
from peer.state.display_names import named
from peer.state.fairness import may_ask
from peer.state.readiness import why_not_ready
from peer.state.version_negotiation import PICTURES
from peer.transport.listeners import Listeners
from peer.wire.generated.frames import Cancel

SEAT_WAIT_S: Final = 900.0  # for a session while all of them are in use; the caller sees its place meanwhile
MAX_DAY_MS: Final = 253402300799999  # the last of the year 9999
PLAN_WAIT_S: Final = 120.0  # peers may still be fetching weights; the caller sees why meanwhile in mesh_state


class Guide(Protocol):
    """Which tokens may come next in one answer, by a grammar (peer.gateway.grammars)."""

    async def next(self, taken: Sequence[int]) -> tuple[int, ...] | None:
        """The mask after `taken`, the tokens since the last call, as peer.session.steering has it; None: nothing may
        follow. Raises GrammarFailed where the grammar cannot go on.
        """

    def close(self) -> None:
        """Frees what it takes; a later call begins a new answer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to answer. What people and programs leave out is filled in before (peer.session.sampling). `max_tokens`
    None: as many as the context has room for.
    """

    sampling: Sampling = GREEDY
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    plan_wait_s: float = PLAN_WAIT_S
    ignore_end: bool = False  # go on after end tokens, for measurements of equal length
    steering: Steering = STRAIGHT
    guide: Guide | None = None
    seat_wait_s: float = SEAT_WAIT_S
    front: int = 0  # tokens of the prompt before the first question: other sessions may begin with the same
    rows: tuple[GivenRows, ...] = ()  # of pictures, in place of tokens of the prompt


@dataclass(frozen=True, slots=True)
class Delta:
    """One token, and the text that became complete with it (often "", never half a character).

    `likely`, where it was asked for: the token, then the likeliest ones, each with the logarithm of its probability.
    `control`: the name of a control token, which is no part of the text.
    """

    text: str
    token: int
    likely: tuple[tuple[int, float], ...] = ()
    control: str = ""


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
    crossed: tuple[Crossing, ...] = ()  # where it went on with other arithmetic
    stop: str = ""  # the stop string that ended it

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


class _Call:
    """One call for an answer, from its beginning on."""

    stopped = False  # nobody wants it any more


class _Asked:
    """What was asked for, and the tokens so far. `guide`: a guided answer is asked for a token at a time."""

    def __init__(self, call: _Call, ask: Ask, settings: Settings, made: tuple[int, ...]) -> None:
        self.call = call
        self.ask = ask
        self.guide = settings.guide
        self._taken: list[int] = []  # by the answer, and not yet by the guide
        self._allowed: tuple[int, ...] | None = ()
        self._seat_wait_s = settings.seat_wait_s
        self._seat_until: float | None = None
        self._made = list(made)

    @property
    def goes_on(self) -> bool:
        """Whether a guided answer has another token to come."""
        return self.guide is not None and len(self._made) < self.ask.max_tokens

    @property
    def was_in_line(self) -> bool:
        """Whether it waited for a seat before."""
        return self._seat_until is not None

    def seat_wait_left_s(self) -> float:
        """How long it may still stand in lines: all of them together count, from the first one on."""
        now = time.monotonic()
        if self._seat_until is None:
            self._seat_until = now + self._seat_wait_s
        return max(0.0, self._seat_until - now)

    def take(self, token: int) -> None:
        self._made.append(token)
        if token not in self.ask.end_tokens:
            self._taken.append(token)

    async def guided(self) -> bool:
        """Asks the guide what may come next; False: nothing. Raises AnswerFailed where it knows no token."""
        if self.guide is not None:
            taken, self._taken = self._taken, []
            self._allowed = await self.guide.next(taken)
            if self._allowed is not None and not any(self._allowed):
                raise AnswerFailed(
                    "no token of this model fits what the answer must be; ask for another form"
                )
        return self._allowed is not None

    def next(self) -> Ask:
        """Asks for what is to come."""
        prompt, count = (*self.ask.prompt, *self._made), len(self._made)
        if self.guide is None:
            return replace(self.ask, prompt=prompt, sampled=count)
        steering = replace(self.ask.steering, allowed=self._allowed or ())
        return replace(self.ask, prompt=prompt, max_tokens=count + 1, steering=steering, sampled=count)


class Conversation:
    """Questions and answers over one of `sessions`. Use one at a time; several conversations run side by side."""

    def __init__(
        self,
        sessions: SessionHost,
        prompts: Prompts,
        session: bytes,
        ends: Ends | None = None,
        sources: Callable[[Sequence[int]], Awaitable[Sourced]] | None = None,
    ) -> None:
        """`ends`: embedding and head, where no other peer is to handle token ids. `sources`: prompts are source texts,
        and what it makes of one is asked.
        """
        self._sessions = sessions
        self._links = sessions.links
        self._view = sessions.view
        self._prompts = prompts
        self._text = prompts.text
        self._sources = sources
        self._core = OriginSession(session, self._links.me, ends)
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self._line: asyncio.Task[str] | None = None  # while it waits for a session
        self._calls: set[_Call] = set()
        self._current: _Call | None = None  # whose answer runs, or ran last
        self._on_wait = Listeners[Callable[[Waits | None], None]]()
        self._crossings = Crossings()
        sessions.attach(self._core, self._hear)

    def on_wait(self, listener: Callable[[Waits | None], None]) -> Callable[[], None]:
        """Calls `listener(waits)` with where a question stands in line (None: its turn has come), until what is
        returned is called.
        """
        return self._on_wait.add(listener)

    async def chat(self, messages: Sequence[Message], settings: Settings) -> AsyncGenerator[Delta | Finished]:
        """Answers the conversation `messages`, once there is a session for it (`on_wait` tells).

        Raises AnswerFailed (MeshFull, MustContribute), NoPlan, ContextOverflow or ConnectFailed.
        """
        prompt = await self.prompt(messages)
        async for piece in self.tokens(prompt.tokens, replace(settings, front=prompt.front)):
            yield piece

    async def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Returns `messages` as tokens, made in the process for texts where that may take long. Raises as `chat`."""
        return await self._prompts.chat(messages, self._context)

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
        found = await self._prompts.plain(prompt, self._context)
        async for piece in self.tokens(found.tokens, settings):
            yield piece

    @property
    def _context(self) -> int:
        model = self._view.state.model
        assert model is not None  # a member knows it
        return model.context

    async def tokens(
        self, prompt: Sequence[int], settings: Settings, begun_before: Begun | None = None
    ) -> AsyncGenerator[Delta | Finished]:
        """Answers a prompt of token ids. Closing the generator early stops the answer on every stage.

        `begun_before`: the answer goes on that somebody asked for in this session; only what follows is yielded.
        """
        begun, call = time.perf_counter(), _Call()
        self._calls.add(call)
        try:
            if self._sources is not None:
                found = await self._sources(prompt)
                prompt, settings = found.prompt, replace(settings, rows=found.rows, front=0)
            asked = await self._begin(call, prompt, settings, begun_before)
            words = self._text.stream()
            for token in begun_before.ids if begun_before is not None else ():
                words.push(token)
            stops = StopStrings(settings.stop)
            async for piece in self._stream(begun, asked, self._core.start, words, stops):
                if isinstance(piece, Finished) and settings.front:
                    front = tuple(prompt[: settings.front])
                    self._sessions.fronts.add((self._core.route, front))
                yield piece
        finally:
            self._calls.discard(call)
            if call is self._current:  # one that is closed late ends no answer but its own
                self._end()

    async def _begin(
        self, call: _Call, prompt: Sequence[int], settings: Settings, begun_before: Begun | None
    ) -> _Asked:
        """Asks for the answer, once there is a plan and every stage is reached."""
        route = await self._route(settings.plan_wait_s)
        model = self._view.state.model
        if model is None or not prompt:
            raise ContextOverflow("the prompt is empty; ask something")
        ask = Ask(
            tuple(prompt),
            room_for(len(prompt), settings.max_tokens, model.context),
            settings.sampling,
            () if settings.ignore_end else self._text.end_tokens,
            settings.steering,
            front=settings.front,
            front_kept=(route.peers, tuple(prompt[: settings.front])) in self._sessions.fronts,
            rows=settings.rows,
        )
        if why := self._may_ask():
            raise MustContribute(why)
        asked = _Asked(call, ask, settings, begun_before.ids if begun_before is not None else ())
        await asked.guided()
        await self._connect(route)
        if self._core.ends is not None and (older := self._sessions.older(route.peers)):
            who = named(", ".join(older), self._view.state.members)
            raise AnswerFailed(
                f"{who} cannot answer without token ids yet: update it, or ask without --pin-ends"
            )
        if settings.rows and (older := self._sessions.older(route.peers, PICTURES)):
            who = named(", ".join(older), self._view.state.members)
            raise AnswerFailed(f"{who} cannot take pictures yet: update it, or ask in words alone")
        if not self._sessions.attached(self._core.session):
            raise AnswerFailed("this conversation was closed; begin another one")
        if self._core.phase in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            raise AnswerFailed("this conversation is being answered; stop that answer, or wait for its end")
        while not self._outcomes.empty():
            self._outcomes.get_nowait()
        self._current = call
        self._crossings = Crossings(len(begun_before.ids) if begun_before is not None else 0)
        session = self._core.session
        now, core = time.monotonic(), self._core
        if begun_before is None:
            effects = core.begin(now, route, asked.next())
        else:
            effects = core.adopt(now, route, ask, begun_before.ids, begun_before.heard)
        self._sessions.perform(session, effects)
        if call.stopped:  # while a plan or connections were awaited
            self._sessions.perform(session, core.cancel())
        return asked

    def _stands(self, waits: Waits | None) -> None:
        for listener in self._on_wait:
            listener(waits)

    def _may_ask(self) -> str:
        """Why this peer may not ask now; "": it may."""
        return may_ask(self._view.state.fairness, self._view.state.ledger, self._links.me)

    def _hear(self, outcome: Outcome) -> None:
        """Looks at once how a token was computed: its route may change before anybody takes it."""
        if isinstance(outcome, Emit):
            route, sessions = self._core.came_over, self._sessions
            plan = sessions.plan(route.plan) if route is not None else None
            parts = None
            if route is not None and plan is not None:
                parts = parts_of(plan, route.peers, self._view.state.members)
            self._crossings.token(parts)
        self._outcomes.put_nowait(outcome)

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
        for call in self._calls:
            call.stopped = True
        self._end()

    def close(self) -> None:
        """Frees the session's slots on every stage."""
        self.stop()
        self._sessions.detach(self._core.session)

    def _end(self) -> None:
        """The answer that runs, or waits in line, ends."""
        if self._line is not None:
            self._line.cancel()
        self._sessions.perform(self._core.session, self._core.cancel())

    async def _stream(
        self,
        begun: float,
        asked: _Asked,
        cached: int,
        words: StreamingDetokenizer,
        stops: StopStrings,
    ) -> AsyncGenerator[Delta | Finished]:
        ask = asked.ask
        count, first_s = 0, 0.0

        def finished(why: str) -> Finished:
            seconds = time.perf_counter() - begun
            core, crossed = self._core, self._crossings.found
            route, stop = core.route, stops.completed
            return Finished(why, len(ask.prompt), cached, count, first_s, seconds, route, crossed, stop)

        while True:
            match await self._outcome(asked):
                case Emit(token, _, likely):
                    count += 1
                    first_s = first_s or time.perf_counter() - begun
                    control = self._text.control_name(token)
                    shown = "" if token in ask.end_tokens else words.push(token)
                    shown, stopped = stops.push(shown, control)
                    yield Delta(shown, token, tuple(likely_pairs(likely)) if likely else (), control)
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
                    owes = reason is Reason.BAD_STEP and self._may_ask()
                    raise MustContribute(text) if owes else AnswerFailed(text)

    async def _outcome(self, asked: _Asked) -> Outcome:
        """What comes next. Where the mesh is full the answer goes on when there is a session for it. Of a guided answer
        every token is asked for by itself, with what may follow then.
        """
        while True:
            outcome = await self._outcomes.get()
            match outcome:
                case Emit(token):
                    asked.take(token)
                case Ended("length") if asked.goes_on:
                    if not await asked.guided():
                        return Ended("end")
                    route = self._sessions.route() or self._core.current
                    assert route is not None
                    if not await self._go_on(asked, route):
                        return Ended("cancelled")
                    continue
                case Broken(_, Reason.NO_SLOT) if self._core.full:
                    if not await self._seat(asked):
                        return Ended("cancelled")
                    continue
            return outcome

    async def _go_on(self, asked: _Asked, route: Route) -> bool:
        """Asks for what is to come, in another answer of the session. False: somebody stopped it."""
        if route.peers != self._core.route:
            await self._connect(route)
        if asked.call.stopped or not self._sessions.attached(self._core.session):
            return False
        effects = self._core.begin(time.monotonic(), route, asked.next())
        self._sessions.perform(self._core.session, effects)
        return True

    async def _seat(self, asked: _Asked) -> bool:
        """Stands in line where there was no seat, until there is one, and asks again. False: somebody stopped it."""
        core, links = self._core, self._links
        if asked.was_in_line:
            await asyncio.sleep(AGAIN_S)  # called in vain: no loop at the speed of the link
        if asked.call.stopped:
            return False
        full, ask = dict(core.full), asked.next()
        wanted = Wanted(core.session, len(ask.prompt), ask.max_tokens - ask.sampled)
        line = called(links.ask, full, wanted, self._stands, asked.seat_wait_left_s())
        who, self._line = "", asyncio.ensure_future(line)
        try:
            await asyncio.wait((self._line,))
            if self._line.cancelled():
                return False
            who = self._line.result()
        finally:
            self._line.cancel()
            self._line = None
            self._stands(None)
            for peer in full.keys() - {who}:
                if not links.is_connected(peer):
                    continue  # nobody dials a peer to tell it that
                links.send_or_lose(peer, Cancel(core.session, core.turn, 0, "waits no more"))
        route = self._sessions.route(avoid=frozenset(full) - {who}) if who else None
        return await self._go_on(asked, route or await self._route(PLAN_WAIT_S))

    async def _route(self, wait_s: float) -> Route:
        view, sessions = self._view, self._sessions
        if not await view.until(lambda _: sessions.route() is not None, wait_s):
            raise NoPlan(f"the mesh cannot answer yet: {why_not_ready(view.state)}")
        route = sessions.route()
        assert route is not None
        return route

    async def _connect(self, route: Route) -> None:
        """Connects to every stage at once, so that a token or a refusal finds its way from any of them, and begins to
        connect to those that stand by.
        """
        others = [peer for peer in dict.fromkeys(route.peers) if peer != self._links.me]
        for _, peer in route.shadows:
            if peer != self._links.me:
                self._links.dialer.prepare(peer)
        try:
            await asyncio.gather(*(self._links.dialer.dial(peer) for peer in others))
        except (ConnectFailed, ConnectionLost) as error:
            why = named(str(error), self._view.state.members)
            raise ConnectFailed(f"cannot reach every stage of the mesh: {why}") from error


def day_of(when_ms: int) -> date:
    """The UTC day of a question."""
    return datetime.fromtimestamp(min(when_ms, MAX_DAY_MS) // 1000, UTC).date()
