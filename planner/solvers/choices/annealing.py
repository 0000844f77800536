"""Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983) over paths: worse changes are taken less and less often. Pure.

The temperature falls geometrically from HOT to COLD times the energy of the start. What was best is kept.
"""

from __future__ import annotations

import math
from typing import Final

from planner.solvers.choices.energy import NEVER, Energy
from planner.solvers.choices.neighbours import neighbour
from planner.solvers.network import Path
from planner.solvers.seeded_random import Draws

HOT: Final = 0.3
COLD: Final = 0.0005


def annealed(energy: Energy, start: Path, iterations: int, seed: int) -> Path:
    """The best path that `iterations` changes of `start` led to, its borders cut best."""
    draws = Draws(seed)
    now = best = start
    scale = energy.of(start) % 1e18 or 1.0
    for step in range(iterations):
        heat = scale * HOT * (COLD / HOT) ** (step / max(1, iterations - 1))
        tried = neighbour(energy.view, now, draws)
        worse = energy.of(tried) - energy.of(now)
        if energy.of(tried) < NEVER and (worse <= 0 or draws.uniform() < math.exp(-worse / heat)):
            now = tried
            if energy.key(now) < energy.key(best):
                best = now
    return energy.cut(best)
