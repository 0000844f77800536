"""The asker's side of one generation: which frames to send, which tokens to show, whom to do without, when to give up.

Pure: every method takes `now` (seconds) where time matters and returns effects for the edge to perform. The life of
a session is one tagged value, `Phase`:

    idle ──begin──▶ prefill ──first token──▶ decode ──end, length, stop──▶ done
                       │  ▲                     │
                       ▼  │ a route             ▼
                    rerouting ◀──refused, peer lost or leaving
                       │
                       └──no route in time──▶ failed          cancel leads from any phase to done

When the next token is late, every stage is asked where it is (WHERE). Who is silent is hedged against: the answer goes
on in another turn, over a route without that peer, where there is one; else it waits. A session has many answers:
each begins with a prompt of which the stages keep the longest cached prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, assert_never

import numpy as np

from peer.effects import Broken, Emit, Ended, FindRoute, OriginEffect, Reason, Send, Spare, Suspect
from peer.errors import ContextOverflow
from peer.frame_kinds import Cancel, Feed, Finish, Here, Open, Refuse, Release, Role, Step, Token, Where
from peer.frames import MAX_SPANS
from peer.lateness import Lateness
from peer.routes import Route
from peer.sampling import Sampling, needs_history
from peer.spans import common_prefix, cut_spans, extended, steps_of
from peer.tensors import tensor_of

REROUTE_S: Final = 1.5  # how long to wait for a route when nobody could take over: an asker must hear of it
HOPE_S: Final = 30.0  # and when another peer is loading what was lost
STALL_S: Final = 60.0  # no token for this long ends the session with an error
SLOW_TOKENS_PER_S: Final = 10  # of a prompt: the slowest mesh that is waited for beyond that
MAX_REROUTES: Final = 16  # per answer; bounds the work a flapping mesh can cause
PATIENCE_S: Final = 0.25  # for an answer to WHERE, unless the edge knows the link better
STUCK_S: Final = 1.0  # no progress anywhere for this long, at least, before a stage counts as stuck
STUCK_GAPS: Final = 10  # and for as many usual gaps
STARVED_S: Final = 0.5  # the same for a stage that does not get what the one before it made
STARVED_GAPS: Final = 4


class Phase(Enum):
    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"
    REROUTING = "rerouting"
    DONE = "done"
    FAILED = "failed"


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
        self.current: Route | None = None
        self.tokens: list[int] = []  # prompt and answer so far
        self.start = 0  # first position that this answer sent; those before were cached
        self.reroutes = 0  # of this answer
        self.patience_s: dict[str, float] = {}  # by peer: how long an answer to WHERE may take
        self.lateness = Lateness()
        self._ask: Ask | None = None
        self._generated = 0
        self._spans: tuple[int, ...] = ()  # of the prompt of this answer
        self._answer, self._before, self._keep = 0, 0, 0
        self._used: set[str] = set()  # peers that may have a slot for this session
        self._tails: dict[int, str] = {}  # the last stage of each turn of this answer
        self._gone: frozenset[str] = frozenset()
        self._avoid: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._deadline = 0.0
        self._patience_all_s = STALL_S
        self._rerouting_since = 0.0
        self._trouble = ""
        self._token_at, self._token_turn = 0.0, 0  # when the last one came, and in which turn
        self._asked_at: float | None = None  # when the stages were asked where they are
        self._ask_at = 0.0  # when they are to be asked next
        self._here: dict[int, Here] = {}
        self._progress: tuple[tuple[int, int, int], ...] = ()
        self._moved_at = 0.0

    @property
    def route(self) -> tuple[str, ...]:
        return self.current.peers if self.current is not None else ()

    @property
    def without(self) -> tuple[frozenset[str], frozenset[str]]:
        """Peers that this answer can do nothing with, and those it would rather do without."""
        return self._gone | self._silent, self._avoid

    @property
    def deadline(self) -> float:
        """When `tick` wants to be called next."""
        match self.phase:
            case Phase.PREFILL | Phase.DECODE:
                if self._asked_at is not None:
                    waiting = [self._patience(p) for s, p in enumerate(self.route) if s not in self._here]
                    return min(self._deadline, self._asked_at + max(waiting, default=0.0))
                return min(self._deadline, self._ask_at)
            case Phase.REROUTING:
                return min(self._deadline, self._ask_at)
            case Phase.IDLE | Phase.DONE | Phase.FAILED:
                return float("inf")
            case _:
                assert_never(self.phase)

    def begin(self, now: float, route: Route, ask: Ask) -> list[OriginEffect]:
        """Opens an answer over `route`. Only tokens beyond the prefix that the stages already hold are sent."""
        if self.phase not in (Phase.IDLE, Phase.DONE, Phase.FAILED):
            raise ValueError(f"session is {self.phase.value}; cancel it before it is asked again")
        cached = self.tokens[:-1]  # the last token of an answer was sampled but never run
        keep = common_prefix(cached, ask.prompt)
        self._spans = extended(cut_spans(self._all_spans(), keep), len(ask.prompt) - keep, given=True)
        if len(self._spans) > MAX_SPANS:
            keep, self._spans = 0, (len(ask.prompt),)
        self._before, self._keep = self._answer, keep
        self._ask, self._generated = ask, 0
        self._gone = self._avoid = self._silent = frozenset()
        self.reroutes = 0
        self._answer = self.turn + 1
        self._tails.clear()
        self.tokens = list(ask.prompt)
        self.start = min(keep, len(ask.prompt) - 1)
        return self._open(now, route, self.start)

    def token(self, now: float, sender: str, frame: Token) -> list[OriginEffect]:
        """A token from a tail of this answer. Duplicates, other answers and tokens of other peers change nothing."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            return []
        if sender != self._tails.get(frame.turn) or frame.position != len(self.tokens):
            return []
        if self.phase is not Phase.REROUTING:
            if self._token_turn == self.turn:
                self.lateness.gap(now - self._token_at)
            self.phase = Phase.DECODE
            self._patience_all_s = STALL_S
            self._deadline = now + STALL_S
            self._wait(now)
        self._token_at, self._token_turn = now, self.turn
        self.tokens.append(frame.token)
        self._generated += 1
        effects: list[OriginEffect] = [Emit(frame.token, frame.position)]
        match Finish(frame.finish):
            case Finish.MORE if self._ask is not None and self._generated >= self._ask.max_tokens:
                return [*effects, *self.cancel("length")]  # a tail that does not count would go on for ever
            case Finish.MORE:
                step = self._step(frame.position, frame.position + 1)
                return [*effects, *(Spare(peer, step) for peer in self._shadows_of_first())]
            case Finish.END_TOKEN:
                return [*effects, *self._end("end")]
            case Finish.LENGTH:
                return [*effects, *self._end("length")]

    def refused(self, now: float, sender: str, frame: Refuse) -> list[OriginEffect]:
        """A stage could not go on. Goes on elsewhere where another route can help."""
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
                return self._restart(now, frame.message)
            case Reason.UNKNOWN_PLAN:
                return self._restart(now, frame.message, soon=True)
            case Reason.LOST_NEIGHBOUR:
                lost = self.route[frame.have] if frame.have < len(self.route) else sender
                return self._restart(now, frame.message, avoid={lost} - {self.me}, soon=len(self.route) == 1)
            case Reason.LEAVING:
                return self._restart(now, f"peer {sender} is leaving", gone={sender})
            case Reason.FAILED | Reason.NOT_FINITE_OUTPUT | Reason.NO_SLOT if sender not in self._avoid:
                why = frame.message or reason.name.lower().replace("_", " ")
                return self._elsewhere(now, why, reason, sender)
            case Reason.NOT_FINITE_INPUT if frame.stage and self.route[frame.stage - 1] not in self._avoid:
                culprit = self.route[frame.stage - 1]
                return self._elsewhere(now, frame.message, reason, culprit)
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

    def feed(self, now: float, sender: str, frame: Feed) -> list[OriginEffect]:
        """The first stage, or one of its shadows, asks for tokens again."""
        if frame.turn != self.turn or frame.stage or self.phase not in (Phase.PREFILL, Phase.DECODE):
            return []
        steps = self._steps(frame.position, len(self.tokens))
        if sender == self.route[0]:
            return [Send(sender, step) for step in steps]
        return [Spare(sender, step) for step in steps] if sender in self._shadows_of_first() else []

    def here(self, now: float, sender: str, frame: Here) -> list[OriginEffect]:
        """A stage says how far it has come."""
        if sender in self._silent:
            self._silent -= {sender}
        if frame.turn != self.turn or frame.stage >= len(self.route) or sender != self.route[frame.stage]:
            return []
        self._here[frame.stage] = frame
        if self._asked_at is None or len(self._here) < len(self.route):
            return []
        return self._all_answered(now)

    def hint(self, now: float, peer: str) -> list[OriginEffect]:
        """Somebody thinks that `peer` is lost: the stages are asked at once."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE) or peer not in self.route:
            return []
        if self._asked_at is not None:
            return []
        return self._where(now)

    def peer_gone(self, now: float, peer: str, why: str) -> list[OriginEffect]:
        """A peer left or was lost for good: an answer that needs it goes on elsewhere, or fails in time."""
        match self.phase:
            case Phase.PREFILL | Phase.DECODE if peer in self.route:
                return self._restart(now, why, gone={peer})
            case Phase.PREFILL | Phase.DECODE | Phase.REROUTING:
                self._gone |= {peer}
        return []

    def peer_back(self, peer: str) -> None:
        """`peer` can be used again."""
        self._gone -= {peer}
        self._silent -= {peer}

    def reroute(self, now: float, route: Route) -> list[OriginEffect]:
        """A route to go on with: the answer continues from the tokens so far. One that helps nothing is left alone."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            return []
        if (self._gone | self._silent) & set(route.peers):
            return []
        if self.phase is not Phase.REROUTING:
            if route.peers == self.route:
                return []
            self.reroutes += 1
        return self._open(now, route, len(self.tokens) - 1)

    def hope(self, hopeful: bool) -> None:
        """Whether another peer may soon hold what was lost: then a route is waited for longer."""
        if self.phase is Phase.REROUTING:
            self._deadline = self._rerouting_since + (HOPE_S if hopeful else REROUTE_S)

    def tick(self, now: float) -> list[OriginEffect]:
        """Asks when a token is late, does without who is silent; gives up on a route that never came, or a mesh that
        stands still.
        """
        match self.phase:
            case Phase.REROUTING if now >= self._deadline:
                return self._fail(
                    f"{self._trouble}; no other peers hold its part right now, ask again soon", None
                )
            case Phase.REROUTING if now >= self._ask_at:
                self._ask_at = now + self.lateness.late_s
                asks = [
                    Send(peer, Where(self.session, self.turn, stage))
                    for stage, peer in enumerate(self.route)
                    if peer in self._silent
                ]
                return [*asks, FindRoute(*self.without)]
            case Phase.PREFILL | Phase.DECODE if now >= self._deadline:
                text = (
                    f"no token came for {self._patience_all_s:.0f} s; the mesh may be overloaded, ask again"
                )
                return self._fail(text, None)
            case Phase.PREFILL | Phase.DECODE if self._asked_at is not None:
                return self._judge(now, self._asked_at)
            case Phase.PREFILL | Phase.DECODE if now >= self._ask_at:
                return self._where(now)
            case _:
                return []

    def cancel(self, why: str = "cancelled") -> list[OriginEffect]:
        """Stops the answer on every stage; their cache is kept for the next question."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            return []
        return self._end(why)

    def release(self) -> list[OriginEffect]:
        """Frees the session's slots on every stage it used."""
        ended = self.cancel()
        used = sorted(self._used)
        self._used.clear()
        self.tokens, self._spans, self._generated = [], (), 0
        return [*ended, *(Send(peer, Release(self.session)) for peer in used)]

    # --- turns

    def _open(self, now: float, route: Route, start: int) -> list[OriginEffect]:
        assert self._ask is not None
        effects: list[OriginEffect] = []
        inside = {*route.peers, *(peer for _, peer in route.shadows)}
        if self.current is not None and self.turn >= self._answer:
            before = {*self.route, *(peer for _, peer in self.current.shadows)}
            stop = Cancel(self.session, self.turn, len(self.tokens), "goes on elsewhere")
            effects += [Send(peer, stop) for peer in sorted(before - inside - self._gone)]
        self.current = route
        self.turn += 1
        self._used |= inside
        self._tails[self.turn] = route.peers[-1]
        self.phase = Phase.PREFILL if not self._generated else Phase.DECODE
        self._patience_all_s = STALL_S + (len(self.tokens) - start) // SLOW_TOKENS_PER_S
        self._deadline = now + self._patience_all_s
        self._progress, self._moved_at = (), now
        self._wait(now)
        sampling = self._ask.sampling
        count = len(self.tokens)
        first = route.peers[0]
        opening = Open(
            session=self.session,
            turn=self.turn,
            plan=route.plan,
            route=route.peers,
            stage=0,
            origin=self.me,
            start=start,
            prompt_tokens=count,
            max_tokens=self._ask.max_tokens - self._generated,
            sampling=tuple(sampling.to_wire()),
            end_tokens=self._ask.end_tokens,
            generated=self._generated,
            role=int(Role.SERVE),
            answer=self._answer,
            before=self._before,
            keep=self._keep,
            spans=self._all_spans(),
            shadow_stages=tuple(stage for stage, _ in route.shadows),
            shadows=tuple(peer for _, peer in route.shadows),
            history=tuple(self.tokens) if needs_history(sampling) else (),
        )
        steps = self._steps(start, count)
        effects += [Send(first, opening), *(Send(first, step) for step in steps)]
        for peer in self._shadows_of_first():
            effects.append(Spare(peer, shadowing(opening)))
            effects += [Spare(peer, step) for step in steps]
        return effects

    def _steps(self, start: int, stop: int) -> list[Step]:
        return [self._step(first, last) for first, last in steps_of(start, stop, self._all_spans())]

    def _all_spans(self) -> tuple[int, ...]:
        return extended(self._spans, self._generated, given=False)

    def _step(self, position: int, stop: int) -> Step:
        chunk = tensor_of(np.asarray(self.tokens[position:stop], dtype=np.int32))
        last = int(stop == len(self.tokens))
        return Step(self.session, self.turn, 0, position, stop - position, last, chunk)

    def _shadows_of_first(self) -> list[str]:
        shadows = self.current.shadows if self.current is not None else ()
        return [peer for stage, peer in shadows if stage == 0]

    def _end(self, why: str) -> list[OriginEffect]:
        cancel = Cancel(self.session, self.turn, len(self.tokens), why)
        peers = [*self.route, *(peer for _, peer in self.current.shadows)] if self.current is not None else []
        self.phase = Phase.DONE
        return [*(Send(p, cancel) for p in dict.fromkeys(peers) if p not in self._gone), Ended(why)]

    # --- trouble

    def _patience(self, peer: str) -> float:
        return self.patience_s.get(peer, PATIENCE_S)

    def _wait(self, now: float) -> None:
        """Nothing is late yet."""
        self._asked_at = None
        self._here.clear()
        self._ask_at = now + self.lateness.late_s

    def _where(self, now: float) -> list[OriginEffect]:
        self._asked_at = now
        self._here.clear()
        return [Send(p, Where(self.session, self.turn, stage)) for stage, p in enumerate(self.route)]

    def _judge(self, now: float, asked_at: float) -> list[OriginEffect]:
        """Whoever has not answered within its patience is silent."""
        late = {
            peer
            for stage, peer in enumerate(self.route)
            if stage not in self._here and now >= asked_at + self._patience(peer)
        }
        if not late:
            return []
        fresh = late - self._silent
        self._silent |= late
        self._wait(now)
        self._ask_at = now + max(self.lateness.late_s, max(self._patience(peer) for peer in late))
        suspects = [Suspect(peer, "does not answer") for peer in sorted(fresh)]
        return [*suspects, FindRoute(*self.without)]

    def _all_answered(self, now: float) -> list[OriginEffect]:
        """Everybody is there: has anything moved since they were asked before?"""
        seen = tuple((h.received, h.computed, h.steps) for _, h in sorted(self._here.items()))
        own = tuple(pair[:2] for pair in seen)
        moved = own != tuple(pair[:2] for pair in self._progress)
        here = dict(self._here)
        stage = next((s for s in range(len(seen)) if not _done(here, s)), None)
        if stage is not None and not moved and len(self._progress) == len(seen):
            moved = seen[stage][2] != self._progress[stage][2]  # busy with others
        self._progress = seen
        self._wait(now)
        if moved:
            self._moved_at = now
            return []
        starved = stage is not None and seen[stage][1] >= seen[stage][0]
        least_s, gaps = (STARVED_S, STARVED_GAPS) if starved else (STUCK_S, STUCK_GAPS)
        if now - self._moved_at < max(least_s, gaps * self.lateness.usual_s):
            return []
        self._moved_at = now
        peer = self.route[stage] if stage is not None else None
        if peer is None or peer in self._avoid:
            return self._restart(now, "a stage does not come on")
        self._avoid |= {peer}
        return [Suspect(peer, "does not come on"), FindRoute(*self.without)]

    def _restart(
        self,
        now: float,
        why: str,
        gone: set[str] | frozenset[str] = frozenset(),
        avoid: set[str] | frozenset[str] = frozenset(),
        *,
        soon: bool = False,
    ) -> list[OriginEffect]:
        self.reroutes += 1
        if self.reroutes > MAX_REROUTES:
            return self._fail(f"{why}; the route failed {MAX_REROUTES} times, ask again", None)
        self.phase = Phase.REROUTING
        self._gone |= gone
        self._avoid |= avoid
        self._trouble = why
        self._rerouting_since = now
        self._deadline = now + REROUTE_S
        self._ask_at = now + self.lateness.late_s
        return [FindRoute(*self.without, soon)]

    def _elsewhere(self, now: float, why: str, reason: Reason, culprit: str) -> list[OriginEffect]:
        """A stage failed by itself: another peer may not."""
        suspect: list[OriginEffect] = []
        if reason is not Reason.NO_SLOT:
            suspect = [Suspect(culprit, "failed a step")]
        return [*suspect, *self._restart(now, why, avoid={culprit})]

    def _fail(self, text: str, reason: Reason | None) -> list[OriginEffect]:
        stop = Cancel(self.session, self.turn, 0, text)  # it may be asked again: RELEASE would be for good
        stops: list[OriginEffect] = [Send(peer, stop) for peer in sorted(self._used - self._gone)]
        self._used &= self._gone  # of a connection that was lost, maybe not for good: RELEASE will tell them
        self.tokens, self._spans, self._generated = [], (), 0
        self.phase = Phase.FAILED
        return [*stops, Broken(text, reason or Reason.LOST_NEIGHBOUR)]


def _done(here: dict[int, Here], stage: int) -> bool:
    """Whether `stage` has nothing to do: it computed what came, and what came is what the one before it computed."""
    mine = here[stage]
    if mine.computed < mine.received:
        return False
    return stage == 0 or mine.received >= here[stage - 1].computed


def shadowing(opening: Open) -> Open:
    """The same OPEN for a peer that shadows that stage."""
    return replace(opening, role=int(Role.SHADOW))
