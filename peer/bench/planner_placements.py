"""Decides how far placements that people choose by name are from the proven optimum, and how long they take."""

from __future__ import annotations

from statistics import median
from typing import Final

from peer.bench import instances
from peer.bench.planner_timing import Figures, timed
from planner.cost.objectives import Wish
from planner.solvers.choices.settings import PLACEMENTS, Placement, Settings
from planner.solvers.choices.table import figure_of, placed_by
from planner.types import PlanRequest

INSTANCES: Final = 40
TIGHT: Final = (1.0, 0.8, 1.3)
OTHERS: Final = tuple(name for name in PLACEMENTS if name != "exact")


def placements(scale: float) -> Figures:
    """Every placement on seeded meshes of 5 to 9 peers: how much worse than the optimum, of those that it places."""
    wish, settings = Wish(), Settings()
    gaps: dict[Placement, list[float]] = {name: [] for name in OTHERS}
    taken: dict[Placement, list[float]] = {name: [] for name in OTHERS}
    worse: dict[Placement, int] = dict.fromkeys(OTHERS, 0)
    for seed in range(1, max(3, int(INSTANCES * scale)) + 1):
        request = _instance(seed)
        best = placed_by("exact", request, wish, settings)
        if best.found is None:
            continue
        rules = placed_by("greedy", request, wish, settings)
        for name in OTHERS:
            found, seconds = timed(placed_by, name, request, wish, settings)
            if found.found is None:
                continue
            taken[name].append(seconds)
            gaps[name].append(figure_of(wish, found.found) / figure_of(wish, best.found) - 1)
            worse[name] += rules.found is not None and found.found.decode_ps > rules.found.decode_ps
    return {
        f"placement_{name}": {
            "instances": len(gaps[name]),
            "median_percent_over_optimum": round(median(gaps[name]) * 100, 2),
            "worst_percent_over_optimum": round(max(gaps[name]) * 100, 2),
            "worse_than_greedy": worse[name],
            "median_s": round(median(taken[name]), 3),
        }
        for name in OTHERS
        if gaps[name]
    }


def _instance(seed: int) -> PlanRequest:
    return instances.mesh(seed, 5 + seed % 5, tight=TIGHT[seed % len(TIGHT)])
