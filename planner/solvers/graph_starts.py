"""Decides placements of a graph to begin a search with, by rules: quick, and seldom far off.

Each peer alone; list placement by earliest finish (HEFT: Topcuoglu, Hariri, Wu 2002) over the fastest two, three, …
peers; components of the model side by side, the largest first (LPT: Graham 1969); and runs of units in their order, by
speed or by room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from planner.cost.graph_evaluator import Board
from planner.solvers.graph_candidates import Atoms

SUBSETS: Final = 8  # peers of the largest list placement, beside that of all
SHARE: Final = 10  # a component of less than a tenth of the work goes where the fastest peer is


def starts(board: Board, atoms: Atoms) -> Iterable[list[int]]:
    """The peer of each unit, for each placement."""
    yield from _whole(board, atoms)
    yield from _listed(board, atoms)
    yield from _side_by_side(board, atoms)
    yield from _runs(board, atoms)


def _whole(board: Board, atoms: Atoms) -> Iterable[list[int]]:
    """Everything on one peer."""
    for peer in range(len(board.names)):
        if all(peer in allowed for allowed in atoms.allowed):
            yield [peer] * len(board.needs)


def _fastest(board: Board) -> list[int]:
    return sorted(range(len(board.names)), key=lambda peer: (board.busy[peer][-1], peer))


def _listed(board: Board, atoms: Atoms) -> Iterable[list[int]]:
    """List placements over the fastest peers, in the order of ranks and in that of the units."""
    fastest, rank, count = _fastest(board), _ranks(board), len(board.needs)
    orders = [sorted(range(count), key=lambda unit: (-rank[unit], unit)), list(range(count))]
    sizes = {min(size, len(fastest)) for size in (*range(2, SUBSETS + 1), len(fastest))}
    for size in sorted(sizes):
        for order in orders:
            yield _list(board, atoms, order, frozenset(fastest[:size]))


def _side_by_side(board: Board, atoms: Atoms) -> Iterable[list[int]]:
    """Each component whole, over the fastest peers: the largest first, each where it ends first; those of little work
    on the fastest. Bands of a picture wait for one another often, and only whole ones are worth moving.
    """
    units, fastest = board.request.work.units, _fastest(board)
    if not fastest:
        return
    work: dict[str, int] = {}
    for at, unit in enumerate(units):
        busy = board.busy[fastest[0]]
        work[unit.component] = work.get(unit.component, 0) + busy[at + 1] - busy[at]
    large = [name for name, each in work.items() if each * SHARE >= sum(work.values())]
    if len(large) < 2:
        return
    large.sort(key=lambda name: (-work[name], name))
    for size in range(2, min(SUBSETS, len(fastest), len(large)) + 1):
        free = dict.fromkeys(fastest[:size], 0.0)
        place = dict.fromkeys(work, fastest[0])
        for name in large:
            ends = {
                peer: load + work[name] * board.busy[peer][-1] / max(1, board.busy[fastest[0]][-1])
                for peer, load in free.items()
            }
            place[name] = min(ends, key=lambda peer: (ends[peer], fastest.index(peer)))
            free[place[name]] = ends[place[name]]
        where = [-1] * len(units)
        for at, unit in enumerate(units):
            atom, peer = atoms.atoms[at], place[unit.component]
            if where[at] < 0:
                for each in atoms.units[atom]:
                    where[each] = peer if peer in atoms.allowed[atom] else atoms.allowed[atom][0]
        yield where


def _ranks(board: Board) -> list[float]:
    """Mean time from the begin of each unit to the end of all."""
    edges, count = board.request.work.edges, len(board.needs)
    peers = range(len(board.names))
    ways = [way for a in peers for b in peers if (way := board.way(a, b)) is not None]
    rank = [0.0] * count
    for unit in reversed(range(count)):
        tail = 0.0
        for number in board.makes[unit]:
            hop = sum(delay + sent[number] for delay, sent in ways) / max(1, len(ways))
            tail = max([tail, *(hop / 2 + rank[user] for user in edges[number].users)])
        rank[unit] = tail + sum(board.busy[p][unit + 1] - board.busy[p][unit] for p in peers) / len(peers)
    return rank


def _list(board: Board, atoms: Atoms, order: Sequence[int], peers: frozenset[int]) -> list[int]:
    """Each unit in turn where it ends first, among those that have room."""
    edges, count = board.request.work.edges, len(board.needs)
    where, ends = [-1] * count, [0] * count
    free, held = [0] * len(board.names), [0] * len(board.names)
    for unit in order:
        atom = atoms.atoms[unit]
        size = sum(board.stage_bytes(each, each + 1) for each in atoms.units[atom])
        placed = next((where[each] for each in atoms.units[atom] if where[each] >= 0), -1)
        choices = (
            [placed] if placed >= 0 else [p for p in atoms.allowed[atom] if p in peers] or atoms.allowed[atom]
        )
        best: tuple[int, int, int] | None = None
        for peer in choices:
            ready = 0
            for number in board.needs[unit]:
                source = edges[number].source
                src, made = (board.origin, 0) if source is None else (where[source], ends[source])
                if src is not None and src != peer:
                    way = board.way(src, peer)
                    made += way[0] + way[1][number] if way else 1 << 60
                ready = max(ready, made)
            follows = unit > 0 and where[unit - 1] == peer
            step = 0 if follows else board.steps[peer]
            end = max(ready, free[peer]) + step + board.busy[peer][unit + 1] - board.busy[peer][unit]
            short = 0 if placed >= 0 else max(0, held[peer] + size - board.free[peer])
            best = min(best or (short, end, peer), (short, end, peer))
        assert best is not None  # every atom has a peer
        where[unit], ends[unit], free[best[2]] = best[2], best[1], best[1]
        if placed < 0:
            held[best[2]] += size
    return where


def _runs(board: Board, atoms: Atoms) -> Iterable[list[int]]:
    """Runs in the order of units: by speed, the fastest few peers; and by room, most first."""
    fastest, count = _fastest(board), len(board.needs)
    roomy = sorted(range(len(board.names)), key=lambda peer: (-board.free[peer], peer))
    orders = [fastest[:size] for size in range(2, min(SUBSETS, len(fastest)) + 1)]
    for peers in (*orders, fastest, roomy):
        speed = [1 / max(1, board.busy[peer][-1]) for peer in peers]
        where = [-1] * count
        at, held, done = 0, 0, 0.0
        for unit in range(count):
            atom = atoms.atoms[unit]
            if where[unit] >= 0:
                continue
            size = sum(board.stage_bytes(each, each + 1) for each in atoms.units[atom])
            share = speed[at] / sum(speed)
            full = held + size > board.free[peers[at]]
            if at + 1 < len(peers) and unit and (full or (done >= share and peers is not roomy)):
                at, held, done = at + 1, 0, 0.0
            peer = peers[at] if peers[at] in atoms.allowed[atom] else atoms.allowed[atom][0]
            for each in atoms.units[atom]:
                where[each] = peer
                held += board.stage_bytes(each, each + 1)
                whole = max(1, board.busy[peer][-1])
                done += (board.busy[peer][each + 1] - board.busy[peer][each]) / whole
        yield where
