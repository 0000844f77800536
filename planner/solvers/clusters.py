"""Decides which peers are looked at when there are hundreds: those near one another, with room and speed.

Seeds far apart (the first the peer with the best centre, each next the farthest from those before), the nearest
peers of each by round trip and by what they would add. A region holds at most `size`.
"""

from __future__ import annotations

import numpy as np

from planner.solvers.blocks import Blocks
from planner.solvers.network import INF

REGIONS = 8
SIZE = 56


def regions(parts: Blocks, count: int = REGIONS, size: int = SIZE) -> list[list[int]]:
    """Places of peers, each region sorted; regions may overlap, so that two can be stitched."""
    view = parts.view
    able = np.flatnonzero((parts.room >= 1) | (parts.room_first >= 0) | (parts.room_last >= 0))
    if len(able) <= size:
        return [able.tolist()]
    both = np.minimum(parts.hop[np.ix_(able, able)], INF // 4)
    both = (both + both.T) // 2
    np.fill_diagonal(both, 0)
    room = np.maximum(parts.room[able], 1)
    own = view.step[able] // room + parts.each[able]  # time of a segment, its share of the step with it
    score = both // room[None, :] + own[None, :]  # of a peer, seen from a seed
    near = np.sort(score, axis=1)[:, : min(size, 12)].sum(axis=1)
    seeds = [int(near.argmin())]
    while len(seeds) < count:
        apart = both[seeds].min(axis=0)
        # far from the seeds so far, yet with good peers around: the best centre of the farther half
        far = np.flatnonzero(apart >= np.median(apart))
        following = int(far[int(near[far].argmin())])
        if following in seeds:
            break
        seeds.append(following)
    made: list[list[int]] = []
    for seed in seeds:
        closest = np.argsort(score[seed], kind="stable")[:size]
        made.append(sorted({int(able[seed]), *able[closest].tolist()}))
    return made
