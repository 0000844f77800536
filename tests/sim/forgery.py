"""Decides what a peer that has no business with a session says to those that have: cores must not listen to it."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from peer.session.seat import Seat
from peer.wire.generated.frames import Cancel, Frame, Release, Step, Token
from peer.wire.tensors import tensor_of
from tests.sim.member import Member
from tests.sim.toy import VOCAB


def forged(rng: random.Random, members: Mapping[str, Member], stranger: str) -> list[tuple[str, Frame]]:
    """(receiver, frame) in the name of sessions that are under way now."""
    found: list[tuple[str, Frame]] = []
    for name, member in members.items():
        if name == stranger or not member.alive:
            continue
        for seat in member.core._seats.values():
            if stranger != seat.upstream and stranger != seat.opening.origin:
                found += [(name, frame) for frame in _to_stage(rng, seat, stranger)]
        for core in member.askings.values():
            if all(stranger != way.peers[-1] for way in core._ways.values()):
                token = rng.randrange(VOCAB)
                found.append((name, Token(core.session, core.turn, len(core.tokens), token, 0)))
    return found


def _to_stage(rng: random.Random, seat: Seat, stranger: str) -> list[Frame]:
    opening = seat.opening
    if opening.stage:
        tensor = tensor_of(np.array([[rng.randrange(1 << 24), rng.randrange(1 << 24)]], np.float32))
    else:
        tensor = tensor_of(np.array([rng.randrange(VOCAB)], np.int32))
    position = seat.received if rng.random() < 0.7 else max(0, seat.received - 1)
    frames: list[Frame] = [
        Step(opening.session, opening.turn, opening.stage, position, 1, 1, tensor),
    ]
    if stranger != opening.route[-1]:
        frames.append(Token(opening.session, opening.turn, position, rng.randrange(VOCAB), 0))
    if rng.random() < 0.3:
        frames.append(Cancel(opening.session, opening.turn, 0, "so that it ends"))
        frames.append(Release(opening.session))
    return frames
