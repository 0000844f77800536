"""Which OPENs a stage takes, and the frames that it answers and passes on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from peer.session.effects import Reason, Send, Spare
from peer.session.prefix_cache import named
from peer.session.sampling import Sampling, sample
from peer.session.seat import Run_, Seat
from peer.session.steering import STRAIGHT, Pick
from peer.wire.generated.frames import Finish, Open, Refuse, Role, Step, Token
from peer.wire.tensors import Tensor

PlanStages = tuple[tuple[frozenset[str], Run_], ...]  # for each stage who may hold it, and its units


def misplaced(me: str, sender: str, frame: Open) -> tuple[Reason, str] | None:
    """What is wrong with an OPEN that came to `me` from `sender`, whatever is served here."""
    route = frame.route
    if not route or frame.stage >= len(route) or len(frame.shadows) != len(frame.shadow_stages):
        return Reason.BAD_STEP, "the route has no such place"
    named = [
        peer for place, peer in zip(frame.shadow_stages, frame.shadows, strict=True) if place == frame.stage
    ]
    if me not in (named if frame.role != Role.SERVE else [route[frame.stage]]):
        return Reason.BAD_STEP, "this peer is not at that place of the route"
    expected = route[frame.stage - 1] if frame.stage else frame.origin
    if sender != expected:
        return Reason.BAD_STEP, f"OPEN for stage {frame.stage} must come from {expected}"
    if sum(frame.spans) != frame.prompt_tokens or not frame.answer <= frame.turn:
        return Reason.BAD_STEP, "spans add up to the tokens so far, and an answer begins before its turns"
    return None


def unserved(plan: PlanStages | None, loaded: Collection[Run_], frame: Open) -> tuple[Reason, str] | None:
    """Why units for this OPEN's place are not served here, under `plan` (None: unknown)."""
    route = frame.route
    fits = plan is not None and len(plan) == len(route)
    if plan is None or not fits or any(p not in stage[0] for p, stage in zip(route, plan, strict=True)):
        return Reason.UNKNOWN_PLAN, f"plan {frame.plan} with that route is not served here"
    run = plan[frame.stage][1]
    if run not in loaded:
        return Reason.UNKNOWN_PLAN, f"units {run[0]}-{run[1] - 1} are not loaded here"
    return None


def not_adopted(author: str | None, frame: Open) -> tuple[Reason, str] | None:
    """Why an OPEN is not taken for a session that another peer asked; `author`: who asks it now, by the log."""
    if author == frame.origin:
        return None
    if author is None:
        return Reason.BAD_STEP, "that session belongs to another asker"
    return Reason.UNKNOWN_SESSION, "that session is not known here as adopted yet"


def pick_of(seat: Seat, position: int) -> Callable[[npt.NDArray[np.float32]], int]:
    """How the tail of `seat` draws the token for `position`. The runtime's worker calls it."""
    draw = partial(pick, seat.sampling, position, tuple(seat.history), seat.generated)
    if seat.steering == STRAIGHT:
        return draw
    seat.picks[position] = Pick(seat.steering, draw)
    return seat.picks[position]


def passed_on(seat: Seat) -> list[Send | Spare]:
    """The OPEN for the next stage and for its shadows."""
    opening = seat.opening
    if not seat.serves or seat.downstream is None:
        return []
    stage = opening.stage + 1
    serve, shadow = (replace(opening, stage=stage, role=int(role)) for role in (Role.SERVE, Role.SHADOW))
    shadows = [Spare(peer, named(shadow, seat.prefix)) for peer in seat.shadows(stage)]
    return [Send(seat.downstream, named(serve, seat.prefix)), *shadows]


def finish_of(seat: Seat, token: int) -> Finish:
    """Whether `token` ends the answer of `seat`, which counted it already."""
    if token in seat.opening.end_tokens:
        return Finish.END_TOKEN
    return (
        Finish.LENGTH if seat.generated - seat.opening.generated >= seat.opening.max_tokens else Finish.MORE
    )


def told(seat: Seat, frame: Token) -> list[Send]:
    """A token for the first stage, and with its probabilities for the asker."""
    opening, found = seat.opening, seat.picks.get(frame.position)
    whole = replace(frame, body=found.body) if found is not None else frame
    peers = dict.fromkeys((opening.route[0], opening.origin))
    return [Send(peer, whole if peer == opening.origin else frame) for peer in peers]


def step_of(seat: Seat, position: int, count: int, tensor: Tensor) -> Step:
    """The output of a seat for positions from `position` on, as the next stage gets it."""
    opening = seat.opening
    last = int(position + count >= opening.prompt_tokens)
    return Step(opening.session, opening.turn, opening.stage + 1, position, count, last, tensor)


def refusal(seat: Seat, reason: Reason, text: str, have: int = 0, position: int = 0) -> Send:
    """Tells the asker that the turn is over here. `have`: cached positions, or the place of a lost neighbour."""
    opening = seat.opening
    return Send(
        opening.origin,
        Refuse(opening.session, opening.turn, opening.stage, position, have, int(reason), text),
    )


def refused_open(frame: Open, reason: Reason, text: str) -> Send:
    """Tells the asker that its OPEN was not taken."""
    return Send(frame.origin, Refuse(frame.session, frame.turn, frame.stage, 0, 0, int(reason), text))


def refused_full(frame: Open, slots: int) -> Send:
    """The same where no slot is free."""
    text = f"all {slots} sessions of this mesh are in use; try again when one has finished"
    return refused_open(frame, Reason.NO_SLOT, text)


def pick(
    sampling: Sampling,
    position: int,
    history: tuple[int, ...],
    generated: int,
    logits: npt.NDArray[np.float32],
) -> int:
    """The token for `position`; of `history`, the last `generated` were sampled in this answer."""
    answer = history[-generated:] if history and generated else ()
    return sample(logits, sampling, position, history, answer)
