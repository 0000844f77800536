"""Decides what differs for an answer whose asker keeps embedding, head and sampling. Pure.

Its OPEN has no sampling settings, no end tokens and no history. The first stage takes float32 states in place of token
ids, the last one hands its states back: as steps for the place behind the last, to the asker, which draws the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from peer.limits import MAX_ROUTE
from peer.session.ask import Ask
from peer.session.effects import Ran, Reason, Send
from peer.session.evidence import Floats
from peer.session.open_checks import pick
from peer.session.prefix_cache import split
from peer.session.sampling import Sampling, needs_history
from peer.session.seat import Seat
from peer.session.steering import STRAIGHT, Pick, Steering, from_wire
from peer.wire.generated.frames import Finish, Open, Refuse, Step, Token
from peer.wire.tensors import Dtype, Tensor, tensor_of


def is_pinned(frame: Open) -> bool:
    """Whether its asker keeps embedding, head and sampling."""
    return not split(frame)[0].sampling


def pinned(frame: Open) -> Open:
    """The same, with nothing in it that says which tokens there are."""
    return replace(frame, sampling=(), end_tokens=(), history=())


def settings_of(frame: Open) -> tuple[Sampling, Steering, tuple[int, ...]]:
    """Sampling, steering and history of an OPEN. Raises BadSampling."""
    return (Sampling(), STRAIGHT, ()) if is_pinned(frame) else from_wire(frame.sampling, frame.history)


def wrong_ends(frame: Open) -> tuple[Reason, str] | None:
    """What is wrong with an OPEN of an asker that keeps its ends."""
    if not is_pinned(frame) or not (frame.end_tokens or frame.history or len(frame.route) >= MAX_ROUTE):
        return None
    text = f"without sampling settings, no tokens and a route of less than {MAX_ROUTE} stages were expected"
    return Reason.BAD_STEP, text


def takes_ids(frame: Open) -> bool:
    """Whether the steps at this place are token ids; rows in their place may stand among what was given."""
    return frame.stage == 0 and not is_pinned(frame)


def tells_ids(frame: Open) -> bool:
    """Whether the inputs at this place tell which tokens an asker has that keeps its ends: rows of the embedding do."""
    return frame.stage == 0 and is_pinned(frame)


def handed_back(seat: Seat, result: Ran) -> list[Send]:
    """The state that the next token is drawn from, for the asker; nothing for positions before it."""
    opening, stop = seat.opening, result.position + result.count
    draws = seat.is_tail and seat.serves and seat.active and is_pinned(opening)
    if result.hidden is None or not draws or stop < opening.prompt_tokens:
        return []
    last = tensor_of(result.hidden[-1:])
    place = len(opening.route)
    return [Send(opening.origin, Step(opening.session, opening.turn, place, stop - 1, 1, 1, last))]


@dataclass(frozen=True, slots=True)
class Drawing:
    """How the asker draws the token for `position` from the head's logits (vocab,). On a worker."""

    frame: Step
    position: int
    draw: Callable[[Floats], int]
    end_tokens: tuple[int, ...]
    is_last: bool  # the answer may have no token more

    def token(self, logits: Floats) -> Token:
        """As a last stage would tell it. Raises SamplingError where none can be drawn."""
        token = int(self.draw(logits))
        finish = Finish.LENGTH if self.is_last else Finish.MORE
        finish = Finish.END_TOKEN if token in self.end_tokens else finish
        body = self.draw.body if isinstance(self.draw, Pick) else b""
        return Token(self.frame.session, self.frame.turn, self.position, token, int(finish), body)


class Ends(Protocol):
    """What an asker holds of the model itself (peer.origin.pinned_ends)."""

    width: int  # of a state

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Returns the rows of the tokens, float32 (tokens, width)."""

    def draw(self, drawing: Drawing, state: Floats, tell: Callable[[Token | None], None]) -> None:
        """Tells, later, the token that follows from `state`, float32 (1, width); None where none could be drawn."""


def drawing_of(ask: Ask, tokens: Sequence[int], generated: int, frame: Step) -> Token | Drawing | None:
    """What follows from the state in `frame`, when `tokens` are known and the last `generated` were sampled."""
    position = frame.position + 1
    if position < len(tokens):
        return Token(frame.session, frame.turn, position, tokens[position], int(Finish.MORE))
    if position > len(tokens):
        return None
    history = tuple(tokens) if needs_history(ask.sampling) else ()
    draw: Callable[[Floats], int] = partial(pick, ask.sampling, position, history, generated)
    if ask.steering != STRAIGHT:
        draw = Pick(ask.steering, draw)
    return Drawing(frame, position, draw, ask.end_tokens, generated + 1 >= ask.max_tokens)


def state_in(frame: Step, width: int) -> Floats | None:
    """The one row of float32 that a last stage hands back; None where it is something else."""
    if frame.tensor.dtype is not Dtype.FLOAT32 or frame.tensor.shape != (1, width):
        return None
    row = frame.tensor.array()
    return row if np.isfinite(row).all() else None


def not_usable(frame: Step) -> Refuse:
    """What a last stage would have said of a state that is no state."""
    reason, text = Reason.NOT_FINITE_OUTPUT, "the last stage handed back what is no state"
    return Refuse(frame.session, frame.turn, frame.stage - 1, frame.position, 0, int(reason), text)
