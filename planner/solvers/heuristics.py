"""Decides by the simple rules of others, as baselines and as a floor: what they can place is never refused."""

from __future__ import annotations

import numpy as np

from planner.solvers.lattice import Lattice
from planner.solvers.network import INF, Path


def furthest(view: Lattice) -> Path | None:
    """The longest run that fits on the linked peer that reaches furthest (ties: cheaper hop, then name)."""
    made = [path for first in range(len(view.peers)) if (path := _chain(view, first)) is not None]
    return min(made, key=view.key, default=None)


def petals(view: Lattice) -> Path | None:
    """Petals' rule: peers take places one after the other, each the run whose units have least served speed so far;
    here that is the next uncovered run, in the order of speed."""
    pace = (view.times[:, -1] + view.step).argsort(kind="stable")
    return _in_order(view, pace.tolist())


def parallax(view: Lattice) -> Path | None:
    """Parallax's rule: fill a pipeline with the peers that hold most, the largest first, whatever the links are."""
    room = (view.reach - np.arange(view.unit_count + 1)[None, :]).max(axis=1)
    return _in_order(view, np.argsort(-room, kind="stable").tolist())


def all_rules(view: Lattice) -> dict[str, Path]:
    """Every rule that finds a path."""
    rules = {
        "furthest first": furthest(view),
        "Petals' rule": petals(view),
        "Parallax's rule": parallax(view),
    }
    return {name: path for name, path in rules.items() if path is not None}


def _in_order(view: Lattice, order: list[int]) -> Path | None:
    border, path = 0, list[tuple[int, int]]()
    for peer in order:
        stop = int(view.reach[peer, border])
        linked = not path or view.hop[int(view.classes[border]), path[-1][0], peer] < INF
        if stop > border and linked:
            path.append((peer, stop))
            border = stop
        if border == view.unit_count:
            found = tuple(path)
            return found if view.value(found) < INF else None
    return None


def _chain(view: Lattice, first: int) -> Path | None:
    if view.enter[first] >= INF:
        return None
    free = np.ones(len(view.peers), dtype=np.bool_)
    free[first] = False
    stop = int(view.reach[first, 0])
    if stop == 0:
        return None
    path = [(first, stop)]
    while stop < view.unit_count:
        hop = view.hop[int(view.classes[stop]), path[-1][0]]
        able = np.flatnonzero(free & (hop < INF) & (view.reach[:, stop] > stop))
        if not len(able):
            return None
        peer = int(able[np.lexsort((able, hop[able], -view.reach[able, stop]))[0]])
        free[peer] = False
        stop = int(view.reach[peer, stop])
        path.append((peer, stop))
    found = tuple(path)
    return found if view.value(found) < INF else None
