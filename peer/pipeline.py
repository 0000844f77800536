"""One peer's stages: what to run, what to pass on, what to refuse, for every session that crosses this peer.

Pure: frames and runtime results in, effects out. A session is accepted by OPEN, which travels along the route ahead
of the steps on the same ordered channel; a stage takes steps only from the neighbour that its route names. At most
`AHEAD_STEPS` steps of a session wait in the runtime, and none while the way to the next stage is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from peer import frames
from peer.frames import Cancel, Finish, Open, Refuse, Release, Token
from peer.sampling import BadSampling, Sampling, sample
from peer.session import Reason, Send, needs_history
from peer.tensors import Dtype, tensor_of

AHEAD_STEPS = 2  # keeps the worker busy while the loop handles the last result
LEASE_S = 600.0  # a session that nobody continues is freed after this
LEFT_S = 90.0  # an asker gives up on an answer long before: its slot may go to another
MAX_STEP_POSITIONS = 256  # eight chunks; more would hold up the sessions beside it
MAX_PENDING_STEPS = 65536  # per session: an answer of that length can be replayed, a token to a step
MAX_PENDING_BYTES = 256 * 1024 * 1024  # per session: a whole prompt that waits for a slow stage

Run_ = tuple[int, int]  # units [first, stop)


@dataclass(frozen=True, slots=True)
class RunStep:
    """Submit to the runtime of units `run`. `finish` turns the head's logits into a token on the worker."""

    run: Run_
    session: bytes
    turn: int
    position: int
    tokens: npt.NDArray[np.int64] | None  # (T,) for the run that begins with the embedding
    hidden: npt.NDArray[np.float32] | None  # (T, hidden) otherwise
    last: bool
    finish: Callable[[npt.NDArray[np.float32]], int] | None
    prompt: bool  # the tokens were given, not sampled
    most_rows: int  # of a decode batch, so that the first stage sends off as many groups as there are stages


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The runtime of `run` forgets `session`."""

    run: Run_
    session: bytes


StageEffect = Send | RunStep | FreeSlot


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished step, as the runtime reports it. `hidden` to pass on, or the sampled `token` at the tail."""

    session: bytes
    turn: int
    position: int
    count: int
    hidden: npt.NDArray[np.float32] | None
    token: int | None


@dataclass(frozen=True, slots=True)
class NotRan:
    """A step that the runtime refused. `have`: positions that its cache holds."""

    session: bytes
    turn: int
    position: int
    have: int
    reason: Reason
    text: str


@dataclass(slots=True)
class _Seat:
    """One session on one stage of this peer."""

    opening: Open
    run: Run_
    sampling: Sampling
    history: list[int]
    generated: int
    active: bool
    touched: float
    in_flight: int = 0
    pending: deque[frames.Step] = field(default_factory=deque)
    pending_bytes: int = 0

    @property
    def upstream(self) -> str:
        """Who may send steps: the previous stage, or the asker."""
        stage = self.opening.stage
        return self.opening.route[stage - 1] if stage > 0 else self.opening.origin

    @property
    def is_tail(self) -> bool:
        return self.opening.stage == len(self.opening.route) - 1

    @property
    def downstream(self) -> str | None:
        return None if self.is_tail else self.opening.route[self.opening.stage + 1]

    def leans_on(self, peer: str) -> bool:
        """Whether no token comes without `peer`: a neighbour, or the other end of the way a token takes back."""
        route = self.opening.route
        if self.opening.stage == 0 or self.is_tail:
            return peer in (self.downstream, self.upstream, route[0], route[-1])
        return peer in (self.downstream, self.upstream)


class StageCore:
    """All sessions on this peer's stages. One peer serves at most one stage of a route."""

    def __init__(self, me: str) -> None:
        self.me = me
        self._seats: dict[bytes, _Seat] = {}
        self._plans: dict[int, tuple[tuple[str, Run_], ...]] = {}  # version -> (primary, run) of each stage
        self._slots: dict[Run_, int] = {}
        self._leaving = False
        self._full: set[str] = set()  # peers whose connection has no room
        self.tokens_sampled = 0
        self.steps_run = 0

    # --- what this peer serves

    def serve(self, plans: Mapping[int, tuple[tuple[str, Run_], ...]], slots: Mapping[Run_, int]) -> None:
        """The plans whose sessions are accepted and the runs that are loaded, with their slots."""
        self._plans, self._slots = dict(plans), dict(slots)

    def leave(self) -> list[StageEffect]:
        """Refuses what comes and tells every asker, so that answers can go on elsewhere."""
        self._leaving = True
        effects: list[StageEffect] = []
        for session, seat in sorted(self._seats.items()):
            if seat.active:
                seat.active = False
                seat.pending.clear()
                effects.append(self._refusal(session, seat, 0, 0, Reason.LEAVING, "this peer is leaving"))
        return effects

    def come_back(self) -> None:
        """Takes sessions again after `leave`."""
        self._leaving = False

    def sessions(self) -> int:
        """Sessions that hold a slot here."""
        return len(self._seats)

    def active(self) -> int:
        """Sessions that are being answered."""
        return sum(seat.active for seat in self._seats.values())

    def active_on(self, run: Run_) -> int:
        """Sessions that are being answered with units `run`."""
        return sum(seat.active for seat in self._seats.values() if seat.run == run)

    def drop(self, run: Run_) -> list[StageEffect]:
        """Forgets every session of units `run`, which are about to be unloaded."""
        self._slots.pop(run, None)
        effects: list[StageEffect] = []
        for session in sorted(key for key, seat in self._seats.items() if seat.run == run):
            seat = self._seats[session]
            if seat.active:
                text = "the plan moved these units to another peer"
                effects.append(self._refusal(session, seat, 0, 0, Reason.UNKNOWN_PLAN, text))
            effects += self._free(session)
        return effects

    # --- frames

    def open(self, now: float, sender: str, frame: Open) -> list[StageEffect]:
        """Takes a seat for the session and passes the OPEN on, or refuses to the asker."""
        route = frame.route
        if not route or frame.stage >= len(route) or route[frame.stage] != self.me:
            return [self._no(frame, Reason.BAD_STEP, "this peer is not at that place of the route")]
        expected = route[frame.stage - 1] if frame.stage else frame.origin
        if sender != expected:
            return [
                self._no(frame, Reason.BAD_STEP, f"OPEN for stage {frame.stage} must come from {expected}")
            ]
        if self._leaving:
            return [self._no(frame, Reason.LEAVING, "this peer is leaving")]
        plan = self._plans.get(frame.plan)
        if plan is None or len(plan) != len(route) or tuple(peer for peer, _ in plan) != route:
            return [
                self._no(frame, Reason.UNKNOWN_PLAN, f"plan {frame.plan} with that route is not served here")
            ]
        run = plan[frame.stage][1]
        if run not in self._slots:
            return [self._no(frame, Reason.UNKNOWN_PLAN, f"units {run[0]}-{run[1] - 1} are not loaded here")]
        try:
            sampling = Sampling.from_wire(list(frame.sampling))
        except BadSampling as error:
            return [self._no(frame, Reason.BAD_STEP, f"sampling settings: {error}")]
        effects: list[StageEffect] = []
        seat = self._seats.get(frame.session)
        if seat is not None and seat.opening.origin != frame.origin:
            return [self._no(frame, Reason.BAD_STEP, "that session belongs to another asker")]
        if seat is not None and frame.turn <= seat.opening.turn:
            return []  # an older turn that was overtaken
        if seat is not None and seat.run != run:
            effects += self._free(frame.session)
            seat = None
        if seat is None:
            evicted = self._make_room(now, run, frame.session)
            if evicted is None:
                text = f"all {self._slots[run]} sessions of this mesh are in use; try again when one has finished"
                return [*effects, self._no(frame, Reason.NO_SLOT, text)]
            effects += evicted
        self._seats[frame.session] = _Seat(
            frame, run, sampling, list(frame.history), frame.generated, True, now
        )
        if (downstream := self._seats[frame.session].downstream) is not None:
            effects.append(Send(downstream, replace(frame, stage=frame.stage + 1)))
        return effects

    def step(self, now: float, sender: str, frame: frames.Step) -> list[StageEffect]:
        """Queues a step of an open session. Stale turns change nothing."""
        seat = self._seats.get(frame.session)
        if seat is None or frame.turn != seat.opening.turn or not seat.active:
            return []
        if sender != seat.upstream:
            return []  # only the neighbour that the route names may feed this stage
        if (frame.tensor.dtype is Dtype.INT32) != (seat.opening.stage == 0):
            return self._stop(
                seat, Reason.BAD_STEP, "a first stage takes int32 tokens, later ones float32 activations"
            )
        if frame.count > MAX_STEP_POSITIONS:
            text = f"a step of at most {MAX_STEP_POSITIONS} positions was expected, got {frame.count}"
            return self._stop(seat, Reason.BAD_STEP, text)
        return self._queue(now, seat, frame)

    def token(self, now: float, sender: str, frame: Token) -> list[StageEffect]:
        """The tail's token starts the next decode step at the first stage."""
        seat = self._seats.get(frame.session)
        if seat is None or frame.turn != seat.opening.turn or not seat.active or seat.opening.stage != 0:
            return []
        if sender != seat.opening.route[-1] or frame.finish != Finish.MORE:
            if sender == seat.opening.route[-1]:
                seat.active = False
            return []
        ids = tensor_of(np.array([frame.token], dtype=np.int32))
        opening = seat.opening
        step = frames.Step(opening.session, opening.turn, opening.plan, frame.position, 1, 1, ids)
        return self._queue(now, seat, step)

    def cancel(self, sender: str, frame: Cancel) -> list[StageEffect]:
        """The asker wants no more tokens; the cache stays for its next turn unless it says otherwise."""
        seat = self._seats.get(frame.session)
        if seat is None or sender != seat.opening.origin or frame.turn < seat.opening.turn:
            return []
        seat.active = False
        seat.pending.clear()
        return [] if frame.keep else self._free(frame.session)

    def release(self, sender: str, frame: Release) -> list[StageEffect]:
        """The asker is done with the session."""
        seat = self._seats.get(frame.session)
        return self._free(frame.session) if seat is not None and sender == seat.opening.origin else []

    # --- the runtime's answers

    def ran(self, now: float, result: Ran) -> list[StageEffect]:
        """Passes an activation on, or a token to the first stage and the asker."""
        seat = self._seats.get(result.session)
        if seat is None or result.turn != seat.opening.turn:
            return []
        seat.in_flight -= 1
        seat.touched = now
        self.steps_run += 1
        if not seat.active:
            return []
        opening = seat.opening
        effects: list[StageEffect] = []
        next_position = result.position + result.count
        if not seat.is_tail and result.hidden is not None and seat.downstream is not None:
            last = int(next_position >= opening.prompt_tokens)
            effects.append(
                Send(
                    seat.downstream,
                    frames.Step(
                        opening.session,
                        opening.turn,
                        opening.plan,
                        result.position,
                        result.count,
                        last,
                        tensor_of(result.hidden),
                    ),
                )
            )
        elif result.token is not None:
            effects += self._sampled(seat, result.token, next_position)
        return effects + self._feed(seat)

    def not_ran(self, result: NotRan) -> list[StageEffect]:
        """Tells the asker why a step was refused."""
        seat = self._seats.get(result.session)
        if seat is None or result.turn != seat.opening.turn:
            return []
        seat.in_flight -= 1
        if not seat.active:
            return []
        seat.active = False
        seat.pending.clear()
        return [self._refusal(result.session, seat, result.position, result.have, result.reason, result.text)]

    # --- the world around

    def peer_gone(self, peer: str) -> list[StageEffect]:
        """Frees the sessions of an asker that is gone; tells askers whose answer needs the peer that is."""
        effects: list[StageEffect] = []
        for session, seat in sorted(self._seats.items()):
            if seat.opening.origin == peer:
                effects += self._free(session)
            elif seat.active and seat.leans_on(peer):
                seat.active = False
                seat.pending.clear()
                text = f"the connection to peer {peer} is gone"
                effects.append(self._refusal(session, seat, 0, 0, Reason.LOST_NEIGHBOUR, text))
        self._full.discard(peer)
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
        """Frees sessions whose lease ran out."""
        effects: list[StageEffect] = []
        for session, seat in sorted(self._seats.items()):
            if now - seat.touched > LEASE_S:
                effects += self._free(session)
        return effects

    # --- inner moves

    def _queue(self, now: float, seat: _Seat, step: frames.Step) -> list[StageEffect]:
        seat.pending_bytes += len(step.tensor.data)
        if len(seat.pending) >= MAX_PENDING_STEPS or seat.pending_bytes > MAX_PENDING_BYTES:
            return self._stop(seat, Reason.BAD_STEP, "too many steps wait")
        seat.touched = now
        seat.pending.append(step)
        return self._feed(seat)

    def _feed(self, seat: _Seat) -> list[StageEffect]:
        effects: list[StageEffect] = []
        while seat.active and seat.pending and seat.in_flight < AHEAD_STEPS:
            if seat.downstream is not None and seat.downstream in self._full:
                break
            frame = seat.pending.popleft()
            seat.pending_bytes -= len(frame.tensor.data)
            seat.in_flight += 1
            last = bool(frame.last)
            finish = None
            if seat.is_tail and last:
                position = frame.position + frame.count
                finish = partial(_pick, seat.sampling, position, tuple(seat.history), seat.generated)
            array = frame.tensor.array()
            tokens = array.astype(np.int64) if seat.opening.stage == 0 else None
            hidden = None if seat.opening.stage == 0 else array
            effects.append(
                RunStep(
                    seat.run,
                    frame.session,
                    frame.turn,
                    frame.position,
                    tokens,
                    hidden,
                    last,
                    finish,
                    frame.position < seat.opening.prompt_tokens - seat.opening.generated,
                    self._most_rows(seat),
                )
            )
        return effects

    def _most_rows(self, seat: _Seat) -> int:
        stages = len(seat.opening.route)
        if seat.opening.stage or stages == 1:
            return 0  # later stages take what comes together
        return -(-self.active_on(seat.run) // stages)

    def _sampled(self, seat: _Seat, token: int, position: int) -> list[StageEffect]:
        opening = seat.opening
        seat.generated += 1
        if needs_history(seat.sampling):
            seat.history.append(token)
        self.tokens_sampled += 1
        answered = seat.generated - opening.generated
        finish = Finish.MORE
        if token in opening.end_tokens:
            finish = Finish.END_TOKEN
        elif answered >= opening.max_tokens:
            finish = Finish.LENGTH
        if finish is not Finish.MORE:
            seat.active = False
        frame = Token(opening.session, opening.turn, position, token, int(finish))
        return [Send(peer, frame) for peer in dict.fromkeys((opening.route[0], opening.origin))]

    def _make_room(self, now: float, run: Run_, session: bytes) -> list[StageEffect] | None:
        taken = [
            (seat.touched, key) for key, seat in self._seats.items() if seat.run == run and key != session
        ]
        if len(taken) < self._slots[run]:
            return []
        idle = sorted(
            (touched, key)
            for touched, key in taken
            if not self._seats[key].active or (now - touched > LEFT_S and not self._seats[key].in_flight)
        )
        return self._free(idle[0][1]) if idle else None

    def _free(self, session: bytes) -> list[StageEffect]:
        seat = self._seats.pop(session)
        return [FreeSlot(seat.run, session)]

    def _stop(self, seat: _Seat, reason: Reason, text: str) -> list[StageEffect]:
        seat.active = False
        seat.pending.clear()
        return [self._refusal(seat.opening.session, seat, 0, 0, reason, text)]

    def _refusal(
        self, session: bytes, seat: _Seat, position: int, have: int, reason: Reason, text: str
    ) -> Send:
        opening = seat.opening
        frame = Refuse(session, opening.turn, opening.stage, position, have, int(reason), text)
        return Send(opening.origin, frame)

    def _no(self, frame: Open, reason: Reason, text: str) -> Send:
        return Send(frame.origin, Refuse(frame.session, frame.turn, frame.stage, 0, 0, int(reason), text))


def _pick(
    sampling: Sampling,
    position: int,
    history: tuple[int, ...],
    generated: int,
    logits: npt.NDArray[np.float32],
) -> int:
    """The token for `position`; of `history`, the last `generated` were sampled in this answer."""
    answer = history[-generated:] if history and generated else ()
    return sample(logits, sampling, position, history, answer)
