"""One change of a path, drawn at random: what annealing and breeding are made of. Pure."""

from __future__ import annotations

from typing import Final

from planner.solvers.lattice import Lattice
from planner.solvers.network import Path
from planner.solvers.seeded_random import Draws

FAR: Final = 8  # open borders that a border moves at most


def neighbour(view: Lattice, path: Path, draws: Draws) -> Path:
    """`path` with a border moved, a peer exchanged, two peers swapped, a stage added or a stage taken out. It may be
    one that cannot run.
    """
    stages = len(path)
    kinds = ["exchange", "add"] + (["border", "border", "swap", "remove"] if stages > 1 else [])
    kind = draws.choice(kinds)
    peers, stops = [peer for peer, _ in path], [stop for _, stop in path]
    free = [peer for peer in range(len(view.peers)) if peer not in peers]
    at = draws.below(stages)
    if kind == "border":
        at = draws.below(stages - 1)
        stops[at] = _moved(view, stops, at, draws)
    elif kind == "swap":
        other = draws.below(stages)
        peers[at], peers[other] = peers[other], peers[at]
    elif kind == "remove":
        del peers[at]
        del stops[at if at < stages - 1 else at - 1]
    elif free and kind == "exchange":
        peers[at] = draws.choice(free)
    elif free:
        first = stops[at - 1] if at else 0
        inside = [border for border in range(first + 1, stops[at]) if view.open[border]]
        if inside:
            before = draws.below(2)
            peers.insert(at + before, draws.choice(free))
            stops.insert(at, draws.choice(inside))
    return tuple(zip(peers, stops, strict=True))


def _moved(view: Lattice, stops: list[int], at: int, draws: Draws) -> int:
    """Another open border between the ends of the two stages."""
    first = stops[at - 1] if at else 0
    between = [border for border in range(first + 1, stops[at + 1]) if view.open[border]]
    place = between.index(stops[at]) if stops[at] in between else 0
    low, high = max(0, place - FAR), min(len(between), place + FAR + 1)
    return between[low + draws.below(high - low)]
