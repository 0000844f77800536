"""What the cores of sessions and stages want done, and what they are told of steps that ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from peer.session.seat import Run_
from peer.wire.generated.frames import Frame


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


def reason_of(number: int) -> Reason:
    """What a REFUSE says; FAILED for a number that has no meaning here."""
    return Reason(number) if number in Reason.__members__.values() else Reason.FAILED


@dataclass(frozen=True, slots=True)
class Send:
    """Hand `frame` to `peer`, which may be this peer itself."""

    peer: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Spare:
    """Hand `frame` to `peer`, which shadows a stage: when there is room, with others, or never."""

    peer: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Emit:
    """Show `token`, sampled for `position`. `likely`: probabilities, where they were asked for."""

    token: int
    position: int
    likely: bytes = b""


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
    """This session wants a route without the peers in `gone`, and rather without those in `avoid`; call `reroute`.

    `soon`: not at once, since a stage has not heard of the plan yet.
    """

    gone: frozenset[str]
    avoid: frozenset[str] = frozenset()
    soon: bool = False


@dataclass(frozen=True, slots=True)
class Suspect:
    """`peer` does not answer, or does not come on: others should know."""

    peer: str
    why: str


OriginEffect = Send | Spare | Emit | Ended | Broken | FindRoute | Suspect


@dataclass(frozen=True, slots=True)
class RunStep:
    """Submit to the runtime of units `run`. `finish` turns the head's logits into a token on the worker."""

    run: Run_
    session: bytes
    epoch: int  # comes back with the result
    position: int
    tokens: npt.NDArray[np.int64] | None  # (T,) for the run that begins with the embedding
    hidden: npt.NDArray[np.float32] | None  # (T, hidden) otherwise
    last: bool
    finish: Callable[[npt.NDArray[np.float32]], int] | None
    prompt: bool  # the tokens were given, not sampled
    most_rows: int  # of a decode batch, so that the first stage sends off as many groups as there are stages
    behind: bool  # nobody waits for it: it runs when nothing else does
    shift: int = 0  # by how much places of `tokens` differ from their positions


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The runtime of `run` forgets `session`."""

    run: Run_
    session: bytes


@dataclass(frozen=True, slots=True)
class PrefixWork:
    """The runtime of `run` keeps the cache of the first `count` positions of `session` as the front `digest`, or begins
    a session with it, or drops it (peer.session.prefix_cache).
    """

    what: Literal["keep", "share", "drop"]
    run: Run_
    session: bytes
    digest: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Note:
    """For the transaction log: a session "opened" at `stage` here, was "taken over", or "closed"."""

    what: Literal["opened", "taken over", "closed"]
    session: bytes
    stage: int


StageEffect = Send | Spare | RunStep | FreeSlot | PrefixWork


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished step, as the runtime reports it. `hidden` to pass on, or the sampled `token` at the tail."""

    run: Run_
    session: bytes
    epoch: int
    position: int
    count: int
    hidden: npt.NDArray[np.float32] | None
    token: int | None


@dataclass(frozen=True, slots=True)
class NotRan:
    """A step that the runtime refused. `have`: positions that its cache holds."""

    run: Run_
    session: bytes
    epoch: int
    position: int
    have: int
    reason: Reason
    text: str
