"""Decides the least chain with OR-tools' CP-SAT where it is installed (the extra `planner`): a proof, or a bound.

A circuit over the peers that take part, in which one arc is the way back from the last to the first; whole numbers
of equal segments. One worker and a deterministic limit, so that the same input gives the same plan.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.solvers import lattice
from planner.solvers.blocks import Blocks, Order
from planner.solvers.network import INF
from planner.types import PlanRequest

NANO = 1000  # picoseconds in the solver's unit: smaller numbers make it faster


@dataclass(frozen=True, slots=True)
class Proof:
    """What CP-SAT found. `bound`: no chain of two or more peers is faster, in picoseconds."""

    order: Order | None
    bound: int
    optimal: bool


def available() -> bool:
    """Returns whether the extra `planner` is installed."""
    return importlib.util.find_spec("ortools") is not None


def _module(name: str) -> Any:
    return importlib.import_module(name)


def least_order(
    parts: Blocks,
    limit: float,
    hint: Sequence[int] | None = None,
    *,
    workers: int = 1,
    watched: Callable[[Callable[[], None]], None] | None = None,
) -> Proof:
    """The least order of at least two peers. `limit`: deterministic seconds.

    `watched` instead: gets what stops the search, before it begins.
    """
    cp = _module("ortools.sat.python.cp_model")
    view, peers = parts.view, len(parts.view.peers)
    model = cp.CpModel()
    firsts: list[Any] = []
    lasts: list[Any] = []
    used: list[Any] = []
    held: list[Any] = []
    arcs: list[Any] = []
    terms: list[Any] = []
    for peer in range(peers):
        here = model.new_bool_var(f"used{peer}")
        can_first = parts.room_first[peer] >= 0 and view.enter[peer] < INF
        can_last = parts.room_last[peer] >= 0 and view.leave[peer] < INF
        is_first = model.new_bool_var(f"first{peer}") if can_first else 0
        is_last = model.new_bool_var(f"last{peer}") if can_last else 0
        most = max(int(parts.room[peer]), int(parts.room_first[peer]), int(parts.room_last[peer]), 0)
        count = model.new_int_var(0, min(most, parts.count), f"count{peer}")
        model.add(count <= most * here)
        middle = max(int(parts.room[peer]), 0)
        less_first, less_last = int(parts.room_first[peer]) - middle, int(parts.room_last[peer]) - middle
        model.add(count <= middle * here + less_first * is_first + less_last * is_last)
        model.add(count >= here - is_first - is_last)
        arcs.append((peer, peer, here.negated()))
        used.append(here)
        held.append(count)
        firsts.append(is_first)
        lasts.append(is_last)
        terms.append(int(parts.each[peer]) // NANO * count + int(view.step[peer]) // NANO * here)
        terms.append(int(parts.ends[0][peer]) // NANO * is_first + int(parts.ends[1][peer]) // NANO * is_last)
        model.add(here >= is_first + is_last)
    ahead: dict[tuple[int, int], Any] = {}
    behind: dict[tuple[int, int], Any] = {}
    for a in range(peers):
        for b in range(peers):
            if a == b:
                continue
            if parts.hop[a, b] < INF:
                ahead[a, b] = arc = model.new_bool_var(f"hop{a}_{b}")
                arcs.append((a, b, arc))
                terms.append(int(parts.hop[a, b]) // NANO * arc)
            if view.back[a, b] < INF and parts.room_last[a] >= 0 and parts.room_first[b] >= 0:
                behind[a, b] = arc = model.new_bool_var(f"back{a}_{b}")
                arcs.append((a, b, arc))
                terms.append(int(view.back[a, b]) // NANO * arc)
    model.add_circuit(arcs)
    model.add(sum(behind.values()) == 1)
    for peer in range(peers):
        model.add(firsts[peer] == sum(arc for (_, b), arc in behind.items() if b == peer))
        model.add(lasts[peer] == sum(arc for (a, _), arc in behind.items() if a == peer))
    model.add(sum(held) == parts.count)
    model.minimize(sum(terms))
    if hint is not None:
        places = {peer: at for at, peer in enumerate(hint)}
        for peer in range(peers):
            model.add_hint(used[peer], peer in places)
        for (a, b), arc in ahead.items():
            model.add_hint(arc, a in places and b in places and places[b] == places[a] + 1)
        for (a, b), arc in behind.items():
            model.add_hint(arc, a == hint[-1] and b == hint[0])
    solver = cp.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 1
    if watched is None:
        solver.parameters.max_deterministic_time = limit
    else:
        watched(solver.stop_search)
    status = solver.solve(model)
    if status == cp.INFEASIBLE:
        return Proof(None, INF, True)
    bound = max(0, int(solver.best_objective_bound)) * NANO
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return Proof(None, bound, False)
    follow = {a: b for (a, b), arc in ahead.items() if solver.boolean_value(arc)}
    start = next(b for (_, b), arc in behind.items() if solver.boolean_value(arc))
    order = [start]
    while order[-1] in follow and len(order) <= peers:
        order.append(follow[order[-1]])
    return Proof(tuple(order), bound, status == cp.OPTIMAL)


def fewest_loaded(
    request: PlanRequest, held: Mapping[str, tuple[tuple[int, int], ...]], limit: float
) -> tuple[int, bool]:
    """(units loaded, proven) so that runs, one for each peer at most, make a chain; links are not looked at.

    A flow from border 0 to the last over every run there can be, each peer at most once.
    """
    cp = _module("ortools.sat.python.cp_model")
    view = lattice.build(request)
    count, model = view.unit_count, cp.CpModel()
    leaving: list[list[Any]] = [[] for _ in range(count + 1)]
    entering: list[list[Any]] = [[] for _ in range(count + 1)]
    terms: list[Any] = []
    for at, name in enumerate(view.peers):
        mine = {unit for first, stop in held.get(name, ()) for unit in range(first, stop)}
        runs: list[Any] = []
        for first in range(count):
            loads = 0
            for stop in range(first + 1, int(view.reach[at, first]) + 1):
                loads += stop - 1 not in mine
                run = model.new_bool_var("")
                runs.append(run)
                leaving[first].append(run)
                entering[stop].append(run)
                if loads:
                    terms.append(loads * run)
        model.add_at_most_one(runs)
    model.add(sum(leaving[0]) == 1)
    model.add(sum(entering[count]) == 1)
    for border in range(1, count):
        model.add(sum(entering[border]) == sum(leaving[border]))
    model.minimize(sum(terms))
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(model)
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return -1, False
    return round(solver.objective_value), status == cp.OPTIMAL
