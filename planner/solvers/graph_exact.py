"""Decides the best placement of a small graph: all of them, but for those that a bound rules out.

Units get a place in their order: in the stage of the unit before, in a new one on its peer, or on another peer. What is
placed bounds the whole: values cannot be there before the stages that make them have ended, on links without a queue;
what is not placed yet takes no less than on the peer that is fastest with it; a peer is busy for the sum of its stages.
Peers that can be exchanged for each other are tried once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from planner.cost.graph_evaluator import Board, Way
from planner.solvers.graph_candidates import Atoms, Key, Placement, valued

NODES: Final = (
    60_000  # partial placements looked at, about a second of a slow core; few graphs need half of them
)
SMALL: Final = 7.5  # decimal digits of the number of placements beyond which it is not tried


def is_small(board: Board) -> bool:
    """Whether trying is worth the time: by how many placements there are."""
    peers, units = len(board.names), len(board.needs)
    return math.log10(peers) + (units - 1) * math.log10(peers + 1) <= SMALL


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage as far as it goes by now; the next unit may join the last one."""

    first: int
    stop: int
    peer: int
    ready: int  # no earlier, as `end`
    end: int
    scratch: int
    tail: int  # what follows its end at least


class Exact:
    """One search over one board, from the best placement known."""

    def __init__(self, board: Board, atoms: Atoms, known: Placement, nodes: int = NODES) -> None:
        self.best = known
        self.nodes = nodes  # left
        self._board = board
        self._atoms = atoms
        self._count = len(board.needs)
        self._edges = board.request.work.edges
        self._peers = range(len(board.names))
        self._least = [
            min(board.busy[peer][unit + 1] - board.busy[peer][unit] for peer in atoms.allowed[atom])
            for unit, atom in enumerate(atoms.atoms)
        ]
        self._tails = self._all_tails()
        self._later = [0] * (self._count + 1)  # flops of a unit and all after it
        self._light = [0] * (self._count + 1)  # their weights
        for unit in reversed(range(self._count)):
            work = board.request.work.units[unit]
            self._later[unit] = self._later[unit + 1] + work.flops
            self._light[unit] = self._light[unit + 1] + work.weight_bytes
        self._rates = [board.peer(peer).flops_per_s for peer in self._peers]
        self._alike = [
            next((other for other in self._peers if other < peer and self._same(other, peer)), peer)
            for peer in self._peers
        ]
        self._where: list[int] = []
        self._stage_of: list[int] = []
        self._stages: list[_Stage] = []
        self._busy = [0] * len(board.names)
        self._held = [0] * len(board.names)
        self._links: dict[Way, int] = {}
        self._sent: dict[tuple[int, int], int] = {}  # (edge, peer): how many units caused it
        self._missing: dict[Way, int] = {}

    def solve(self) -> bool:
        """Whether `best` is proven now: no placement has a smaller key."""
        self._visit(0, 0)
        return self.nodes > 0

    def _all_tails(self) -> list[list[int]]:
        """[unit][border]: what follows the end of a unit at least, by its users from the border on, and the origin."""
        board, origin = self._board, self._board.origin
        tails = [[0] * (self._count + 1) for _ in range(self._count)]
        for unit in reversed(range(self._count)):
            home = 0
            for number in board.makes[unit]:
                edge = self._edges[number]
                if edge.returned and origin is not None and origin not in self._peers:
                    ways = [board.way(peer, origin) for peer in self._peers]
                    home = max(home, min(0 if way is None else way[0] + way[1][number] for way in ways))
                for user in edge.users:
                    follows = self._least[user] + tails[user][0]
                    for border in range(user + 1):
                        tails[unit][border] = max(tails[unit][border], follows)
            tails[unit] = [max(tail, home) for tail in tails[unit]]
        return tails

    def _same(self, a: int, b: int) -> bool:
        """Whether exchanging two peers changes nothing."""
        board = self._board
        if board.origin in (a, b) or (board.busy[a], board.steps[a], board.free[a]) != (
            board.busy[b],
            board.steps[b],
            board.free[b],
        ):
            return False
        if any((a in allowed) != (b in allowed) for allowed in self._atoms.allowed):
            return False
        others = [*self._peers, *([] if board.origin is None else [board.origin])]
        return board.way(a, b) == board.way(b, a) and all(
            board.way(a, other) == board.way(b, other) and board.way(other, a) == board.way(other, b)
            for other in others
            if other not in (a, b)
        )

    def _visit(self, unit: int, latency: int) -> None:
        """Places `unit` and all after it in every way. `latency`: no less, by what is placed."""
        if unit == self._count:
            found = valued(self._board, [(stage.first, stage.stop, stage.peer) for stage in self._stages])
            if found.key < self.best.key:
                self.best = found
            return
        atom = self._atoms.atoms[unit]
        fixed = next((self._where[each] for each in self._atoms.units[atom] if each < unit), None)
        used = set(self._where)
        for peer in self._atoms.allowed[atom] if fixed is None else (fixed,):
            if peer not in used and any(
                self._alike[other] == self._alike[peer] and other not in used for other in range(peer)
            ):
                continue
            for joins in (True, False) if unit and self._where[-1] == peer else (False,):
                if self.nodes <= 0:
                    return
                self._step(unit, latency, peer, joins=joins)

    def _step(self, unit: int, latency: int, peer: int, *, joins: bool) -> None:
        """Places `unit` in one way, goes on unless a bound rules that out, and takes it back."""
        self.nodes -= 1
        board, work = self._board, self._board.request.work.units[unit]
        number = len(self._stages) - joins
        sent: list[tuple[int, Way]] = []
        ready = 0
        for edge in board.needs[unit]:
            source = self._edges[edge].source
            if source is None:
                src, made = board.origin, 0
            elif self._stage_of[source] == number:
                continue
            else:
                src, made = self._where[source], self._stages[self._stage_of[source]].end
            ready = max(ready, made + (0 if src is None else self._send(edge, (src, peer), sent)))
        for edge in board.makes[unit]:
            if self._edges[edge].returned and board.origin is not None:
                self._send(edge, (peer, board.origin), sent)
        before = self._stages.pop() if joins else None
        busy = board.busy[peer][unit + 1] - board.busy[peer][unit]
        if before is None:
            busy += board.steps[peer]
            first, scratch, length = unit, work.scratch_bytes, busy
            held = work.weight_bytes + scratch
        else:
            first, scratch = before.first, max(before.scratch, work.scratch_bytes)
            ready, length = max(before.ready, ready), before.end - before.ready + busy
            held = work.weight_bytes + scratch - before.scratch
        tail = max(self._tails[each][unit + 1] for each in range(first, unit + 1))
        self._stages.append(_Stage(first, unit + 1, peer, ready, ready + length, scratch, tail))
        self._busy[peer] += busy
        self._held[peer] += held
        self._where.append(peer)
        self._stage_of.append(number)
        here = [stage for stage in self._stages if stage.peer == peer]
        in_turn = min(stage.ready for stage in here) + self._busy[peer] + min(stage.tail for stage in here)
        bound = max(latency, ready + length + tail, in_turn)
        if self._key(unit + 1, bound) < self.best.key:
            self._visit(unit + 1, bound)
        self._stage_of.pop()
        self._where.pop()
        self._held[peer] -= held
        self._busy[peer] -= busy
        self._stages.pop()
        if before is not None:
            self._stages.append(before)
        for edge, way in sent:
            self._unsend(edge, way)

    def _key(self, placed: int, latency: int) -> Key:
        """No placement that goes on from here has a smaller one."""
        board = self._board
        over = sum(max(0, held - free) for held, free in zip(self._held, board.free, strict=True))
        over = max(over, sum(self._held) + self._light[placed] - sum(board.free))
        busiest = max(max(self._busy), max(self._links.values(), default=0))
        work = sum(busy * rate for busy, rate in zip(self._busy, self._rates, strict=True))
        shared = (work + self._later[placed] * 1e12) / sum(self._rates)
        period = max(
            busiest, int(shared * (1 - 1e-9)) - self._count
        )  # less what floats and roundings may add
        peers, stages = len(set(self._where)), len(self._stages)
        broken = len(self._missing) + max(0, stages - board.request.most_stages)
        if board.request.objective == "latency":
            return over, broken, latency, peers, stages, period
        return over, broken, period, peers, latency, stages

    def _send(self, edge: int, way: Way, sent: list[tuple[int, Way]]) -> int:
        """How long a value is on its way at least; counts it on its link, once for each peer."""
        if way[0] == way[1]:
            return 0
        times = self._sent.get((edge, way[1]), 0)
        self._sent[edge, way[1]] = times + 1
        sent.append((edge, way))
        found = self._board.way(*way)
        if found is None:
            self._missing[way] = self._missing.get(way, 0) + 1
            return 0
        if not times:
            self._links[way] = self._links.get(way, 0) + found[1][edge]
        return found[0] + found[1][edge]

    def _unsend(self, edge: int, way: Way) -> None:
        self._sent[edge, way[1]] -= 1
        found = self._board.way(*way)
        if found is None:
            self._missing[way] -= 1
            if not self._missing[way]:
                del self._missing[way]
        elif not self._sent[edge, way[1]]:
            self._links[way] -= found[1][edge]
