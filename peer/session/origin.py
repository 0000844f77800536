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

from dataclasses import replace
from typing import Final, assert_never

from peer.limits import MAX_SPANS
from peer.session.ask import Ask, Heard, Phase, Progress, compared, room_for, stuck_after_s
from peer.session.effects import (
    Broken,
    Emit,
    Ended,
    FindRoute,
    OriginEffect,
    Reason,
    Send,
    Spare,
    Suspect,
    reason_of,
)
from peer.session.given_rows import (
    GivenRows,
    alike_up_to,
    cut_at,
    rows_at,
    shift_at,
    shifted,
    shifted_ids,
)
from peer.session.lateness import Lateness
from peer.session.migration import (
    LEAST_TOKENS,
    MAX_TRIES,
    NO_TOKENS,
    TRY_AGAIN_S,
    Move,
    MovePhase,
    Verdict,
    next_id,
)
from peer.session.pinned_ends import Drawing, Ends, drawing_of, pinned
from peer.session.position_spans import common_prefix, extended, steps_of
from peer.session.prefix_cache import named, prefix_of
from peer.session.routes import Route
from peer.wire.generated.frames import (
    Cancel,
    Feed,
    Finish,
    Here,
    Open,
    Refuse,
    Release,
    Role,
    Step,
    Token,
    Where,
)
from peer.wire.tensors import tensor_of

__all__ = ["Ask", "Heard", "OriginSession", "Phase", "room_for"]

REROUTE_S: Final = 1.5  # how long to wait for a route when nobody could take over: an asker must hear of it
HOPE_S: Final = 30.0  # and when another peer is loading what was lost
STALL_S: Final = 60.0  # no token for this long ends the session with an error
SLOW_TOKENS_PER_S: Final = 10  # of a prompt: the slowest mesh that is waited for beyond that
UNREADY_S: Final = 1.0  # a stage that does not serve its place yet is asked again at the latest after this
MAX_REROUTES: Final = 16  # per answer; bounds the work a flapping mesh can cause
PATIENCE_S: Final = 0.25  # for an answer to WHERE, unless the edge knows the link better
ANSWERING: Final = (Phase.PREFILL, Phase.DECODE)
ADOPTED_TURNS: Final = 64  # above the last turn that was heard of: an answer has no more routes than that


class OriginSession:
    """One session as its asker sees it."""

    def __init__(self, session: bytes, me: str, ends: Ends | None = None) -> None:
        self.session = session
        self.me = me
        self.ends = ends  # embedding and head, where they and sampling stay here (peer.session.pinned_ends)
        self.phase = Phase.IDLE
        self.turn = 0
        self.current: Route | None = None
        self.tokens: list[int] = []  # prompt and answer so far
        self.rows: tuple[GivenRows, ...] = ()  # of the prompt, in place of token ids
        self.start = 0  # first position that this answer sent; those before were cached
        self.reroutes = 0  # of this answer
        self.full: dict[str, tuple[int, int]] = {}  # who has no seat for it: plan and place in its route
        self.patience_s: dict[str, float] = {}  # by peer: how long an answer to WHERE may take
        self.lateness = Lateness()
        self._ask: Ask | None = None
        self._generated = 0
        self._spans: tuple[int, ...] = ()  # of the prompt of this answer
        self._answer, self._before, self._keep = 0, 0, 0
        self._used: set[str] = set()  # peers that may have a slot for this session
        self.came_over: Route | None = None  # the route of the last token that came
        self._ways: dict[int, Route] = {}  # the route of each turn of this answer: its last stage draws
        self._gone: frozenset[str] = frozenset()
        self._avoid: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._deadline = 0.0
        self._patience_all_s = STALL_S
        self._rerouting_since = self._moved_at = 0.0
        self._unready, self._unready_since = 0, 0.0  # refusals "not yet" in a row, and when the first came
        self._trouble = ""
        self._token_at, self._token_turn = 0.0, 0  # when the last one came, and in which turn
        self._asked_at: float | None = None  # when the stages were asked where they are
        self._ask_at = 0.0  # when they are to be asked next
        self._here: dict[int, Here] = {}
        self._progress: Progress = ()
        self._move: Move | None = None
        self._target: Route | None = None  # where the answer moves with its next token after `_target_at`
        self._target_at, self._tries = 0.0, 0
        self._last_id = session

    @property
    def route(self) -> tuple[str, ...]:
        """The peers of the current turn in order; () while there is none."""
        return self.current.peers if self.current is not None else ()

    @property
    def without(self) -> tuple[frozenset[str], frozenset[str]]:
        """Peers that this answer can do nothing with, and those it would rather do without."""
        return self._gone | self._silent, self._avoid

    @property
    def deadline(self) -> float:
        """When `tick` wants to be called next."""
        return self._due if self._move is None else min(self._due, self._move.due)

    @property
    def _due(self) -> float:
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
        keep = alike_up_to(common_prefix(cached, ask.prompt), self.rows, ask.rows)
        self._spans = ask.spans_after(self._all_spans(), keep)
        if len(self._spans) > MAX_SPANS:
            keep, self._spans = 0, (len(ask.prompt) - ask.sampled,)
        self._before, self._keep = self._answer, keep
        self._ask, self._generated = ask, ask.sampled
        self._gone = self._avoid = self._silent = frozenset()
        self.reroutes, self._unready, self.full = 0, 0, {}
        self._answer = self.turn + 1
        self._ways.clear()
        self._target, self._tries = None, 0
        self.tokens, self.rows = list(ask.prompt), ask.rows
        self.start = min(max(keep, ask.front if ask.front_kept else 0), len(ask.prompt) - 1)
        return self._open(now, route, self.start)

    def adopt(
        self, now: float, route: Route, ask: Ask, ids: tuple[int, ...], heard: Heard | int
    ) -> list[OriginEffect]:
        """Goes on with an answer that another peer asked for, from the tokens `ids` on. What was heard of the session
        lets its stages keep what they hold; without that, in a turn above all before, they compute it anew.
        """
        if self.phase is not Phase.IDLE:
            raise ValueError(f"session is {self.phase.value}; an answer is adopted in a session of its own")
        self._ask, self._generated = ask, len(ids)
        self.tokens, self.rows = [*ask.prompt, *ids], ask.rows
        if isinstance(heard, int):
            self._spans, self._answer, self.turn = (len(ask.prompt),), heard, heard - 1
        else:
            self._spans, self._answer, self.turn = heard.spans, heard.answer, heard.turn + ADOPTED_TURNS - 1
            self.start = len(self.tokens) - 1
        return self._open(now, route, self.start)

    @property
    def under_way(self) -> Heard:
        """What others are to hear of the answer under way."""
        return Heard(self._answer, self.turn, self._spans)

    def token(self, now: float, sender: str, frame: Token) -> list[OriginEffect]:
        """A token from a tail of this answer. Duplicates, other answers and tokens of other peers change nothing."""
        if self.phase not in (Phase.PREFILL, Phase.DECODE, Phase.REROUTING):
            return []
        way = self._ways.get(frame.turn)
        if way is None or sender != way.peers[-1] or frame.position != len(self.tokens):
            return []
        self.came_over = way
        self._unready = 0
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
        effects: list[OriginEffect] = [Emit(frame.token, frame.position, frame.body)]
        match Finish(frame.finish):
            case Finish.MORE if self._ask is not None and self._generated >= self._ask.max_tokens:
                return [*effects, *self.cancel("length")]  # a tail that does not count would go on for ever
            case Finish.MORE:
                step = self._step(frame.position, frame.position + 1)
                if self.ends is not None and self.phase is Phase.DECODE:
                    effects.append(Send(self.route[0], step))
                shadows = self._shadows_of_first()
                return [*effects, *(Spare(peer, step) for peer in shadows), *self._move_on(now)]
            case Finish.END_TOKEN:
                return [*effects, *self._end("end")]
            case Finish.LENGTH:
                return [*effects, *self._end("length")]

    def drawing(self, sender: str, frame: Step) -> Token | Drawing | None:
        """What follows from a state that the last stage of a turn handed back; None where that is nobody's business."""
        move = self._move if frame.session != self.session else None
        if move is not None:
            tail, route = move.tails.get(frame.turn), move.route.peers
        else:
            way, route = self._ways.get(frame.turn), self.route
            tail = way.peers[-1] if way is not None else None
        if self._ask is None or sender != tail or frame.stage != len(route):
            return None
        return drawing_of(self._ask, self.tokens, self._generated, frame)

    def refused(self, now: float, sender: str, frame: Refuse) -> list[OriginEffect]:
        """A stage could not go on. Goes on elsewhere where another route can help."""
        if self.phase not in ANSWERING or frame.turn != self.turn or sender not in self.route:
            return []
        reason = reason_of(frame.reason)
        if reason is Reason.NO_SLOT and self.current is not None:
            self.full[sender] = (self.current.plan, frame.stage)
        match reason:
            case Reason.MISSING_POSITION:
                return self._restart(now, frame.message)
            case Reason.UNKNOWN_PLAN | Reason.UNKNOWN_SESSION:
                return self._not_yet(now, frame.message)
            case Reason.LOST_NEIGHBOUR:
                lost = self.route[frame.have] if frame.have < len(self.route) else sender
                after_s = self._soon_s() if len(self.route) == 1 else 0.0
                return self._restart(now, frame.message, avoid={lost} - {self.me}, after_s=after_s)
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
        if frame.turn != self.turn or frame.stage or self.phase not in ANSWERING:
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
        runs = self.phase in ANSWERING and peer in self.route
        return self._where(now) if runs and self._asked_at is None else []

    def peer_gone(self, now: float, peer: str, why: str) -> list[OriginEffect]:
        """A peer left or was lost for good: an answer that needs it goes on elsewhere, or fails in time."""
        stays = self._stay(now + TRY_AGAIN_S) if self._move is not None and peer in self._move.peers else []
        match self.phase:
            case Phase.PREFILL | Phase.DECODE if peer in self.route:
                return [*stays, *self._restart(now, why, gone={peer})]
            case Phase.PREFILL | Phase.DECODE | Phase.REROUTING:
                self._gone |= {peer}
        return stays

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
        move, before = self._move, []
        if move is not None and (route.plan, route.peers) == (move.route.plan, move.route.peers):
            before = self._taken(now, move)  # what is computed there already is a start
        elif (goal := move.route if move is not None else self._target) and route.plan >= goal.plan:
            before = self.move(now, None)
        return [*before, *self._open(now, route, len(self.tokens) - 1)]

    # --- moving to the route of another plan (peer.session.migration)

    def move(self, now: float, route: Route | None) -> list[OriginEffect]:
        """Another plan serves: from its next token on the answer moves to `route`. None: it stays where it is."""
        stays = self._stay()
        self._target, self._target_at, self._tries = route, now, 0
        return stays

    @property
    def second(self) -> bytes | None:
        """The id of the session that computes on the next route, while there is one."""
        return self._move.session if self._move is not None else None

    def second_frame(
        self, now: float, sender: str, frame: Token | Refuse | Here | Feed
    ) -> list[OriginEffect]:
        """A frame of the second session. When the answer is its, this session has its id."""
        move = self._move
        if move is None or frame.session != move.session:
            return []
        if isinstance(frame, Feed):
            if frame.stage or frame.turn != move.turn or sender != move.route.peers[0]:
                return []
            stop = len(self.tokens) - int(move.phase is MovePhase.WARMING)
            return [Send(sender, step) for step in move.own(self._steps(frame.position, stop))]
        match move.heard(now, sender, frame, len(self.tokens)):
            case Verdict.NOTHING:
                return []
            case Verdict.RACE:
                return self._race(now, move)
            case Verdict.TAKE:
                assert isinstance(frame, Token)
                taken = self._taken(now, move)
                if self.ends is not None:
                    taken += self.feed(now, self.route[0], Feed(self.session, self.turn, 0, frame.position))
                return [*taken, *self.token(now, sender, frame)]
            case Verdict.JUMP:
                return [*self._taken(now, move), *self._open(now, move.route, len(self.tokens) - 1)]
            case Verdict.GIVE_UP:
                return self._stay(now + TRY_AGAIN_S)

    def _move_on(self, now: float) -> list[OriginEffect]:
        assert self._ask is not None
        known, left = len(self.tokens), self._ask.max_tokens - self._generated
        if self._move is not None:
            return self._move.more(self._steps(known - 2, known - 1))
        route = self._target
        if route is None or now < self._target_at or left < LEAST_TOKENS or self.phase is not Phase.DECODE:
            return []
        self._target, self._last_id = None, next_id(self._last_id)
        first = route.peers[0]
        move = self._move = Move(self._last_id, self.turn + 1, route, now)
        opening = replace(
            self._opening(route, 0),
            session=move.session,
            turn=move.turn,
            prompt_tokens=known + left,
            max_tokens=NO_TOKENS,
            spans=extended(self._all_spans(), left, given=False),
            before=self.current.plan if self.current is not None else 0,  # whose caches may be copied
            shadow_stages=tuple(range(len(self.route))),
            shadows=self.route,
            sampling=() if self.ends is not None else tuple(self._ask.sampling.to_wire()),
            history=(),
        )
        return [Send(first, opening), *(Send(first, step) for step in move.own(self._steps(0, known - 1)))]

    def _race(self, now: float, move: Move) -> list[OriginEffect]:
        move.race(now, max(self.turn, move.turn) + 1)
        known = len(self.tokens)
        opening = replace(self._opening(move.route, known - 1), session=move.session, turn=move.turn)
        return self._sent(opening, move.own(self._steps(known - 1, known)))

    def _taken(self, now: float, move: Move) -> list[OriginEffect]:
        released: list[OriginEffect] = [
            Send(p, Release(self.session)) for p in sorted(self._used - self._gone)
        ]
        self._move, self._target = None, None
        self.session, self.turn, self.current = move.session, max(self.turn, move.turn), move.route
        self._ways, self._used = dict.fromkeys(move.tails, move.route), set(move.peers)
        self.phase = Phase.DECODE
        self._deadline = now + STALL_S
        self._progress, self._moved_at = (), now
        self._wait(now)
        return released

    def _stay(self, again_at: float | None = None) -> list[OriginEffect]:
        """Gives the second session up; another try follows when there is something to hope for."""
        move, self._move = self._move, None
        if move is None:
            return []
        self._tries += 1
        if again_at is not None and self._tries < MAX_TRIES:
            self._target, self._target_at = move.route, again_at
        return move.released(self._gone)

    def stranded_s(self, now: float) -> float:
        """For how many seconds no route was there; 0 while there is one."""
        return max(0.0, now - self._rerouting_since) if self.phase is Phase.REROUTING else 0.0

    def hope(self, hopeful: bool) -> None:
        """Whether another peer may soon hold what was lost: then a route is waited for longer."""
        if self.phase is Phase.REROUTING:
            self._deadline = self._rerouting_since + (HOPE_S if hopeful else REROUTE_S)

    def tick(self, now: float) -> list[OriginEffect]:
        """Asks when a token is late, does without who is silent; gives up on a route that never came, or a mesh that
        stands still.
        """
        verdict, asks = self._move.look(now) if self._move is not None else (Verdict.NOTHING, [])
        moves = asks if verdict is Verdict.NOTHING else self._stay(now + TRY_AGAIN_S)
        return [*moves, *self._tick(now)]

    def _tick(self, now: float) -> list[OriginEffect]:
        match self.phase:
            case Phase.REROUTING if now >= self._deadline:
                return self._fail(f"{self._trouble}; no other peers hold its part right now, ask again soon")
            case Phase.REROUTING if now >= self._ask_at:
                self._ask_at = now + self.lateness.late_s
                asks = [
                    Send(peer, Where(self.session, self.turn, stage))
                    for stage, peer in enumerate(self.route)
                    if peer in self._silent
                ]
                return [*asks, FindRoute(*self.without)]
            case Phase.PREFILL | Phase.DECODE if now >= self._deadline:
                waited_s = round(self._patience_all_s)
                return self._fail(f"no token came for {waited_s} s; the mesh may be overloaded, ask again")
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
        self._forget()
        return [*ended, *(Send(peer, Release(self.session)) for peer in used)]

    def _forget(self) -> None:
        """Stages hold nothing of the session any more."""
        self.tokens, self.rows, self._spans, self._generated = [], (), (), 0

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
        self._ways[self.turn] = route
        self.phase = Phase.PREFILL if not self._generated else Phase.DECODE
        self._patience_all_s = STALL_S + (len(self.tokens) - start) // SLOW_TOKENS_PER_S
        self._deadline = now + self._patience_all_s
        self._progress, self._moved_at = (), now
        self._wait(now)
        return effects + self._sent(self._opening(route, start), self._steps(start, len(self.tokens)))

    def _opening(self, route: Route, start: int) -> Open:
        assert self._ask is not None
        sampling, history = self._ask.wire(self.tokens)
        opening = Open(
            session=self.session,
            turn=self.turn,
            plan=route.plan,
            route=route.peers,
            stage=0,
            origin=self.me,
            start=start,
            prompt_tokens=len(self.tokens),
            max_tokens=self._ask.max_tokens - self._generated,
            sampling=sampling,
            end_tokens=self._ask.end_tokens,
            generated=self._generated,
            role=int(Role.SERVE),
            answer=self._answer,
            before=self._before,
            keep=self._keep,
            spans=self._all_spans(),
            shadow_stages=tuple(stage for stage, _ in route.shadows),
            shadows=tuple(peer for _, peer in route.shadows),
            history=history,
        )
        front = prefix_of(self._step(0, self._ask.front).tensor) if self._ask.front else None
        return named(pinned(opening) if self.ends is not None else opening, front)

    def _sent(self, opening: Open, steps: list[Step]) -> list[OriginEffect]:
        first, shadow = opening.route[0], replace(opening, role=int(Role.SHADOW))
        effects: list[OriginEffect] = [Send(first, opening), *(Send(first, step) for step in steps)]
        for stage, peer in zip(opening.shadow_stages, opening.shadows, strict=True):
            if not stage:
                effects += [Spare(peer, shadow), *(Spare(peer, step) for step in steps)]
        return effects

    def _steps(self, start: int, stop: int) -> list[Step]:
        found = cut_at(steps_of(start, stop, self._all_spans()), self.rows)
        return [self._step(first, last) for first, last in found]

    def _all_spans(self) -> tuple[int, ...]:
        return extended(self._spans, self._generated, given=False)

    def _step(self, position: int, stop: int) -> Step:
        chunk = rows_at(self.rows, position, stop)
        if chunk is None:
            ids, shift = self.tokens[position:stop], shift_at(self.rows, position)
            if self.ends is None:
                chunk = shifted_ids(ids, shift)
            else:
                chunk = tensor_of(shifted(self.ends.embed(ids).array(), shift))
        last = int(stop == len(self.tokens))
        return Step(self.session, self.turn, 0, position, stop - position, last, chunk)

    def _shadows_of_first(self) -> list[str]:
        shadows = self.current.shadows if self.current is not None else ()
        return [peer for stage, peer in shadows if stage == 0]

    def _end(self, why: str) -> list[OriginEffect]:
        cancel = Cancel(self.session, self.turn, len(self.tokens), why)
        peers = [*self.route, *(peer for _, peer in self.current.shadows)] if self.current is not None else []
        self.phase = Phase.DONE
        stays = self.move(0.0, None)
        return [*stays, *(Send(p, cancel) for p in dict.fromkeys(peers) if p not in self._gone), Ended(why)]

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
        seen, stage, moved = compared(self._here, self._progress)
        self._progress = seen
        self._wait(now)
        if moved:
            self._moved_at = now
            return []
        starved = stage is not None and seen[stage][1] >= seen[stage][0]
        peer = self.route[stage] if stage is not None else None
        tries = self.reroutes if peer in self._avoid else 0  # nobody else can, it may just be slow
        if now - self._moved_at < stuck_after_s(self.lateness.usual_s, tries, starved=starved):
            return []
        self._moved_at = now
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
        after_s: float = 0.0,
        again: bool = False,
    ) -> list[OriginEffect]:
        """Looks for another route, after so long; `again`: the one before it counts already."""
        self.reroutes += not again
        if self.reroutes > MAX_REROUTES:
            return self._fail(f"{why}; the route failed {MAX_REROUTES} times, ask again")
        self.phase = Phase.REROUTING
        self._gone |= gone
        self._avoid |= avoid
        self._trouble = why
        self._rerouting_since = now + after_s
        self._deadline = self._rerouting_since + REROUTE_S
        self._ask_at = now + (after_s or self.lateness.late_s)
        return [FindRoute(*self.without, after_s > 0)]

    def _not_yet(self, now: float, why: str) -> list[OriginEffect]:
        """A stage does not serve its place, as while it loads: it is asked again, later each time, for HOPE_S. However
        often that is, it counts as one route that failed.
        """
        if not self._unready:
            self._unready_since = now
        elif now >= self._unready_since + HOPE_S:
            return self._fail(f"{why}, for {HOPE_S:.0f} s; ask again soon")
        self._unready += 1
        return self._restart(now, why, after_s=self._soon_s(), again=self._unready > 1)

    def _soon_s(self) -> float:
        """After how long a stage is asked again that could not take its place: twice as long after each refusal."""
        return min(self.lateness.late_s * 2.0 ** max(self._unready - 1, 0), UNREADY_S)

    def _elsewhere(self, now: float, why: str, reason: Reason, culprit: str) -> list[OriginEffect]:
        """A stage failed by itself: another peer may not."""
        suspect: list[OriginEffect] = []
        if reason is not Reason.NO_SLOT:
            suspect = [Suspect(culprit, "failed a step")]
        return [*suspect, *self._restart(now, why, avoid={culprit})]

    def _fail(self, text: str, reason: Reason = Reason.LOST_NEIGHBOUR) -> list[OriginEffect]:
        stop = Cancel(self.session, self.turn, 0, text)  # it may be asked again: RELEASE would be for good
        stops: list[OriginEffect] = self.move(0.0, None)
        stops += [Send(peer, stop) for peer in sorted(self._used - self._gone)]
        self._used &= self._gone  # of a connection that was lost, maybe not for good: RELEASE will tell them
        self._forget()
        self.phase = Phase.FAILED
        return [*stops, Broken(text, reason)]
