"""One peer's stages: what to run, what to pass on, what to ask for again, for every session that crosses this peer.

Pure: frames and runtime results in, effects out. A session is accepted by OPEN, which travels along the route ahead
of the steps; a stage takes steps only from the neighbour that its route names, each position once and in order. At
most `AHEAD_STEPS` steps of a session wait in the runtime, and none while the way to the next stage is full.
Whatever a stage lacks it asks for (FEED): the stage before it sends from its log, or computes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from peer.session.activation_log import ActivationLog
from peer.session.effects import FreeSlot, Note, NotRan, Ran, Reason, RunStep, Send, Spare, StageEffect
from peer.session.given_rows import ids_of, shifted_ids
from peer.session.open_checks import (
    PlanStages,
    finish_of,
    misplaced,
    not_adopted,
    passed_on,
    pick_of,
    refusal,
    refused_full,
    refused_open,
    step_of,
    told,
    unserved,
)
from peer.session.pinned_ends import handed_back, is_pinned, settings_of, takes_ids, wrong_ends
from peer.session.prefix import Prefix
from peer.session.prefix_cache import Prefixes, split
from peer.session.sampling import BadSampling, needs_history
from peer.session.seat import (
    FEED_AGAIN_S,
    FOR_GOOD,
    Late,
    Over,
    Run_,
    Seat,
    bound_logs,
    furthest,
    has_room,
    idlest,
    most_rows,
)
from peer.session.seat_admission import Admitting
from peer.wire.generated.frames import Cancel, Feed, Finish, Here, Open, Release, Role, Step, Token, Where
from peer.wire.tensors import Dtype, tensor_of

AHEAD_STEPS = 2  # keeps the worker busy while the loop handles the last result
LEASE_S = 600.0  # a session that nobody continues is freed after this
ORPHAN_S = 30.0  # a session whose asker is gone waits so long for another one
MAX_STEP_POSITIONS = 256  # eight chunks; more would hold up the sessions beside it
MAX_PENDING_STEPS = 65536  # per session: an answer of that length can be replayed, a token to a step
MAX_PENDING_BYTES = 256 * 1024 * 1024  # per session: a whole prompt that waits for a slow stage
MAX_UNFIT = 3  # times in a row that a runtime lacks what this module thinks it has
LOG_SESSION_BYTES = 64 * 1024 * 1024  # of activations kept for one session
LOG_TOTAL_BYTES = 256 * 1024 * 1024  # for all of them


@dataclass(frozen=True, slots=True)
class StageRules:
    """What a stage asks its surroundings.

    `author_of(session)`: who asks a session now, by the answers that run in the log; None where no answer that runs
    has it. `may_ask(asker)`: why an asker may not, for people; "": it may. `owed_milli(asker)`: what it spent beyond
    what it earned. `bring(seat)` begins to copy the cache of a seat that warms; False: there is nothing to copy.
    """

    author_of: Callable[[bytes], str | None] = lambda _: None
    may_ask: Callable[[str], str] = lambda _: ""
    owed_milli: Callable[[str], int] = lambda _: 0
    bring: Callable[[Seat], bool] = lambda _: False


class StageCore:
    """All sessions on this peer's stages. A peer may have several places in one route, each with units of its own."""

    def __init__(
        self,
        me: str,
        log_session_bytes: int = LOG_SESSION_BYTES,
        log_total_bytes: int = LOG_TOTAL_BYTES,
        rules: StageRules | None = None,
    ) -> None:
        self.me = me
        self._rules = rules or StageRules()
        self._log_session_bytes = log_session_bytes
        self._log_total_bytes = log_total_bytes
        self._seats: dict[tuple[bytes, int], Seat] = {}
        self._of_run: dict[tuple[bytes, Run_], Seat] = {}
        self._places: dict[bytes, tuple[int, ...]] = {}  # where a session has seats
        # version -> for each stage who may hold it, and its units
        self._plans: dict[int, PlanStages] = {}
        self._slots: dict[Run_, int] = {}
        self.admitting = Admitting(
            self._seats, lambda: self._slots, self._rules.owed_milli
        )  # who waits for a seat
        self._keep_only = False  # shadows keep their inputs, and compute when they are asked to serve
        self.prefixes = Prefixes()
        self._leaving = False
        self._full: set[str] = set()  # peers whose connection has no room
        self._over, self._late = Over(), Late()
        self._epoch = 0
        self.tokens_sampled = 0
        self.steps_run = 0
        self.replayed_bytes = 0  # of activations sent again
        self.taken_over = 0  # sessions that a shadow here went on with
        self.copied = 0  # positions that seats which warm took from others' caches
        self._notes: list[Note] = []

    # --- what this peer serves

    def keep_logs(self, session_bytes: int, total_bytes: int, *, only: bool) -> None:
        """Keeps activations up to `session_bytes` of a session that begins from now on, and `total_bytes` of all.
        `only`: shadows keep their inputs, and compute when they are asked to serve.
        """
        self._log_session_bytes, self._log_total_bytes, self._keep_only = session_bytes, total_bytes, only

    def may_ask(self, asker: str) -> str:
        """Returns why `asker` may not ask, for people; "": it may."""
        return self._rules.may_ask(asker)

    def run_of(self, plan: int, stage: int) -> Run_ | None:
        """The units of a place in a plan's routes, where they are loaded here and sessions are taken."""
        stages = self._plans.get(plan, ())
        run = stages[stage][1] if stage < len(stages) else None
        return run if run in self._slots and not self._leaving else None

    def serve(self, plans: Mapping[int, PlanStages], slots: Mapping[Run_, int]) -> None:
        """The plans whose sessions are accepted (who may hold each stage, and its units) and the runs that are loaded,
        with their slots.
        """
        self._plans, self._slots = dict(plans), dict(slots)

    def leave(self) -> list[StageEffect]:
        """Refuses what comes and tells every asker, so that answers can go on elsewhere."""
        self._leaving = True
        effects: list[StageEffect] = []
        for _, seat in sorted(self._seats.items()):
            if seat.active and seat.serves:
                seat.active = False
                seat.stop_waiting()
                effects.append(refusal(seat, Reason.LEAVING, "this peer is leaving"))
        return effects

    def come_back(self) -> None:
        """Takes sessions again after `leave`."""
        self._leaving = False

    def sessions(self) -> int:
        """Sessions that hold a slot here."""
        return len(self._places)

    def active(self) -> int:
        """Sessions that are being answered."""
        return len({session for (session, _), seat in self._seats.items() if seat.active and seat.serves})

    def asker(self, session: bytes) -> str | None:
        """Who asks `session`; None for one that has no seat here."""
        places = self._places.get(session)
        return self._seats[session, places[0]].opening.origin if places else None

    def active_on(self, run: Run_) -> int:
        """Sessions that are being answered with units `run`."""
        return sum(seat.active and seat.serves for seat in self._seats.values() if seat.run == run)

    def same_answer(self, session: bytes, run: Run_, origin: str = "") -> tuple[bytes, int] | None:
        """The session with which the answer that moves to `session` is computed by units `run` (of asker `origin`, if
        named), and how many positions of it are.
        """
        seats = (seat for (_, units), seat in self._of_run.items() if units == run)
        return furthest(seats, session, origin)

    def brought(self, now: float, key: tuple[bytes, int], count: int) -> list[StageEffect]:
        """`count` positions of a seat that warms are cached, copied from others; those that follow come as steps."""
        seat = self._seats.get(key)
        if seat is None or not seat.held_back:
            return []
        seat.begin(count)
        self.copied += count
        if seat.opening.stage:
            return self._gap(now, seat) + self._feed(seat)
        return self._ask_upstream(now, seat) + self._feed(seat)

    def lag(self) -> int:
        """Positions that shadows here have still to compute."""
        return sum(seat.received - seat.computed for seat in self._seats.values() if not seat.serves)

    @property
    def log_bytes(self) -> int:
        """How many bytes the activation logs of all seats hold."""
        return sum(seat.log.bytes for seat in self._seats.values())

    def drop(self, run: Run_) -> list[StageEffect]:
        """Forgets every session of units `run`, which are about to be unloaded."""
        self._slots.pop(run, None)
        self.prefixes.forget(run)
        effects: list[StageEffect] = []
        for _, seat in sorted(self._seats.items()):
            if seat.run != run:
                continue
            if seat.active and seat.serves:
                text = "the plan moved these units to another peer"
                effects.append(refusal(seat, Reason.UNKNOWN_PLAN, text))
            effects += self._free(seat)
        return effects

    def lose(self, run: Run_, why: str) -> list[StageEffect]:
        """Forgets every session of units `run`, which cannot be computed any more: askers go on elsewhere."""
        self._slots.pop(run, None)
        self.prefixes.forget(run)
        effects: list[StageEffect] = []
        for _, seat in sorted(self._seats.items()):
            if seat.run == run:
                if seat.active and seat.serves:
                    effects.append(refusal(seat, Reason.LOST_NEIGHBOUR, why, seat.opening.stage))
                effects += self._free(seat)
        return effects

    def notes(self) -> list[Note]:
        """What happened to sessions here since this was last asked."""
        found, self._notes = self._notes, []
        return found

    # --- frames

    def open(self, now: float, sender: str, frame: Open) -> list[StageEffect]:
        """Takes a seat for the session and passes the OPEN on, or refuses to the asker."""
        frame, prefix = split(frame)
        serves = frame.role == Role.SERVE
        if self._over.has(frame):
            return []  # what ended it took a shorter way
        fault = self._fault(sender, frame)
        if fault is not None:
            return [refused_open(frame, *fault)] if serves else []
        try:
            sampling, steering, history = settings_of(frame)
        except BadSampling as error:
            return [refused_open(frame, Reason.BAD_STEP, f"sampling settings: {error}")] if serves else []
        run = self._plans[frame.plan][frame.stage][1]
        effects: list[StageEffect] = []
        seat = self._seats.get((frame.session, frame.stage))
        if seat is not None and seat.opening.origin != frame.origin:
            foreign = not_adopted(self._rules.author_of(frame.session), frame)
            if foreign is not None:
                return [refused_open(frame, *foreign)]
        if seat is not None and frame.turn <= seat.opening.turn:
            return []  # an older turn that was overtaken
        if seat is not None and seat.run != run:
            effects += self._free(seat)
            seat = None
        if seat is None and (other := self._of_run.get((frame.session, run))) is not None:
            effects += self._free(other)  # the place of these units in the route has changed
        waits = self.admitting.must_wait(now, frame, run)
        evicted = None if waits else self._make_room(now, run, frame) if seat is None else []
        if evicted is None:
            self.admitting.called_in_vain(frame)
            return [*effects, refused_full(frame, self._slots[run])] if serves else effects
        effects += evicted
        if seat is None:
            seat = Seat(frame, run, sampling, ActivationLog(self._log_session_bytes), now)
            self._take_seat(seat)
            effects += self.prefixes.begin(seat, prefix)
            seat.held_back = seat.warms and self._rules.bring(seat)
        else:
            self._turn(seat, frame, prefix)
        seat.opening, seat.sampling, seat.steering, seat.touched = frame, sampling, steering, now
        seat.active, seat.orphan, seat.unfit, seat.asked = True, False, 0, (-1, 0.0)
        seat.shift = 0, 0
        self.admitting.taken(now, seat)
        effects += self._continue_tail(seat, history) if seat.is_tail else []
        effects += [*passed_on(seat), *self._ask_upstream(now, seat)]
        return effects + self._feed(seat)

    def step(self, now: float, sender: str, frame: Step) -> list[StageEffect]:
        """Queues a step of an open session. Stale turns and positions that came before change nothing."""
        seat = self._seat(frame.session, frame.stage, frame.turn)
        if seat is None or not seat.active or sender != seat.upstream:
            return []  # only the neighbour that the route names may feed this stage
        ids, first = frame.tensor.dtype is Dtype.INT32, takes_ids(seat.opening)
        if ids != first and (ids or not seat.is_given(frame.position)):
            text = "a first stage takes int32 tokens, or float32 rows of a prompt; later ones float32 activations"
            return self._stop(seat, Reason.BAD_STEP, text)
        if ids and (said := ids_of(frame.tensor)) is None:
            text = "int32 tokens (count,), or (count, 2) with one shift of all their places, were expected"
            return self._stop(seat, Reason.BAD_STEP, text)
        if ids and said is not None and frame.position >= seat.shift[1]:
            seat.shift = said[1], frame.position
        if frame.count > MAX_STEP_POSITIONS:
            text = f"a step of at most {MAX_STEP_POSITIONS} positions was expected, got {frame.count}"
            return self._stop(seat, Reason.BAD_STEP, text)
        return self._queue(now, seat, frame)

    def token(self, now: float, sender: str, frame: Token) -> list[StageEffect]:
        """The tail's token starts the next decode step at the first stage."""
        seat = self._seat(frame.session, 0, frame.turn)
        if seat is None or not seat.active or not seat.serves or sender != seat.opening.route[-1]:
            return []
        if is_pinned(seat.opening):
            return []
        if frame.finish != Finish.MORE:
            seat.active = False
            return []
        ids = shifted_ids([frame.token], seat.shift[0])
        return self._queue(now, seat, Step(frame.session, frame.turn, 0, frame.position, 1, 1, ids))

    def feed(self, now: float, sender: str, frame: Feed) -> list[StageEffect]:
        """Sends again what the next stage, or one of its shadows, lacks."""
        seat = self._seat(frame.session, frame.stage - 1, frame.turn) if frame.stage else None
        if seat is None or not seat.serves:
            return []
        to_shadow = sender in seat.shadows(frame.stage) and sender != seat.downstream
        if not to_shadow and sender != seat.downstream:
            return []
        found = [] if frame.position >= seat.computed else seat.log.since(frame.position)
        if found is None:  # older than the log
            return [] if to_shadow else self._compute_again(now, seat, frame.position)
        effects: list[StageEffect] = []
        for position, tensor in found:
            self.replayed_bytes += len(tensor.data)
            step = step_of(seat, position, tensor.shape[0], tensor)
            effects.append(Spare(sender, step) if to_shadow else Send(sender, step))
        return effects

    def where(self, sender: str, frame: Where) -> list[StageEffect]:
        """Says how far a session has come, to whoever asks: a silent peer is a lost one."""
        seat = self._seat(frame.session, frame.stage, frame.turn)
        received, computed = (seat.received, seat.computed) if seat is not None else (0, 0)
        here = Here(frame.session, frame.turn, frame.stage, received, computed, self.steps_run)
        return [Send(sender, here)]

    def cancel(self, sender: str, frame: Cancel) -> list[StageEffect]:
        """The asker wants no more tokens; the cache stays for its next turn unless it says otherwise."""
        self._over.note(sender, frame.session, frame.turn)
        self.admitting.cancelled(sender, frame, self._at(frame.session))
        effects: list[StageEffect] = []
        for seat in self._at(frame.session):
            if sender != seat.opening.origin or frame.turn < seat.opening.turn:
                continue
            if not frame.keep:
                effects += self._free(seat)
            elif seat.serves:  # a shadow catches up at its leisure
                seat.active = False
                seat.stop_waiting()
        return effects

    def release(self, sender: str, frame: Release) -> list[StageEffect]:
        """The asker is done with the session, for good."""
        self._over.note(sender, frame.session, FOR_GOOD)
        self.admitting.line.leave(sender, frame.session.hex())
        effects: list[StageEffect] = []
        for seat in self._at(frame.session):
            if sender == seat.opening.origin:
                effects += self._free(seat)
        return effects

    # --- the runtime's answers

    def ran(self, now: float, result: Ran) -> list[StageEffect]:
        """Passes an activation on, or a token to the first stage and the asker."""
        seat = self._of_run.get((result.session, result.run))
        if seat is None or result.epoch != seat.epoch:
            return []
        seat.in_flight -= 1
        seat.touched = now
        self.admitting.ran(now, seat, result)
        seat.unfit = 0
        seat.computed = result.position + result.count
        self.steps_run += 1
        effects: list[StageEffect] = []
        if result.hidden is not None and (not seat.is_tail or is_pinned(seat.opening)):
            tensor = tensor_of(result.hidden)
            seat.log.append(result.position, tensor)
            bound_logs(self._seats.values(), self.log_bytes - self._log_total_bytes)
            if seat.active and seat.serves and seat.downstream is not None:
                step = step_of(seat, result.position, result.count, tensor)
                effects.append(Send(seat.downstream, step))
                effects += [Spare(peer, step) for peer in seat.shadows(seat.opening.stage + 1)]
        elif result.token is not None and seat.serves and seat.active:
            effects += self._sampled(seat, result.token, seat.computed)
        return [*effects, *handed_back(seat, result), *self.prefixes.computed(seat), *self._feed(seat)]

    def not_ran(self, now: float, result: NotRan) -> list[StageEffect]:
        """Asks for what the runtime lacks, or tells the asker why a step was refused."""
        seat = self._of_run.get((result.session, result.run))
        if seat is None or result.epoch != seat.epoch:
            return []
        seat.in_flight -= 1
        seat.unfit += 1
        if result.reason is Reason.MISSING_POSITION and seat.unfit <= MAX_UNFIT:
            return self._compute_again(now, seat, min(result.have, result.position))
        if not seat.serves:
            return self._free(seat)
        if not seat.active:
            return []
        have = seat.opening.stage if result.reason is Reason.LOST_NEIGHBOUR else result.have
        return self._stop(seat, result.reason, result.text, result.position, have)

    # --- the world around

    def peer_gone(self, now: float, peer: str) -> list[StageEffect]:
        """Keeps the sessions of an asker that is gone for another; tells askers whose answer needs the peer that is."""
        effects: list[StageEffect] = []
        for _, seat in sorted(self._seats.items()):
            if seat.opening.origin == peer:
                seat.active, seat.orphan, seat.touched = False, True, now
                seat.stop_waiting()
            elif seat.active and seat.serves and seat.leans_on(peer):
                seat.active = False
                seat.stop_waiting()
                place = seat.opening.route.index(peer)
                why = f"the connection to peer {peer} is gone"
                effects.append(refusal(seat, Reason.LOST_NEIGHBOUR, why, place))
        self._full.discard(peer)
        self.admitting.line.gone(peer)
        return effects

    def congestion(self, peer: str, full: bool) -> list[StageEffect]:
        """Whether the connection to `peer` has no room; prompt chunks towards it wait until it has."""
        if full:
            self._full.add(peer)
            return []
        self._full.discard(peer)
        effects: list[StageEffect] = []
        for _, seat in sorted(self._seats.items()):
            if seat.downstream == peer:
                effects += self._feed(seat)
        return effects

    def tick(self, now: float) -> list[StageEffect]:
        """Frees sessions whose lease ran out; asks again for what did not come."""
        effects: list[StageEffect] = []
        for _, seat in sorted(self._seats.items()):
            if now - seat.touched > (ORPHAN_S if seat.orphan else LEASE_S):
                effects += self._free(seat)
            elif seat.active and seat.waiting and seat.received == seat.submitted and not seat.in_flight:
                effects += self._gap(now, seat)
        return effects

    # --- opening

    def _fault(self, sender: str, frame: Open) -> tuple[Reason, str] | None:
        """Why this OPEN cannot be taken."""
        fault = misplaced(self.me, sender, frame) or wrong_ends(frame)
        if fault is not None:
            return fault
        if self._leaving:
            return Reason.LEAVING, "this peer is leaving"
        if (
            frame.role == Role.SERVE
            and frame.turn == frame.answer
            and (why := self._rules.may_ask(frame.origin))
        ):
            return Reason.BAD_STEP, why
        return unserved(self._plans.get(frame.plan), self._slots.keys(), frame)

    def _turn(self, seat: Seat, frame: Open, prefix: Prefix | None) -> None:
        """Another turn on a seat: what is cached stays as far as it belongs to the same tokens."""
        before = seat.opening
        if frame.answer != before.answer:
            kept = min(seat.computed, frame.keep, frame.start) if frame.before == before.answer else 0
            seat.stop_waiting()
            seat.sampled.clear()
            seat.picks.clear()
            self.prefixes.again(seat, prefix)
            seat.rewind(kept, self._next_epoch())
        elif seat.serves is False and frame.role == Role.SERVE:
            self.taken_over += 1
            self._notes.append(Note("taken over", *seat.key))

    def _continue_tail(self, seat: Seat, history: tuple[int, ...]) -> list[StageEffect]:
        """The last stage: sends again what it sampled beyond the tokens that the asker knows."""
        opening = seat.opening
        known = opening.prompt_tokens
        seat.history, seat.generated = list(history), opening.generated
        if not seat.serves:
            return []
        effects: list[StageEffect] = []
        position = known
        while (found := seat.sampled.get(position)) is not None:
            token, finish = found
            seat.generated += 1
            if needs_history(seat.sampling):
                seat.history.append(token)
            effects += self._tell(seat, position, token, finish)
            position += 1
        if position == known and seat.submitted >= known:  # computed without the head, or on its way so
            seat.rewind(known - 1, self._next_epoch())
        return effects

    def _ask_upstream(self, now: float, seat: Seat) -> list[StageEffect]:
        """FEED, when what will come unasked leaves a gap, or when an answer goes on and nobody knows what was lost."""
        opening = seat.opening
        resumes = opening.turn != opening.answer
        if seat.received < opening.start or (resumes and opening.stage > 0):
            return self._gap(now, seat)
        return []

    def _gap(self, now: float, seat: Seat) -> list[StageEffect]:
        position, asked_at = seat.asked
        if seat.held_back:
            return []
        if position == seat.received and now - asked_at < FEED_AGAIN_S:
            return []
        seat.asked = (seat.received, now)
        opening = seat.opening
        frame = Feed(opening.session, opening.turn, opening.stage, seat.received)
        return [Send(seat.upstream, frame)]

    # --- inner moves

    def _seat(self, session: bytes, stage: int, turn: int) -> Seat | None:
        seat = self._seats.get((session, stage))
        return seat if seat is not None and seat.opening.turn == turn else None

    def _at(self, session: bytes) -> list[Seat]:
        """Its seats."""
        return [self._seats[session, place] for place in self._places.get(session, ())]

    def seat_at(self, session: bytes, stage: int) -> Seat | None:
        """Returns the seat of a session at a stage, also one whose session is over, or None."""
        return self._seats.get((session, stage)) or self._late.get((session, stage))

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def _queue(self, now: float, seat: Seat, step: Step) -> list[StageEffect]:
        if not seat.take(step):
            return []
        if len(seat.waiting) > MAX_PENDING_STEPS or seat.waiting_bytes > MAX_PENDING_BYTES:
            if seat.serves:
                return self._stop(seat, Reason.BAD_STEP, "too many steps wait")
            return self._free(seat)  # it asks from the beginning when it is needed
        seat.touched = now
        if step.position > seat.received and not seat.in_flight:
            return self._gap(now, seat)
        return self._feed(seat)

    def _feed(self, seat: Seat) -> list[StageEffect]:
        effects: list[StageEffect] = []
        while (
            seat.active
            and not seat.held_back
            and seat.in_flight < AHEAD_STEPS
            and (seat.serves or not self._keep_only)
        ):
            if seat.serves and seat.downstream is not None and seat.downstream in self._full:
                break
            if seat.is_tail and seat.serves and seat.in_flight and needs_history(seat.sampling):
                break  # the token that comes next belongs to its history
            frame = seat.next_step()
            if frame is None:
                break
            seat.in_flight += 1
            said = ids_of(frame.tensor) if frame.tensor.dtype is Dtype.INT32 else None
            stop = frame.position + frame.count
            last = stop >= seat.opening.prompt_tokens
            finish = None
            if seat.is_tail and last and seat.serves and not is_pinned(seat.opening):
                finish = pick_of(seat, stop)
            effects.append(
                RunStep(
                    seat.run,
                    frame.session,
                    seat.epoch,
                    frame.position,
                    None if said is None else said[0],
                    frame.tensor.array() if said is None else None,
                    finish is not None,
                    finish,
                    seat.is_given(frame.position),
                    most_rows(seat, self._seats.values()),
                    not seat.serves or (seat.warms and not seat.near),
                    0 if said is None else said[1],
                )
            )
        return effects

    def _compute_again(self, now: float, seat: Seat, position: int) -> list[StageEffect]:
        """This stage no longer has what it made of `position`: asks for the inputs from there on."""
        seat.rewind(position, self._next_epoch())
        return self._gap(now, seat) + self._feed(seat)

    def _sampled(self, seat: Seat, token: int, position: int) -> list[StageEffect]:
        opening = seat.opening
        if position < opening.prompt_tokens:
            return []  # a turn that began meanwhile knows it
        seat.generated += 1
        if needs_history(seat.sampling):
            seat.history.append(token)
        self.tokens_sampled += 1
        finish = finish_of(seat, token)
        seat.sampled[position] = (token, finish)
        return self._tell(seat, position, token, finish)

    def _tell(self, seat: Seat, position: int, token: int, finish: Finish) -> list[StageEffect]:
        opening = seat.opening
        if finish is not Finish.MORE:
            seat.active = False
        return [*told(seat, Token(opening.session, opening.turn, position, token, int(finish)))]

    def _make_room(self, now: float, run: Run_, frame: Open) -> list[StageEffect] | None:
        taken = [seat for seat in self._seats.values() if seat.run == run]
        if has_room(taken, self._slots[run], frame):
            return []
        idle = idlest(taken, now, frame)
        return self._free(idle) if idle is not None else None

    def _take_seat(self, seat: Seat) -> None:
        session, stage = seat.key
        seat.epoch = self._next_epoch()
        self._seats[seat.key] = seat
        self._of_run[session, seat.run] = seat
        self._places[session] = tuple(sorted({*self._places.get(session, ()), stage}))
        self._notes.append(Note("opened", session, stage))

    def _free(self, seat: Seat) -> list[StageEffect]:
        session, stage = seat.key
        self._late.keep(self._seats.pop(seat.key))
        del self._of_run[session, seat.run]
        left = tuple(place for place in self._places[session] if place != stage)
        if left:
            self._places[session] = left
        else:
            del self._places[session]
        seat.active = False
        self._notes.append(Note("closed", session, stage))
        return [FreeSlot(seat.run, session)]

    def _stop(
        self, seat: Seat, reason: Reason, text: str, position: int = 0, have: int = 0
    ) -> list[StageEffect]:
        if not seat.serves:
            return self._free(seat)
        seat.active = False
        seat.stop_waiting()
        return [refusal(seat, reason, text, have, position)]
