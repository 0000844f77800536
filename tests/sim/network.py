"""Decides when what somebody sends arrives: virtual time, ordered links, connections that are lost and made anew.

Within one connection order holds and nothing is lost. A connection that is lost loses all that is on its way; the two
ends notice at different times, and what one of them sends before it notices is lost too. A frame may come twice.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, Protocol

from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Feed, Frame, Here, Open, Step, Token, Where
from tests.sim.schedule import Pace

REPEATED = (
    Open,
    Step,
    Token,
    Feed,
    Where,
    Here,
)  # frames that may come twice; the cores must see what came already
AGAIN_S = 0.1  # at most so much later
DIAL_S = 0.1  # to make a connection, about
DIAL_AGAIN_S = 1.0
GIVE_UP_S = 20.0  # nobody comes back so late


class End(Protocol):
    """A peer as the network sees it."""

    name: str
    alive: bool

    def take(self, sender: str, frame: Frame) -> None: ...
    def lost(self, peer: str) -> None: ...
    def connected(self, peer: str) -> None: ...


class Network:
    """The clock, and the way of every frame. `ends` is filled by the peers themselves."""

    def __init__(self, rng: random.Random, pace: Pace) -> None:
        self.now = 0.0
        self.ends: dict[str, End] = {}
        self.delivered = 0
        self.lost_frames = 0
        self._rng = rng
        self._pace = pace
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._arrivals: dict[tuple[str, str], float] = {}
        self._epochs: dict[tuple[str, str], int] = {}  # of a pair: how often its connection was lost
        self._seen: dict[tuple[str, str], int] = {}  # (end, other): the epoch this end believes in
        self._spikes: dict[tuple[str, str], float] = {}  # until when a pair's frames are slow

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """`call(*args)` at the virtual time `when`."""
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, call, args))

    def step(self, until: float) -> bool:
        """Does the next thing; False when nothing is left before `until`."""
        if not self._queue or self._queue[0][0] > until:
            return False
        when, _, call, args = heapq.heappop(self._queue)
        self.now = max(self.now, when)
        call(*args)
        return True

    def send(self, sender: str, target: str, frame: Frame) -> None:
        """Puts a frame on its way."""
        if sender == target:
            self.at(self.now, self._arrive_here, sender, frame)
            return
        pair = _pair(sender, target)
        epoch = self._epochs.get(pair, 0)
        if self._seen.get((sender, target), 0) != epoch:
            self.lost_frames += 1
            return  # into a connection that is gone already
        end = self.ends.get(target)
        if end is None or not end.alive:
            self.lost_frames += 1
            self.at(self.now + 0.5, self._unreachable, sender, target, epoch)
            return
        pace, random_ = self._pace, self._rng.random
        delay = pace.link_s + pace.jitter_s * random_()
        if self._spikes and self._spikes.get(pair, 0.0) > self.now:
            delay += 0.05 + 0.2 * random_()
        when = max(self.now + delay, self._arrivals.get((sender, target), 0.0))
        self._arrivals[sender, target] = when
        self.at(when, self._arrive, sender, target, epoch, frame)
        if pace.duplicates and random_() < pace.duplicates and isinstance(frame, REPEATED):
            later = 0.0 if isinstance(frame, Open) else AGAIN_S * random_()  # an OPEN ends with its session
            self.at(when + later, self._arrive, sender, target, epoch, frame)

    def cut(self, one: str, other: str, notice_s: float) -> None:
        """The connection between two peers is lost; each end notices within `notice_s`."""
        pair = _pair(one, other)
        epoch = self._epochs[pair] = self._epochs.get(pair, 0) + 1
        for end, far in ((one, other), (other, one)):
            self.at(self.now + notice_s * self._rng.random(), self._notice, end, far, epoch)

    def chance(self) -> float:
        """From 0 to 1."""
        return self._rng.random()

    def reborn(self, name: str) -> None:
        """A restarted peer believes in no old connection."""
        for one, other in self._epochs:
            if name in (one, other):
                far = other if name == one else one
                self._seen[name, far] = self._epochs[one, other]

    def slow_link(self, one: str, other: str, until: float) -> None:
        """Frames between the two take longer until then."""
        self._spikes[_pair(one, other)] = until

    def _arrive_here(self, name: str, frame: Frame) -> None:
        end = self.ends[name]
        if end.alive:
            end.take(name, frame)

    def _arrive(self, sender: str, target: str, epoch: int, frame: Frame) -> None:
        end = self.ends[target]
        if self._epochs.get(_pair(sender, target), 0) != epoch or not end.alive:
            self.lost_frames += 1
            return
        if self._seen.get((target, sender), 0) < epoch:  # the other side lost it first
            self._notice(target, sender, epoch)
        self.delivered += 1
        end.take(sender, decode(encode(frame)) if self._pace.encoded else frame)

    def _notice(self, name: str, far: str, epoch: int) -> None:
        end = self.ends[name]
        if not end.alive or self._seen.get((name, far), 0) >= epoch:
            return
        self._seen[name, far] = epoch
        end.lost(far)
        self.at(self.now + DIAL_S * (0.2 + self._rng.random()), self._dialled, name, far, epoch)

    def _dialled(self, name: str, far: str, epoch: int) -> None:
        """Who lost a connection makes another one when it can."""
        end, other = self.ends[name], self.ends[far]
        if end.alive and self._epochs.get(_pair(name, far), 0) == epoch:
            if other.alive:
                end.connected(far)
            elif self.now < GIVE_UP_S:
                self.at(self.now + DIAL_AGAIN_S, self._dialled, name, far, epoch)

    def _unreachable(self, name: str, far: str, epoch: int) -> None:
        end, other = self.ends[name], self.ends.get(far)
        gone = other is None or not other.alive
        if end.alive and gone and self._epochs.get(_pair(name, far), 0) == epoch:
            end.lost(far)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
