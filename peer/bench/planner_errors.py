"""Decides how much a plan loses where what was measured is wrong, and how much every plan may lose, at the least.

The second by exhaustion, for few peers: every order of peers has a world, within the same errors, in which each of its
cuts loses that much.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, permutations
from typing import Final

import numpy as np

from peer.bench import instances, robustness
from peer.bench.planner_sizes import worst_percent
from peer.bench.planner_timing import Figures
from peer.launch.terminal import say
from planner.cost import evaluator
from planner.solvers import held_karp, lattice, placement, portfolio
from planner.solvers.blocks import Order
from planner.solvers.lattice import Lattice
from planner.solvers.network import INF, Path
from planner.types import PlanRequest, Stage

FACTOR: Final = 1.5
WANTED: Final = 0.15
MESHES: Final = 40
PROVEN_PEERS: Final = 6  # all orders are tried, in seconds;
LOST_PEERS: Final = 7  # of so many, in a minute or two, where the chosen plan lost more than WANTED
RIVALS: Final = 3  # plans that another is compared with before the best of that world is looked for
AT_ONCE: Final = 100_000  # orders valued together
EFFORT: Final = portfolio.Effort(search=200_000)


@dataclass(frozen=True, slots=True)
class Row:
    """One mesh, by its seed. Shares of the least time: what the chosen plan lost in the world that was the right one,
    what it may lose in another one within the same errors, at least; what any plan may lose, at least (None: too many
    peers to try all orders).
    """

    mesh: int
    peers: int
    lost: float
    may_lose: float
    any_may_lose: float | None

    def told(self) -> dict[str, float | int | None]:
        """In percent."""
        return {
            "mesh": self.mesh,
            "peers": self.peers,
            "lost_percent": _percent(self.lost),
            "chosen_may_lose_percent": _percent(self.may_lose),
            "any_plan_may_lose_percent": None if self.any_may_lose is None else _percent(self.any_may_lose),
        }


def errors(scale: float) -> Figures:
    """Plans made with parameters wrong by up to FACTOR either way, valued with the right ones."""
    rows = list[Row]()
    for seed in range(int(MESHES * scale)):
        truth = instances.mesh(seed, 5 + seed % 8)
        believed = robustness.distorted(truth, FACTOR, seed)
        chosen = portfolio.solve(believed, None, EFFORT).chosen
        best = portfolio.solve(truth, None, EFFORT).chosen
        if chosen is None or best is None:
            continue
        count = len(truth.peers)
        share = evaluator.evaluate(truth, chosen.stages).decode_ps / best.found.decode_ps - 1
        tried = count <= (LOST_PEERS if share > WANTED else PROVEN_PEERS)
        may_lose = plan_may_lose(believed, chosen.stages)
        rows.append(Row(seed, count, share, may_lose, least_sure_loss(believed) if tried else None))
        say(f"planner: {rows[-1]}")
    lost = [row.lost for row in rows]
    proven = [row.any_may_lose for row in rows if row.any_may_lose is not None]
    return {
        "error_meshes": len(rows),
        "error_median_loss_percent": _percent(statistics.median(lost)) if lost else None,
        "error_p95_loss_percent": _percent(float(np.quantile(lost, 0.95))) if lost else None,
        "error_worst_loss_percent": worst_percent(lost),
        "error_meshes_over_15_percent": sum(loss > WANTED for loss in lost),
        "error_meshes_searched_whole": len(proven),
        "error_meshes_where_every_plan_may_lose_15_percent": sum(loss > WANTED for loss in proven),
        "error_any_plan_may_lose_at_least_percent": _percent(min(proven)) if proven else None,
        "error_rows": [row.told() for row in sorted(rows, key=lambda row: -row.lost)],
    }


def _percent(share: float) -> float:
    return round(share * 100, 2)


def plan_may_lose(believed: PlanRequest, stages: Sequence[Stage], factor: float = FACTOR) -> float:
    """What a plan loses, to the best plan of that world, in the worst of some worlds in which all parameters are within
    `factor` of what is believed: so it may lose at least that.
    """

    def value(there: Lattice, _: Sequence[int]) -> int:
        return there.value(tuple((there.peers.index(stage.peer), stage.stop) for stage in stages))

    view = lattice.build(believed)
    return _loss(believed, [view.peers.index(stage.peer) for stage in stages], factor, value)


def least_sure_loss(believed: PlanRequest, factor: float = FACTOR) -> float:
    """Every plan may lose that, to the best of a world in which all parameters are within `factor`, or more.

    Every order of peers is tried, cut in each world as is best there; an order that is further from the best in the
    world that is believed in loses more than that there. For peers that differ by one factor in all their times.
    """

    def value(there: Lattice, order: Sequence[int]) -> int:
        path = lattice.cut(there, order)
        return INF if path is None else there.value(path)

    view = lattice.build(believed)
    path = _best(view)
    least = view.value(path)
    rivals = list[Order]()
    sure = _loss(believed, [peer for peer, _ in path], factor, value)
    near = [(value(view, order) / least - 1, order) for order in _orders(view, int(least * (1 + sure)))]
    for over, order in sorted(near):
        if over >= sure:
            break
        sure = min(sure, max(over, _loss(believed, order, factor, value, sure, rivals)))
    return sure


def _loss(
    believed: PlanRequest,
    order: Sequence[int],
    factor: float,
    value: Callable[[Lattice, Sequence[int]], int],
    enough: float = INF / 1.0,
    rivals: list[Order] | None = None,
) -> float:
    """In the worst of: its peers slower than believed and the others faster, all faster, all slower; always its links
    slower and the others faster. Not looked further when it is `enough`, to the best or already to one of the last
    `rivals`: to those the best of each world is added.
    """
    peers = lattice.build(believed).peers
    names = [peers[at] for at in order]
    used = set(zip(names, [*names[1:], names[0]], strict=True))
    loss = 0.0
    for slow in (names, [], peers):
        there = lattice.build(_world(believed, slow, used, factor))
        mine = value(there, order)
        for rival in reversed(rivals[-RIVALS:] if rivals else []):
            loss = max(loss, mine / value(there, rival) - 1)
            if loss >= enough:
                return loss
        best = _best(there)
        loss = max(loss, mine / there.value(best) - 1)
        if rivals is not None:
            rivals.append(tuple(peer for peer, _ in best))
        if loss >= enough:
            break
    return loss


def _world(
    believed: PlanRequest, slow: Collection[str], used: Collection[tuple[str, str]], factor: float
) -> PlanRequest:
    """Slow peers and used links are so much worse than believed, all others so much better."""
    peers = tuple(robustness.scaled(p, factor if p.peer in slow else 1 / factor) for p in believed.peers)
    links = tuple(
        replace(
            link,
            rtt_s=link.rtt_s * (factor if (link.src, link.dst) in used else 1 / factor),
            bytes_per_s=link.bytes_per_s / (factor if (link.src, link.dst) in used else 1 / factor),
        )
        for link in believed.links
    )
    return replace(believed, peers=peers, links=links)


def _best(view: Lattice) -> Path:
    """The least path, or where there are many peers the least that a search finds."""
    if placement.is_affordable(len(view.peers), view.unit_count):
        found = held_karp.solve(view.network()).path()
    else:
        found = next(iter(portfolio.least_paths(view, EFFORT)[0]), None)
    assert found is not None, "whatever its times are, a plan that fits fits"
    return found


def _orders(view: Lattice, most: int) -> list[tuple[int, ...]]:
    """Orders of peers that may decode a token in `most`: by their hops, and units in any parts on the fastest."""
    total = view.times[:, -1].astype(np.float64)
    share = [
        max(int(times[reach[first]] - times[first]) for first in range(view.unit_count))
        for times, reach in zip(view.times, view.reach, strict=True)
    ]
    cap, hop, made = np.array(share) / total, view.hop.min(axis=0), list[tuple[int, ...]]()
    every = (
        order
        for count in range(1, len(view.peers) + 1)
        for order in permutations(range(len(view.peers)), count)
    )
    for _, alike in groupby(every, key=len):
        while some := list(islice(alike, AT_ONCE)):
            orders = np.array(some, dtype=np.intp)
            bound = view.step[orders].sum(axis=1) + np.minimum(
                view.back[orders[:, -1], orders[:, 0]], INF // 64
            )
            bound = bound + hop[orders[:, :-1], orders[:, 1:]].clip(max=INF // 64).sum(axis=1)
            fastest = np.take_along_axis(orders, np.argsort(total[orders], axis=1, kind="stable"), axis=1)
            before = np.cumsum(cap[fastest], axis=1) - cap[fastest]
            taken = np.clip(1 - before, 0, cap[fastest])
            bound = bound + (taken * total[fastest]).sum(axis=1) * (1 - 1e-9)
            able = (cap[fastest].sum(axis=1) >= 1 - 1e-9) & (bound <= most)
            made += [tuple(order) for order in orders[able].tolist()]
    return made
