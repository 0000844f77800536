"""The asker's side of one generation: which frames to send, which tokens to show, when to give up.

Pure: every method takes `now` (seconds) where time matters and returns effects for the edge to perform. The life of
a session is one tagged value, `Phase`:

    idle ──begin──▶ prefill ──first token──▶ decode ──end, length, stop──▶ done
                       │  ▲                     │
                       ▼  │ a serving route     ▼
                    rerouting ◀──refused, peer lost or leaving
                       │
                       └──no route in time──▶ failed          cancel leads from any phase to done

A session may have several turns: each begins with a prompt of which the stages keep the longest cached prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import assert_never

import numpy as np

from peer.errors import ContextOverflow
from peer.frames import Cancel, Finish, Frame, Open, Refuse, Release, Step, Token
from peer.mesh_state import PlanRecord
from peer.sampling import Sampling
from peer.tensors import tensor_of

CHUNK_TOKENS = (
    32  # prompt tokens a step carries: small enough that stages overlap, measured in docs/benchmarks.md
)
REROUTE_S = 1.5  # how long to wait for a serving route: an asker must hear of a loss within 2 s
STALL_S = 60.0  # no token for this long ends the session with an error
SLOW_TOKENS_PER_S = 10  # of a prompt: the slowest mesh that is waited for beyond that
MAX_REROUTES = 8  # per turn; bounds the work a flapping mesh can cause


class Reason(IntEnum):
    """Why a stage refused, as carried by REFUSE frames."""

    MISSING_POSITION = 1
    CONTEXT_OVERFLOW = 2
    NO_SLOT = 3
    NOT_FINITE_INPUT = 4
    NOT_FINITE_OUTPUT = 5
    FAILED = 6
    UNKNOWN_PLAN = 7
    UNKNOWN_SESSION = 8
    LOST_NEIGHBOUR = 9
    LEAVING = 10
    BAD_STEP = 11


class Phase(Enum):
    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"
    REROUTING = "rerouting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Send:
    """Hand `frame` to `peer`, which may be this peer itself."""

    peer: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Emit:
    """Show `token`, sampled for `position`."""

    token: int
    position: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over: "end" (an end token), "length", or "cancelled"."""

    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The turn failed; `text` says what happened and what to do."""

    text: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class FindRoute:
    """This session needs a serving plan that avoids `without`; call `reroute` when there is one.

    `soon`: not at once, since a stage has not heard of the plan yet.
    """

    without: frozenset[str]
    soon: bool = False


OriginEffect = Send | Emit | Ended | Broken | FindRoute


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn: the whole prompt as token ids, and how to answer it."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    end_tokens: tuple[int, ...]


def room_for(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """How many tokens the answer may have. Raises ContextOverflow when the promise cannot be kept."""
    room = context - prompt_tokens
    if room < 1:
        raise ContextOverflow(
            f"the prompt has {prompt_tokens} tokens, this mesh serves a context of {context}; shorten the prompt by "
            f"{prompt_tokens - context + 1} tokens or start the mesh with --context {prompt_tokens * 2}"
        )
    if max_tokens is None:
        return room
    if max_tokens < 1:
        raise ContextOverflow(f"max_tokens must be at least 1, got {max_tokens}")
    if max_tokens > room:
        raise ContextOverflow(
            f"{prompt_tokens} prompt tokens and {max_tokens} answer tokens exceed the context of {context}; "
            f"ask for at most {room}"
        )
    return max_tokens


class OriginSession:
    """One session as its asker sees it."""

    def __init__(self, session: bytes, me: str) -> None:
        self.session = session
        self.me = me
        self.phase = Phase.IDLE
        self.turn = 0
        self.plan: PlanRecord | None = None
        self.tokens: list[int] = []  # prompt and answer of the current turn
        self.start = 0  # first position that the current turn sent; those before were cached
        self._ask: Ask | None = None
        self._generated = 0
        self._cached: list[int] = []  # tokens whose keys and values every stage of the last route holds
        self._cached_route: tuple[int, tuple[str, ...]] | None = None
        self._bad_peers: frozenset[str] = frozenset()
        self._reroutes = 0
        self._deadline = 0.0
        self._patience_s = STALL_S
        self._trouble = ""

    @property
    def route(self) -> tuple[str, ...]:
        return self.plan.route if self.plan is not None else ()

    def begin(self, now: float, plan: PlanRecord, ask: Ask) -> list[OriginEffect]:
        """Opens a turn over `plan`. Only tokens beyond the prefix that the stages already hold are sent."""
        if self.phase not in (Phase.IDLE, Phase.DONE, Phase.FAILED):
            raise ValueError(f"session is {self.phase.value}; cancel it before it is asked again")
        self._ask, self._generated = ask, 0
        self._bad_peers, self._reroutes = frozenset(), 0
        self.tokens = list(ask.prompt)
        same_route = self._cached_route == (plan.version, plan.route)
        start = common_prefix(self._cached, ask.prompt) if same_route else 0
        return self._open(now, plan, min(start, len(ask.prompt) - 1))

    def token(self, now: float, sender: str, frame: Token) -> list[OriginEffect]:
        """A token from the tail. Duplicates, stale turns and tokens of other peers change nothing."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE) or frame.turn != self.turn:
            return []
        if sender != self.route[-1] or frame.position != len(self.tokens):
            return []
        self.phase = Phase.DECODE
        self._patience_s = STALL_S
        self._deadline = now + STALL_S
        self.tokens.append(frame.token)
        self._generated += 1
        emit = Emit(frame.token, frame.position)
        if frame.finish == Finish.MORE and self._ask is not None and self._generated >= self._ask.max_tokens:
            return [emit, *self.cancel("length")]  # a tail that does not count would go on for ever
        match Finish(frame.finish):
            case Finish.MORE:
                return [emit]
            case Finish.END_TOKEN:
                return [emit, *self._rest("end"), *self._end("end")]
            case Finish.LENGTH:
                return [emit, *self._rest("length"), *self._end("length")]

    def refused(self, now: float, sender: str, frame: Refuse) -> list[OriginEffect]:
        """A stage could not go on. Recovers where another route or a full prefill can help."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE) or frame.turn != self.turn:
            return []
        if sender not in self.route:
            return []
        try:
            reason = Reason(frame.reason)
        except ValueError:
            reason = Reason.FAILED
        match reason:
            case Reason.MISSING_POSITION | Reason.UNKNOWN_SESSION:
                self._cached = []
                return self._restart(now, frozenset(), frame.message)
            case Reason.UNKNOWN_PLAN | Reason.LOST_NEIGHBOUR:
                return self._restart(now, frozenset(), frame.message, soon=True)
            case Reason.LEAVING:
                return self._restart(now, frozenset({sender}), f"peer {sender} is leaving")
            case (
                Reason.NO_SLOT
                | Reason.CONTEXT_OVERFLOW
                | Reason.NOT_FINITE_INPUT
                | Reason.NOT_FINITE_OUTPUT
                | Reason.FAILED
                | Reason.BAD_STEP
            ):
                return self._fail(frame.message or reason.name.lower().replace("_", " "), reason)
            case _:
                assert_never(reason)

    def peer_gone(self, now: float, peer: str, why: str) -> list[OriginEffect]:
        """A peer of the route left or was lost: the answer goes on elsewhere, or fails within REROUTE_S."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE) or peer not in self.route:
            if self.phase is Phase.REROUTING:
                self._bad_peers |= {peer}
            elif peer in self.route:
                self._cached = []
            return []
        return self._restart(now, frozenset({peer}), why)

    def reroute(self, now: float, plan: PlanRecord) -> list[OriginEffect]:
        """A serving plan: replays prompt and answer so far over it, unless it uses a peer known to be gone."""
        if self.phase is not Phase.REROUTING or self._bad_peers & set(plan.route):
            return []
        same_route = self._cached_route == (plan.version, plan.route)
        start = common_prefix(self._cached, self.tokens) if same_route else 0
        return self._open(now, plan, min(start, len(self.tokens) - 1))

    def tick(self, now: float) -> list[OriginEffect]:
        """Gives up on a route that never came, or on a mesh that went silent."""
        match self.phase:
            case Phase.REROUTING if now >= self._deadline:
                return self._fail(
                    f"{self._trouble}; no other peers hold its part right now, ask again soon", None
                )
            case Phase.PREFILL | Phase.DECODE if now >= self._deadline:
                text = f"no token came for {self._patience_s:.0f} s; the mesh may be overloaded, ask again"
                return self._fail(text, None)
            case _:
                return []

    def cancel(self, why: str = "cancelled") -> list[OriginEffect]:
        """Stops the turn on every stage; their cache is kept for the next question."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            return []
        sends: list[OriginEffect] = []
        if self.phase is not Phase.REROUTING:
            sends = [
                Send(p, Cancel(self.session, self.turn, len(self.tokens), why))
                for p in dict.fromkeys(self.route)
            ]
        return [*sends, *self._end(why)]

    def release(self) -> list[OriginEffect]:
        """Frees the session's slots on every stage it used."""
        ended = self.cancel()
        self._cached = []
        return [*ended, *(Send(peer, Release(self.session)) for peer in dict.fromkeys(self.route))]

    def _open(self, now: float, plan: PlanRecord, start: int) -> list[OriginEffect]:
        assert self._ask is not None
        gone = set(self.route) - set(plan.route)
        effects: list[OriginEffect] = [Send(peer, Release(self.session)) for peer in sorted(gone)]
        self.plan = plan
        self.start = start
        self.turn += 1
        self.phase = Phase.PREFILL
        self._patience_s = STALL_S + (len(self.tokens) - start) // SLOW_TOKENS_PER_S
        self._deadline = now + self._patience_s
        sampling = self._ask.sampling
        count = len(self.tokens)
        first = plan.route[0]
        opening = Open(
            session=self.session,
            turn=self.turn,
            plan=plan.version,
            route=plan.route,
            stage=0,
            origin=self.me,
            start=start,
            prompt_tokens=count,
            max_tokens=self._ask.max_tokens - self._generated,
            sampling=tuple(sampling.to_wire()),
            end_tokens=self._ask.end_tokens,
            history=tuple(self.tokens) if needs_history(sampling) else (),
            generated=self._generated,
        )
        effects.append(Send(first, opening))
        self._cached, self._cached_route = [], (plan.version, plan.route)
        for position, stop in steps_of(start, count, count - self._generated):
            chunk = tensor_of(np.asarray(self.tokens[position:stop], dtype=np.int32))
            step = Step(
                self.session, self.turn, plan.version, position, stop - position, int(stop == count), chunk
            )
            effects.append(Send(first, step))
        return effects

    def _rest(self, why: str) -> list[OriginEffect]:
        """Tells the stages between the first and the last, which see no tokens, that the turn is over."""
        cancel = Cancel(self.session, self.turn, len(self.tokens), why)
        return [Send(peer, cancel) for peer in dict.fromkeys(self.route[1:-1])]

    def _end(self, why: str) -> list[OriginEffect]:
        # The last token of an answer was sampled but never run; a cancelled prefill may have run in part.
        self._cached = self.tokens[:-1] if self.phase is Phase.DECODE else []
        self.phase = Phase.DONE
        return [Ended(why)]

    def _restart(
        self, now: float, without: frozenset[str], why: str, *, soon: bool = False
    ) -> list[OriginEffect]:
        self._reroutes += 1
        if self._reroutes > MAX_REROUTES:
            return self._fail(f"{why}; the route failed {MAX_REROUTES} times, ask again", None)
        stops: list[OriginEffect] = [
            Send(peer, Cancel(self.session, self.turn, len(self.tokens), "rerouting"))
            for peer in dict.fromkeys(self.route)
            if peer not in without
        ]
        self.phase = Phase.REROUTING
        self._bad_peers |= without
        self._trouble = why
        self._deadline = now + REROUTE_S
        return [*stops, FindRoute(self._bad_peers, soon)]

    def _fail(self, text: str, reason: Reason | None) -> list[OriginEffect]:
        stops: list[OriginEffect] = [
            Send(peer, Release(self.session))
            for peer in dict.fromkeys(self.route)
            if peer not in self._bad_peers
        ]
        self._cached = []
        self.phase = Phase.FAILED
        return [*stops, Broken(text, reason or Reason.LOST_NEIGHBOUR)]


def steps_of(start: int, count: int, given: int) -> list[tuple[int, int]]:
    """[position, stop) of the steps that send tokens `start` to `count`, of which the first `given` are the prompt.

    An answer that goes on elsewhere is replayed token by token, as it was made: attention adds up in another order
    for one token than for several, and only the same order gives the same bits.
    """
    chunks = [(at, min(at + CHUNK_TOKENS, given)) for at in range(start, given, CHUNK_TOKENS)]
    return [*chunks, *((at, at + 1) for at in range(max(start, given), count))]


def needs_history(sampling: Sampling) -> bool:
    """Whether the tail must know the tokens so far: only then do they travel with OPEN."""
    return (
        sampling.repetition_penalty != 1.0
        or sampling.frequency_penalty != 0.0
        or sampling.presence_penalty != 0.0
    )


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens `a` and `b` share."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))
