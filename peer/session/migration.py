"""Decides how a running answer moves to the route of another plan, at a token and without a pause. Pure.

A second session computes on the new route what was said so far (it *warms*), while the first goes on. When it is as
far, it samples as well (they *race*); with its first token that is abreast, the answer is its, and the first session
is released. Until then, whatever goes wrong on the new route ends the second session and nothing else:

    warming ──computed all but the last tokens──▶ racing ──its token is abreast──▶ taken
       └──────────── refused, lost, too late ────────┴──▶ given up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, assert_never

from peer.session.effects import OriginEffect, Send
from peer.session.routes import Route
from peer.session.seat import ID_BYTES
from peer.wire.generated.frames import Here, Refuse, Release, Step, Token, Where

WARM_WITHIN_S: Final = 120.0  # a route that needs longer is given up; the old one still serves then
RACE_WITHIN_S: Final = 5.0  # from being asked for a token to a token
LOOK_S: Final = 0.1  # between two questions how far it is
NEAR_TOKENS: Final = (
    4  # as many may be lacking when it is asked to sample: they are computed one behind the other
)
ABREAST_TOKENS: Final = 1  # its token may be so many behind the newest one
MAX_PUSHES: Final = (
    2  # times that it is given what it lacks when it races too far behind; then the first one stops
)
LONG_S: Final = 2.0  # after which more may be lacking: a busy machine lets it come no nearer
FAR_TOKENS: Final = 24
MAX_TRIES: Final = 3  # of one route
TRY_AGAIN_S: Final = 2.0  # after the first try that failed; longer after the second
NO_TOKENS: Final = 0  # `max_tokens` of an OPEN that only warms
LEAST_TOKENS: Final = 4  # of an answer: for fewer nothing moves


class MovePhase(Enum):
    """Where a move is: the new stages catch up, or both sides race for the next token."""

    WARMING = "warming"
    RACING = "racing"


class Verdict(Enum):
    """What follows from what was heard of the second session."""

    NOTHING = "nothing"
    RACE = "race"  # it is to sample from the newest token on
    TAKE = "take"  # the answer is its
    JUMP = "jump"  # the answer is its, and waits for what it lacks
    GIVE_UP = "give up"


def next_id(session: bytes) -> bytes:
    """The id of the session that goes on where `session` was: its last bytes count."""
    head, count = session[:-ID_BYTES], int.from_bytes(session[-ID_BYTES:], "big")
    return head + ((count + 1) % (1 << 8 * ID_BYTES)).to_bytes(ID_BYTES, "big")


class Move:
    """One try to move an answer to `route`, in a session of its own."""

    def __init__(self, session: bytes, turn: int, route: Route, now: float) -> None:
        self.session = session
        self.route = route
        self.phase = MovePhase.WARMING
        self.turn = turn
        self.tails: dict[int, str] = {}  # who samples, by racing turn
        self.due = now + LOOK_S
        self._long = now + LONG_S
        self._until = now + WARM_WITHIN_S
        self._pushes = 0
        self._computed: dict[int, int] = {}  # positions, by stage

    @property
    def peers(self) -> frozenset[str]:
        """Everybody who may have a seat for it."""
        return frozenset((*self.route.peers, *(peer for _, peer in self.route.shadows)))

    def more(self, steps: Sequence[Step]) -> list[OriginEffect]:
        """The first session has another token, so that the one before it is known to be computed."""
        if self.phase is not MovePhase.WARMING:
            return []
        return [Send(self.route.peers[0], step) for step in self.own(steps)]

    def race(self, now: float, turn: int) -> None:
        """It was asked to sample in `turn`."""
        if self.phase is MovePhase.WARMING:
            self.phase = MovePhase.RACING
            self._until = now + RACE_WITHIN_S
        self.turn = turn
        self.tails[turn] = self.route.peers[-1]
        self.due = self._until

    def own(self, steps: Sequence[Step]) -> list[Step]:
        """The same steps for this session."""
        return [replace(step, session=self.session, turn=self.turn) for step in steps]

    def look(self, now: float) -> tuple[Verdict, list[OriginEffect]]:
        """Time has passed: asks the stages where they are; gives up when it takes too long."""
        if now >= self._until:
            return Verdict.GIVE_UP, []
        if now < self.due or self.phase is not MovePhase.WARMING:
            return Verdict.NOTHING, []
        self.due = now + LOOK_S
        asks = [Send(peer, Where(self.session, self.turn, at)) for at, peer in enumerate(self.route.peers)]
        return Verdict.NOTHING, [*asks]

    def heard(self, now: float, sender: str, frame: Token | Refuse | Here, known: int) -> Verdict:
        """`known`: tokens that the answer has."""
        match frame:
            case Here():
                peers = self.route.peers
                expected = frame.turn == self.turn and sender in peers[frame.stage : frame.stage + 1]
                if not expected or self.phase is not MovePhase.WARMING:
                    return Verdict.NOTHING
                self._computed[frame.stage] = frame.computed
                near = known - 1 - (NEAR_TOKENS if now < self._long else FAR_TOKENS)
                ready = all(self._computed.get(stage, 0) >= near for stage in range(len(peers)))
                return Verdict.RACE if ready else Verdict.NOTHING
            case Token():
                if sender != self.tails.get(frame.turn):
                    return Verdict.NOTHING
                if frame.position >= known - ABREAST_TOKENS:
                    return Verdict.TAKE
                if frame.turn != self.turn:
                    return Verdict.NOTHING  # it was pushed on since
                if self._pushes >= MAX_PUSHES:
                    return Verdict.JUMP
                self._pushes += 1
                return Verdict.RACE
            case Refuse():
                mine = frame.turn == self.turn and sender in self.route.peers
                return Verdict.GIVE_UP if mine else Verdict.NOTHING
            case _:
                assert_never(frame)

    def released(self, gone: frozenset[str]) -> list[OriginEffect]:
        """Frees its seats on everybody but those who are `gone`."""
        return [Send(peer, Release(self.session)) for peer in sorted(self.peers - gone)]
