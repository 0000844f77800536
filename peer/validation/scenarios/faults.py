"""Decides what is broken when: the faults of each run, drawn from its seed. Pure: `draw()` is uniform in [0, 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar, assert_never

from peer.validation.scenarios.link_conditions import Conditions

_T = TypeVar("_T")
Draw = Callable[[], float]
LAST_TOKENS: Final = 8  # of an answer: a fault comes before them, so that there is something to lose
PREFILL_SHARE: Final = 0.1  # of faults come right after the question, while the prompt is computed
STANDBY_SHARE: Final = 0.15  # of crashes hit a standby
FROZEN_S: Final = 3.0
MOVED_EARLY: Final = 4  # by this share of an answer the plan changes
MOVED_TOKENS: Final = 160  # of an answer that moves, at least


class Name(Enum):
    """The scenarios, by the name people give."""

    CONNECTION_LOST = "connection_lost"
    PEER_CRASH = "peer_crash"
    PEER_FROZEN = "peer_frozen"
    COMPONENT_TIMEOUT = "component_timeout"
    COMPONENT_ERROR = "component_error"
    MULTI_PEER = "multi_peer"
    CASCADE = "cascade"
    NETWORK_INSTABILITY = "network_instability"
    ROLLING_RESTART = "rolling_restart"
    MIGRATION = "migration"


RELAYED: Final = frozenset({Name.CONNECTION_LOST, Name.NETWORK_INSTABILITY})  # need a relay between peers
MEANING: Final = {
    Name.CONNECTION_LOST: "one link is cut while both of its peers go on",
    Name.PEER_CRASH: "SIGKILL of one compute peer",
    Name.PEER_FROZEN: "SIGSTOP of one stage's primary, SIGCONT 3 s later",
    Name.COMPONENT_TIMEOUT: "a primary's model takes 3 s for one step; its event loop goes on",
    Name.COMPONENT_ERROR: "a primary's model fails one step",
    Name.MULTI_PEER: "SIGKILL of the primaries of two stages at once",
    Name.CASCADE: "SIGKILL of a primary, then of its standby while that takes over",
    Name.NETWORK_INSTABILITY: "delay, jitter, loss, reordering and short cuts on every link",
    Name.ROLLING_RESTART: "one peer after the other leaves politely and comes back",
    Name.MIGRATION: "the model is cut elsewhere, or as before; running answers move",
}


class Does(Enum):
    """What a fault is."""

    KILL = "kill"
    FREEZE = "freeze"
    STALL = "stall"
    FAIL = "fail"
    CUT = "cut"
    SHAKE = "shake"
    RESTART = "restart"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Victim:
    """Who is hit: the primary (`standby` False) or first standby of a stage, or with `stage` -1 peer number `peer`.

    Links are between the victim and the next stage's primary (the last stage's: the first).
    """

    stage: int
    standby: bool = False
    peer: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """`delay_s` after answer number `session` has `after_token` tokens (0: when it is asked), for `for_s`."""

    does: Does
    victim: Victim
    session: int
    after_token: int
    delay_s: float = 0.0
    for_s: float = 0.0
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True)
class Mesh:
    """What a schedule must know of the mesh and the questions."""

    stages: int
    peers: int
    sessions: int
    tokens: int


def schedule(name: Name, number: int, mesh: Mesh, draw: Draw) -> tuple[Fault, ...]:
    """The faults of run `number`, in the order of time. All victims are meant as they were before the first."""
    session = pick(draw, range(mesh.sessions))
    token = 0 if draw() < PREFILL_SHARE else 1 + int(draw() * max(1, mesh.tokens - LAST_TOKENS - 1))
    stage = pick(draw, range(mesh.stages))
    primary = Victim(stage)

    def one(does: Does, victim: Victim = primary, delay_s: float = 0.0, for_s: float = 0.0) -> Fault:
        return Fault(does, victim, session, token, delay_s, for_s)

    match name:
        case Name.PEER_CRASH:
            return (one(Does.KILL, Victim(stage, standby=draw() < STANDBY_SHARE)),)
        case Name.PEER_FROZEN:
            return (one(Does.FREEZE, for_s=FROZEN_S),)
        case Name.COMPONENT_TIMEOUT:
            return (one(Does.STALL, for_s=FROZEN_S),)
        case Name.COMPONENT_ERROR:
            return (one(Does.FAIL),)
        case Name.CONNECTION_LOST:
            return (one(Does.CUT, for_s=1.0 + 5.0 * draw()),)
        case Name.MULTI_PEER:
            other = Victim((stage + 1 + int(draw() * (mesh.stages - 1))) % mesh.stages)
            return (one(Does.KILL), one(Does.KILL, other, delay_s=0.05 * draw()))
        case Name.CASCADE:
            return (
                one(Does.KILL),
                one(Does.KILL, Victim(stage, standby=True), delay_s=0.02 + 0.28 * draw()),
            )
        case Name.NETWORK_INSTABILITY:
            conditions = Conditions(
                delay_s=0.002 + 0.013 * draw(),
                jitter_s=0.005 * draw(),
                loss=0.002 + 0.013 * draw(),
                reorder=0.02 * draw(),
                cuts=_short_cuts(draw),
            )
            return (Fault(Does.SHAKE, Victim(0), session, token, conditions=conditions),)
        case Name.ROLLING_RESTART:
            return (one(Does.RESTART, Victim(-1, peer=number % mesh.peers)),)
        case Name.MIGRATION:  # early, so that answers still run when their new stages are ready
            return (Fault(Does.MOVE, primary, session, 1 + token // MOVED_EARLY),)
        case _:
            assert_never(name)


def _short_cuts(draw: Draw) -> tuple[tuple[float, float], ...]:
    first = 0.2 + 0.8 * draw()
    second = first + 0.8 + draw()
    return ((first, first + 0.1 + 0.2 * draw()), (second, second + 0.1 + 0.2 * draw()))


def pick(draw: Draw, among: Sequence[_T]) -> _T:
    """One of `among`, each as likely."""
    return among[min(int(draw() * len(among)), len(among) - 1)]
