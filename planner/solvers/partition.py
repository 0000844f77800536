"""Decides where to cut a model for a given order of peers, and the best rate that a solver can reach.

Cuts fall on unit borders, between attention and feed-forward of one block too. Both are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from planner.cost import evaluator
from planner.solvers import network
from planner.solvers.network import INF, Ints, Network, Path
from planner.types import PlanRequest, Stage


@dataclass(frozen=True, slots=True)
class Rate:
    """Seconds per token of all sessions together, in picoseconds, and the batch size that reaches it."""

    token_ps: Fraction
    rows: int


@dataclass(frozen=True, slots=True)
class Solver:
    """What the search for a rate asks of a solver."""

    least: Callable[[Network], int]  # value of the least path, INF where there is none
    coverable: Callable[[Ints], bool] = lambda _stage: True  # cheap, and true wherever there is a path
    caps: int = 2**31  # of the values that the slowest part can have, at most so many are told apart


def cut(net: Network, order: Sequence[int]) -> Path | None:
    """The least path that visits exactly these peers in this order, each for a unit or more; None: none fits.

    Of equal cuts, the one whose first stop is smallest, then the second, and so on.
    """
    width = net.unit_count + 1
    after = np.full((len(order), width), INF, dtype=np.int64)  # least value from border p, stage s on
    after[-1] = net.stage[order[-1], :, -1] + net.back[order[-1], order[0]]
    for at in range(len(order) - 2, -1, -1):
        onward: Ints = net.hop[order[at], order[at + 1]] + after[at + 1]
        after[at] = np.minimum((net.stage[order[at]] + onward[None, :]).min(axis=1), INF)
    if int(net.enter[order[0]]) + int(after[0, 0]) >= INF:
        return None
    path: list[tuple[int, int]] = []
    border = 0
    for at in range(len(order) - 1):
        sums = net.stage[order[at], border] + net.hop[order[at], order[at + 1]] + after[at + 1]
        border = int(np.argmin(sums))  # the first of equals
        path.append((order[at], border))
    return (*path, (order[-1], width - 1))


def partition(request: PlanRequest, order: Sequence[str]) -> tuple[Stage, ...] | None:
    """Best stages, by the request's objective, for pipelines through all of `order`; None when none fits."""
    evaluator.check_request(request)
    names = sorted(order)
    places = [names.index(name) for name in order]

    def least(net: Network) -> int:
        path = cut(net, places)
        return INF if path is None else net.value(path)

    alone = network.build(request, names, 1)
    if request.objective == "latency":
        path = cut(alone, places)
        return None if path is None else alone.stages(request, path)
    first = cut(alone, places)
    if first is None:
        return None
    found = evaluator.evaluate(request, alone.stages(request, first))
    choices = (network.build(request, names, rows) for rows in evaluator.row_choices(request.sessions))
    rate = best_rate(request.sessions, choices, Solver(least), Rate(found.token_ps, found.rows))
    net = at_rate(network.build(request, names, rate.rows), rate, request.sessions)
    path = cut(net, places)
    assert path is not None  # best_rate has seen one
    return net.stages(request, path)


def at_rate(net: Network, rate: Rate, sessions: int) -> Network:
    """The network without what is too slow for `rate`."""
    return net.capped(int(rate.token_ps / share(sessions, net.rows)))


def share(sessions: int, rows: int) -> Fraction:
    """Seconds per token of all sessions for each second of the slowest part."""
    return Fraction(evaluator.cohorts(sessions, rows), sessions)


def best_rate(sessions: int, networks: Iterable[Network], solver: Solver, known: Rate) -> Rate:
    """The fewest seconds per token that a solver can reach; of equals, the one with fewest rows.

    `networks`: one per batch size, ascending. `known`: a rate that some path reaches. A path whose round takes D
    and whose slowest part takes b, for `m` batches of `rows`, needs max(D, m b) / sessions per token. Capping b
    leaves D to be minimised, and the least D falls as the cap rises, so the best cap is where both cross: found
    by bisection over the values that b can take.
    """
    best = known
    for net in networks:
        best = min([best, *_rates(net, sessions, solver, best)], key=rate_key)
    return best


def _rates(net: Network, sessions: int, solver: Solver, best: Rate) -> list[Rate]:
    """Rates reached at this batch size in search of one that beats `best`; the size's best is among them."""
    each = share(sessions, net.rows)
    useful = [int(value) for value in net.limits() if value * each <= best.token_ps]
    step = max(1, -(-len(useful) // solver.caps))
    limits = useful[::-1][::step][::-1]  # the loosest always
    low = _first(range(len(limits)), lambda at: solver.coverable(net.capped(limits[at]).stage))
    if low is None or rate_key(Rate(limits[low] * each, net.rows)) >= rate_key(best):
        return []
    found: list[Rate] = []

    def crossed(at: int) -> bool:
        value = solver.least(net.capped(limits[at]))
        if value >= INF:
            return False
        turn = Fraction(value, sessions)  # what the round allows, in picoseconds per token
        found.append(Rate(max(turn, limits[at] * each), net.rows))
        return turn <= limits[at] * each

    high = len(limits) - 1
    # Where the round is the limit even at the loosest cap, a tighter one only makes it longer.
    if crossed(high) and high > low and not crossed(low):
        _first(range(low + 1, high), crossed)
    return found


def rate_key(rate: Rate) -> tuple[Fraction, int]:
    """Returns what rates are ordered by: the time of a token, then the rows of a batch."""
    return rate.token_ps, rate.rows


def _first(places: range, holds: Callable[[int], bool]) -> int | None:
    """First place where a condition that stays true once true holds."""
    low, high = places.start, places.stop
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low if low < places.stop else None
