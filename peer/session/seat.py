"""One session at one place of its route: what came, what was computed, what was handed on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from peer.session.activation_log import ActivationLog, rows
from peer.session.evidence import Evidence
from peer.session.prefix import Prefix
from peer.session.sampling import Sampling
from peer.session.steering import STRAIGHT, Pick, Steering
from peer.wire.generated.frames import Finish, Open, Role, Step

Run_ = tuple[int, int]  # units [first, stop)
FEED_AGAIN_S = 1.0  # a gap that was not filled is asked for again after this
LEFT_S = 90.0  # an asker gives up on an answer long before: its slot may go to another
PAUSE_S = 1.0  # between two tokens of an answer that is held to a grammar: each is asked for by itself
ID_BYTES = 4  # of a session's id count how often its answers moved (peer.session.migration)
MAX_LATE = 8  # seats that are over and can still be checked
LATE_BYTES = 8 * 1024 * 1024  # of their activations
MAX_OVER = 4096  # sessions of which is remembered which turns are over
FOR_GOOD = 2**63  # every turn


@dataclass(slots=True)
class Seat:
    """Inputs of `received` positions came, `submitted` went to the runtime, `computed` came back: counts from position
    0 on, without holes.

    Steps of an `epoch` that is over are still running in the runtime, and their results are dropped.
    """

    opening: Open
    run: Run_
    sampling: Sampling
    log: ActivationLog
    touched: float
    ran_at: float = 0.0  # when its last step was done, or its turn began
    active: bool = True
    held_back: bool = False  # until its cache is copied
    near: bool = False  # it was: little is left to compute, which others do not wait for long
    orphan: bool = False  # its asker is gone; another peer may adopt the session
    received: int = 0
    submitted: int = 0
    computed: int = 0
    epoch: int = 0
    in_flight: int = 0
    waiting: dict[int, Step] = field(default_factory=dict)  # by position
    waiting_bytes: int = 0
    asked: tuple[int, float] = (-1, 0.0)  # position and time of the last FEED
    sampled: dict[int, tuple[int, Finish]] = field(default_factory=dict)  # by position, of this answer
    history: list[int] = field(default_factory=list)  # for penalties
    generated: int = 0  # tokens sampled in this answer
    steering: Steering = STRAIGHT
    picks: dict[int, Pick] = field(default_factory=dict)  # by position, of an answer that is steered
    evidence: Evidence = field(default_factory=Evidence)  # of its inputs, for those who check
    matches: dict[str, int] = field(default_factory=dict)  # by peer: how often it asked whether marks match
    prefix: Prefix | None = (
        None  # the front of its prompt, as the next stage hears of it (peer.session.prefix_cache)
    )
    front_kept: bool = False  # or given up
    unfit: int = 0  # steps that the runtime could not place, in a row
    shift: tuple[int, int] = (0, 0)  # of places of what is sampled, and the position of the ids that said it

    @property
    def serves(self) -> bool:
        """Whether this seat computes and passes on, and does not shadow."""
        return self.opening.role == Role.SERVE

    @property
    def warms(self) -> bool:
        """Whether it computes ahead for an answer that will move here: nobody waits for it yet."""
        return self.opening.max_tokens == 0

    @property
    def key(self) -> tuple[bytes, int]:
        """What seats are kept by: session and stage."""
        return self.opening.session, self.opening.stage

    @property
    def upstream(self) -> str:
        """Who may send steps: the previous stage, or the asker."""
        stage = self.opening.stage
        return self.opening.route[stage - 1] if stage > 0 else self.opening.origin

    @property
    def is_tail(self) -> bool:
        """Whether this is the last stage of the route."""
        return self.opening.stage == len(self.opening.route) - 1

    @property
    def downstream(self) -> str | None:
        """The peer of the next stage; None at the last one."""
        return None if self.is_tail else self.opening.route[self.opening.stage + 1]

    def shadows(self, stage: int) -> list[str]:
        """Who shadows place `stage` of this session."""
        opening = self.opening
        if self.warms:
            return []  # it names who computes the answer now
        pairs = zip(opening.shadow_stages, opening.shadows, strict=False)
        return [peer for place, peer in pairs if place == stage]

    def leans_on(self, peer: str) -> bool:
        """Whether no token comes without `peer`: a neighbour, or the other end of the way a token takes back."""
        route = self.opening.route
        if self.opening.stage == 0 or self.is_tail:
            return peer in (self.downstream, self.upstream, route[0], route[-1])
        return peer in (self.downstream, self.upstream)

    def is_given(self, position: int) -> bool:
        """Whether `position` was given, not sampled: its step is computed as a prompt is."""
        stop, given = 0, True
        for count in self.opening.spans:
            stop += count
            if position < stop:
                return given
            given = not given
        return False

    def take(self, step: Step) -> bool:
        """Keeps the input of a step until its turn; False when nothing in it is new."""
        if step.position + step.count <= self.received:
            return False
        if step.position < self.received:
            step = part(step, self.received)
        known = self.waiting.get(step.position)
        if known is not None and known.count >= step.count:
            return False
        self.waiting[step.position] = step
        self.waiting_bytes += len(step.tensor.data) - (len(known.tensor.data) if known is not None else 0)
        self._advance()
        return True

    def next_step(self) -> Step | None:
        """Takes the step that comes next out of those that wait."""
        step = self.waiting.pop(self.submitted, None)
        if step is None:
            return None
        self.waiting_bytes -= len(step.tensor.data)
        self.evidence.note(step.position, step.tensor)
        self.submitted += step.count
        if step.count > 1:  # it may have come over others that lie inside it
            for position in [at for at in self.waiting if at < self.submitted]:
                self.waiting_bytes -= len(self.waiting.pop(position).tensor.data)
        return step

    def rewind(self, position: int, epoch: int) -> None:
        """The next step is that of `position`; what is under way counts no more."""
        self.epoch = epoch
        self.in_flight = 0
        self.submitted = self.received = position
        self.computed = min(self.computed, position)
        self.log.cut(position)
        self.asked = (-1, 0.0)
        for at in [at for at in self.waiting if at < position]:
            self.waiting_bytes -= len(self.waiting.pop(at).tensor.data)
        self._advance()

    def begin(self, count: int) -> None:
        """Goes on behind `count` positions whose cache was copied."""
        self.held_back = False
        if not count:
            return
        self.computed, self.near = count, True
        self.rewind(count, self.epoch)
        self.log.clear(count)

    def stop_waiting(self) -> None:
        """Drops the inputs that wait."""
        self.waiting.clear()
        self.waiting_bytes = 0
        self.received = self.submitted

    def _advance(self) -> None:
        while (step := self.waiting.get(self.received)) is not None:
            self.received += step.count


class Late:
    """The seats that were freed last: an answer may be checked when its session is over."""

    def __init__(self) -> None:
        self._seats: dict[tuple[bytes, int], Seat] = {}

    def keep(self, seat: Seat) -> None:
        """Keeps a seat that computed something, and lets the oldest go."""
        if not seat.computed:
            return
        seat.stop_waiting()  # what came and was not computed says nothing of what was
        while seat.log.bytes > LATE_BYTES:
            seat.log.drop_oldest()
        self._seats.pop(seat.key, None)
        self._seats[seat.key] = seat
        while len(self._seats) > MAX_LATE or sum(s.log.bytes for s in self._seats.values()) > LATE_BYTES:
            del self._seats[next(iter(self._seats))]

    def get(self, key: tuple[bytes, int]) -> Seat | None:
        """One of them."""
        return self._seats.get(key)


class Over:
    """Turns that have ended: an OPEN of one may still be on its way along the route, or wait at a frozen peer."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, bytes], int] = {}  # (asker, session) -> turns up to this one

    def note(self, asker: str, session: bytes, turn: int) -> None:
        """`asker` says that turns up to `turn` are over."""
        key = (asker, session)
        self._turns[key] = max(turn, self._turns.pop(key, 0))
        if len(self._turns) > MAX_OVER:
            del self._turns[next(iter(self._turns))]

    def has(self, frame: Open) -> bool:
        """Whether this OPEN comes too late."""
        return frame.turn <= self._turns.get((frame.origin, frame.session), 0)


def has_room(taken: Collection[Seat], slots: int, frame: Open) -> bool:
    """Whether units of which `taken` are the seats have one more for `frame`, of `slots` for their sessions.

    An answer that moves has a seat on both of its routes: as many again may warm.
    """
    warms = frame.max_tokens == 0
    return sum(not seat.warms or warms for seat in taken) < slots * (2 if warms else 1)


def pauses(seat: Seat, now: float) -> bool:
    """Whether its asker is about to ask for the next token of an answer that is held to a grammar."""
    return seat.serves and bool(seat.steering.allowed) and not seat.orphan and now - seat.touched < PAUSE_S


def bound_logs(seats: Collection[Seat], over: int) -> None:
    """`over` bytes less: the oldest activations of the session that was idle for longest go first."""
    while over > 0:
        seat = min((s for s in seats if s.log.bytes), key=lambda s: (s.touched, s.key))
        before = seat.log.bytes
        seat.log.drop_oldest()
        over -= before - seat.log.bytes


def idlest(taken: Iterable[Seat], now: float, frame: Open) -> Seat | None:
    """The seat that goes first when `frame` needs one; None when all of them are in use."""
    serves = frame.role == Role.SERVE
    idle = (
        seat
        for seat in taken
        if not (seat.active or pauses(seat, now))
        or (serves and not seat.serves)
        or (now - seat.touched > LEFT_S and not seat.in_flight)
    )
    return min(idle, key=lambda seat: (not seat.orphan, seat.serves, seat.touched, seat.key), default=None)


def most_rows(seat: Seat, seats: Iterable[Seat]) -> int:
    """Of a decode batch of `seat`, so that a first stage sends off a group for each stage; 0: any number."""
    stages = len(seat.opening.route)
    if seat.opening.stage or stages == 1:
        return 0  # later stages take what comes together
    active = (other for other in seats if other.run == seat.run and other.active)
    return -(-sum(other.serves and not other.warms for other in active) // stages)


def furthest(seats: Iterable[Seat], session: bytes, origin: str) -> tuple[bytes, int] | None:
    """The session that the answer which moves to `session` uses now, and how many positions of it are computed.

    `origin` "": whoever asks it.
    """
    found = [
        (seat.computed, other)
        for seat in seats
        if (other := seat.key[0]) != session and other[:-ID_BYTES] == session[:-ID_BYTES]
        if not seat.warms and origin in ("", seat.opening.origin)
    ]
    computed, other = max(found, default=(0, b""))
    return (other, computed) if other else None


def part(step: Step, position: int) -> Step:
    """The part of `step` from `position` on."""
    skip = position - step.position
    tensor = rows(step.tensor, skip, step.count)
    return Step(step.session, step.turn, step.stage, position, step.count - skip, step.last, tensor)
