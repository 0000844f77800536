"""Decides what a chain costs when its middle is alike: then the order of peers and how much each holds come apart.

A lattice is cut at its open borders into segments: the first (embedding), equal ones, the last (head). For a set of
peers with a first and a last, the equal segments go to the fastest first (each middle stage keeps one), which is
exact; the order counts only for the hops. Where the segments are not quite alike (cuts inside a block, a larger
layer now and then) the means stand in, `exact` is False, and lattice.cut makes the real path of an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.solvers.lattice import Lattice, cut
from planner.solvers.network import INF, Ints, Path

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Arrays over N peers."""

    view: Lattice
    count: int  # equal segments between the first and the last
    each: Ints  # time of one
    room: Ints  # most of them in a middle stage
    room_first: Ints  # beside the first segment; -1: cannot hold it
    room_last: Ints  # beside the last; -1: cannot hold it
    ends: tuple[Ints, Ints]  # time of the first and the last segment
    hop: Ints  # (N, N)
    exact: bool

    def alone(self) -> Ints:
        """(N,) everything on one peer."""
        view = self.view
        total = view.step + view.times[:, -1] + view.enter + view.leave
        return np.where(view.reach[:, 0] == view.unit_count, np.minimum(total, INF), INF)

    def values(self, orders: npt.NDArray[np.intp]) -> Ints:
        """Decode latency of chains of at least two peers: orders (R, k) to (R,)."""
        view, stages = self.view, orders.shape[1]
        first, last = orders[:, 0], orders[:, -1]
        fixed = view.enter[first] + view.leave[last] + view.back[last, first]
        fixed = fixed + view.step[orders].sum(axis=1) + self.ends[0][first] + self.ends[1][last]
        fixed = fixed + self.hop[orders[:, :-1], orders[:, 1:]].clip(max=INF // 64).sum(axis=1)
        room = self.room[orders]
        room[:, 0], room[:, -1] = self.room_first[first], self.room_last[last]
        least = np.ones(stages, dtype=np.int64)
        least[[0, -1]] = 0
        spare = room - least
        rest = self.count - (stages - 2)
        speed = self.each[orders]
        by_speed = np.argsort(speed, axis=1, kind="stable")
        sorted_spare = np.take_along_axis(spare, by_speed, axis=1)
        sorted_speed = np.take_along_axis(speed, by_speed, axis=1)
        before = np.cumsum(sorted_spare, axis=1) - sorted_spare
        taken = np.minimum(np.maximum(rest - before, 0), sorted_spare)
        work = (sorted_speed * taken).sum(axis=1) + speed[:, 1:-1].sum(axis=1)
        able = (spare >= 0).all(axis=1) & (spare.sum(axis=1) >= rest) & (rest >= 0)
        return np.where(able & (fixed < INF // 64), np.minimum(fixed + work, INF), INF)

    def path(self, order: Sequence[int]) -> Path | None:
        """Returns the best cuts for that order of peers, or None where they cannot hold all units."""
        return cut(self.view, order)


def blocks(view: Lattice) -> Blocks | None:
    """None where there is nothing in the middle to share out."""
    borders = np.flatnonzero(view.open)
    segments = len(borders) - 1
    if segments < 3:
        return None
    length = view.times[:, borders[1:]] - view.times[:, borders[:-1]]
    middle = length[:, 1:-1]
    reach = np.searchsorted(borders, view.reach[:, borders], side="right") - 1  # in segments
    last = segments - 1  # the border before the last segment
    starts = np.arange(1, last)
    runs = np.minimum(reach[:, 1:last], last) - starts[None, :]
    cut_short = reach[:, 1:last] >= last  # runs that end because the middle does
    free = np.where(cut_short, 0, runs)
    room = np.where(cut_short.all(axis=1), runs.max(axis=1), 0)
    some = ~cut_short.all(axis=1)
    counted = np.maximum((~cut_short).sum(axis=1), 1)
    room = np.where(some, np.maximum(free.sum(axis=1) // counted, 0), room)
    room = np.where(
        some & (runs[:, 0] > room) & cut_short.any(axis=1), np.maximum(room, runs.max(axis=1)), room
    )
    holds_last = reach == segments
    able_last = holds_last[:, : last + 1]
    room_last = np.where(able_last[:, last], last - np.argmax(able_last, axis=1), -1)
    room_last = np.where(room_last >= last, last - 1, room_last)
    classes = {int(view.classes[border]) for border in borders[1:-1].tolist()}
    alike = bool((middle == middle[:, :1]).all()) and len(classes) == 1
    steady = bool((np.where(cut_short, room[:, None], runs) == room[:, None]).all())
    return Blocks(
        view=view,
        count=segments - 2,
        each=middle[:, 0].copy() if alike else np.rint(middle.mean(axis=1)).astype(np.int64),
        room=room,
        room_first=np.minimum(reach[:, 0] - 1, segments - 2),
        room_last=room_last,
        ends=(length[:, 0], length[:, -1]),
        hop=_without_self(view.hop[int(view.classes[borders[1]])]),
        exact=alike and steady,
    )


def _without_self(hop: Ints) -> Ints:
    found = hop.copy()
    np.fill_diagonal(found, INF)
    return found
