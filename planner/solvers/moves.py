"""Decides who takes which new shard and in which order units move, so that at every moment all units are covered.

Shards go to peers with the fewest missing bytes (an assignment: Kuhn and Munkres). Then make before break: whatever can
be loaded is loaded; a unit is dropped only when somebody else holds it (k + 1 others while memory allows). Where no
such order exists it says so, with the bytes that are then missing for a while.

`shoal plan --placement hungarian` assigns by it; the orders of moves wait for plans of several chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.cost import evaluator
from planner.errors import RequestError
from planner.solvers.network import Ints
from planner.types import Held, PeerProfile, PlanRequest, Run, Stage

IMPOSSIBLE = 2**50


@dataclass(frozen=True, slots=True)
class Move:
    """`peer` loads or drops one unit."""

    do: Literal["load", "drop"]
    peer: str
    unit: int


@dataclass(frozen=True, slots=True)
class Order:
    """Moves in order. `gaps`: bytes of units that nobody holds for a while; 0: every state covers all units."""

    moves: tuple[Move, ...]
    moved_bytes: int
    gap_bytes: int

    def downtime_s(self, bytes_per_s: float) -> float:
        """Returns the seconds without an answer at that rate of transfers."""
        return self.gap_bytes / bytes_per_s


def assignment(costs: Ints) -> tuple[int, ...]:
    """Column of each row with the least sum; rows <= columns. Of equals by a stated shortest augmenting path."""
    # by hand: a peer needs neither scipy nor OR-tools to run, and their choice among equals is not stated
    rows, columns = costs.shape
    potential_rows, potential = np.zeros(rows + 1, dtype=np.int64), np.zeros(columns + 1, dtype=np.int64)
    owner = np.zeros(columns + 1, dtype=np.int64)  # row of each column, 0: none; counted from 1
    for row in range(1, rows + 1):
        owner[0], column = row, 0
        least = np.full(columns + 1, IMPOSSIBLE * 64, dtype=np.int64)
        way, used = np.zeros(columns + 1, dtype=np.int64), np.zeros(columns + 1, dtype=np.bool_)
        while True:
            used[column] = True
            at = int(owner[column])
            free = ~used[1:]
            reduced = costs[at - 1] - potential_rows[at] - potential[1:]
            better = free & (reduced < least[1:])
            least[1:][better] = reduced[better]
            way[1:][better] = column
            candidates = np.where(free, least[1:], IMPOSSIBLE * 65)
            following = int(candidates.argmin()) + 1
            delta = int(least[following])
            potential_rows[owner[used]] += delta
            potential[used] -= delta
            least[1:][free] -= delta
            column = following
            if owner[column] == 0:
                break
        while column:
            before = int(way[column])
            owner[column] = owner[before]
            column = before
    found = [0] * rows
    for column in range(1, columns + 1):
        if owner[column]:
            found[int(owner[column]) - 1] = column - 1
    return tuple(found)


def fewest_missing(request: PlanRequest, shards: Sequence[Run], held: Held) -> dict[Run, str] | None:
    """Who takes which shard so that the fewest bytes are missing; None where they cannot all be held."""
    peers = sorted(request.peers, key=lambda peer: peer.peer)
    if len(shards) > len(peers):
        return None
    costs = np.array(
        [[_missing(request, peer, held.get(peer.peer, ()), run) for peer in peers] for run in shards],
        dtype=np.int64,
    )
    found = assignment(costs)
    if any(costs[row, column] >= IMPOSSIBLE for row, column in enumerate(found)):
        return None
    return {run: peers[column].peer for run, column in zip(shards, found, strict=True)}


def _missing(request: PlanRequest, peer: PeerProfile, runs: Sequence[Run], run: Run) -> int:
    if evaluator.refuse_runs(request, peer, [run]) is not None:
        return IMPOSSIBLE
    return sum(
        request.units[at].held_bytes(peer.holding)
        for at in range(*run)
        if not any(first <= at < stop for first, stop in runs)
    )


def order(request: PlanRequest, held: Held, target: Sequence[Stage], k: int = 0) -> Order:
    """From what is held to what `target` (with standbys) needs. The same plan again moves nothing.

    Raises RequestError, saying why, for a target that cannot run.
    """
    if (why := evaluator.refuse(request, target)) is not None:
        raise RequestError(why)
    known = evaluator.profiles(request)
    now = {name: _units(held.get(name, ())) for name in sorted(known)}
    wanted = {
        name: _units([(run[0], run[1]) for run in runs])
        for name, runs in evaluator.runs_by_peer(target).items()
    }
    goal = {name: wanted.get(name, set()) if name in wanted else set(now[name]) for name in now}
    moves: list[Move] = []
    moved = gaps = 0

    def fits(name: str, units: set[int]) -> bool:
        return evaluator.overfull(request, known[name], _runs(units)) is None

    def holders(unit: int) -> int:
        return sum(unit in units for units in now.values())

    while any(goal[name] - now[name] for name in now):
        loads = [(unit, name) for name in now for unit in sorted(goal[name] - now[name])]
        able = [(holders(unit), unit, name) for unit, name in loads if fits(name, now[name] | {unit})]
        if able:
            _, unit, name = min(able)
            now[name].add(unit)
            moves.append(Move("load", name, unit))
            moved += request.units[unit].held_bytes(known[name].holding)
            continue
        tight = {name for _, name in loads}
        drops = [
            (-holders(unit), unit, name) for name in sorted(tight) for unit in sorted(now[name] - goal[name])
        ]
        safe = [drop for drop in drops if -drop[0] > max(1, k)] or [drop for drop in drops if -drop[0] > 1]
        assert drops, "a target that fits has room once all else is dropped"
        count, unit, name = min(safe or drops)
        now[name].discard(unit)
        moves.append(Move("drop", name, unit))
        if -count == 1:
            gaps += request.units[unit].held_bytes(known[name].holding)
    for name in now:
        for unit in sorted(now[name] - goal[name]):
            moves.append(Move("drop", name, unit))
    return Order(tuple(moves), moved, gaps)


def states(held: Held, moves: Sequence[Move]) -> list[dict[str, set[int]]]:
    """What is held before the first move and after each."""
    now = {name: _units(runs) for name, runs in held.items()}
    made = [{name: set(units) for name, units in now.items()}]
    for move in moves:
        units = now.setdefault(move.peer, set())
        if move.do == "load":
            units.add(move.unit)
        else:
            units.discard(move.unit)
        made.append({name: set(found) for name, found in now.items()})
    return made


def _units(runs: Sequence[Run] | set[Run]) -> set[int]:
    return {at for first, stop in runs for at in range(first, stop)}


def _runs(units: set[int]) -> list[Run]:
    made: list[Run] = []
    for unit in sorted(units):
        if made and made[-1][1] == unit:
            made[-1] = made[-1][0], unit + 1
        else:
            made.append((unit, unit + 1))
    return made
