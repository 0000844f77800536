"""Decides how much a plan loses where what was measured is wrong, and how little any plan could be sure to lose.

The second by exhaustion, for few peers: no order of peers that is near the best lacks a world, within the same errors,
in which each of its cuts loses that much.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import replace
from itertools import permutations
from typing import Final

import numpy as np

from peer.bench_planner_sizes import worst_percent
from peer.bench_planner_timing import Figures
from peer.commands.terminal import say
from planner import cost, exact, instances, lattice, portfolio, robust
from planner.lattice import Lattice
from planner.network import INF
from planner.types import PlanRequest

FACTOR: Final = 1.5
WANTED: Final = 0.15
MESHES: Final = 40
PROVEN_PEERS: Final = 6  # with more it takes minutes
EFFORT: Final = portfolio.Effort(search=200_000)


def errors(scale: float) -> Figures:
    """Plans made with parameters wrong by up to FACTOR either way, valued with the right ones."""
    lost, sure = list[float](), list[float]()
    for seed in range(int(MESHES * scale)):
        truth = instances.mesh(seed, 5 + seed % 8)
        believed = robust.distorted(truth, FACTOR, seed)
        chosen = portfolio.solve(believed, None, EFFORT).chosen
        best = portfolio.solve(truth, None, EFFORT).chosen
        if chosen is None or best is None:
            continue
        lost.append(cost.evaluate(truth, chosen.stages).decode_ps / best.found.decode_ps - 1)
        if len(truth.peers) <= PROVEN_PEERS:
            sure.append(least_sure_loss(believed))
            say(f"planner: mesh {seed}: no plan is sure to lose less than {sure[-1]:.1%}")
    return {
        "error_meshes": len(lost),
        "error_median_loss_percent": round(statistics.median(lost) * 100, 2) if lost else None,
        "error_p95_loss_percent": round(float(np.quantile(lost, 0.95)) * 100, 2) if lost else None,
        "error_worst_loss_percent": worst_percent(lost),
        "error_meshes_over_15_percent": sum(share > WANTED for share in lost),
        "error_meshes_searched_whole": len(sure),
        "error_meshes_where_no_plan_is_sure_of_15_percent": sum(share > WANTED for share in sure),
        "error_least_sure_loss_percent": round(min(sure) * 100, 1) if sure else None,
    }


def least_sure_loss(believed: PlanRequest, factor: float = FACTOR) -> float:
    """No plan is sure to lose less than this, to the best of a world in which all parameters are within `factor`.

    Whether it is more than WANTED is all that is looked for: a plan that is believed to be WANTED worse than the best
    loses that in the world that is believed in. For peers that differ by one factor in all their times.
    """
    view = lattice.build(believed)
    least = _least(believed)
    near = []
    for order in _orders(view, int(least * (1 + WANTED))):
        path = lattice.cut(view, order)
        if path is not None and view.value(path) <= least * (1 + WANTED):
            near.append(order)
    sure = INF / 1.0
    for order in near:
        names = [view.peers[at] for at in order]
        used = set(zip(names, [*names[1:], names[0]], strict=True))
        loss = 0.0
        for slow in (names, [], view.peers):
            world = _world(believed, slow, used, factor)
            there = lattice.build(world)
            path = lattice.cut(there, order)
            assert path is not None
            loss = max(loss, there.value(path) / _least(world) - 1)
            if loss > WANTED:
                break
        sure = min(sure, loss)
    return sure


def _world(
    believed: PlanRequest, slow: Collection[str], used: Collection[tuple[str, str]], factor: float
) -> PlanRequest:
    """Slow peers and used links are so much worse than believed, all others so much better."""
    peers = tuple(robust.scaled(p, factor if p.peer in slow else 1 / factor) for p in believed.peers)
    links = tuple(
        replace(
            link,
            rtt_s=link.rtt_s * (factor if (link.src, link.dst) in used else 1 / factor),
            bytes_per_s=link.bytes_per_s / (factor if (link.src, link.dst) in used else 1 / factor),
        )
        for link in believed.links
    )
    return replace(believed, peers=peers, links=links)


def _least(request: PlanRequest) -> int:
    solved = exact.solve(lattice.build(request).network())
    return min(solved.by_stage_count().values(), default=INF)


def _orders(view: Lattice, most: int) -> list[tuple[int, ...]]:
    """Orders of peers that may decode a token in `most`: by their hops, and units in any parts on the fastest."""
    total = view.times[:, -1].astype(np.float64)
    share = [
        max(int(times[reach[first]] - times[first]) for first in range(view.unit_count))
        for times, reach in zip(view.times, view.reach, strict=True)
    ]
    cap, hop, made = np.array(share) / total, view.hop.min(axis=0), list[tuple[int, ...]]()
    for count in range(1, len(view.peers) + 1):
        orders = np.array(list(permutations(range(len(view.peers)), count)), dtype=np.intp)
        bound = view.step[orders].sum(axis=1) + np.minimum(view.back[orders[:, -1], orders[:, 0]], INF // 64)
        bound = bound + hop[orders[:, :-1], orders[:, 1:]].clip(max=INF // 64).sum(axis=1)
        fastest = np.take_along_axis(orders, np.argsort(total[orders], axis=1, kind="stable"), axis=1)
        before = np.cumsum(cap[fastest], axis=1) - cap[fastest]
        taken = np.clip(1 - before, 0, cap[fastest])
        bound = bound + (taken * total[fastest]).sum(axis=1) * (1 - 1e-9)
        able = (cap[fastest].sum(axis=1) >= 1 - 1e-9) & (bound <= most)
        made += [tuple(order) for order in orders[able].tolist()]
    return made
