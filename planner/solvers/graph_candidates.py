"""What the solvers of graphs share: which units move as one and where to, a placement and the key it is compared by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.graph_evaluator import Board, Place, held_bytes, play

# Smaller is better: bytes that do not fit; links that are missing and stages too many; the figure of the objective;
# peers; and the rest.
Key = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Atoms:
    """What moves as one, and where it may go: atoms[unit] is the atom of a unit, units[atom] its units."""

    atoms: tuple[int, ...]
    units: tuple[tuple[int, ...], ...]
    allowed: tuple[tuple[int, ...], ...]  # [atom]: peers, ascending


@dataclass(frozen=True, slots=True)
class Placement:
    """Stages by peers' places, with the key they are compared by."""

    places: tuple[Place, ...]
    key: Key

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return self.key[:2] == (0, 0)


def lacks(board: Board, places: Sequence[Place], missing: int) -> tuple[int, int]:
    """Bytes that the peers lack for these stages; links that are missing, and stages too many."""
    held = held_bytes(board, places)
    over = sum(max(0, need - free) for need, free in zip(held, board.free, strict=True))
    return over, missing + max(0, len(places) - board.request.most_stages)


def valued(board: Board, places: Sequence[Place]) -> Placement:
    """Those stages with their key."""
    played = play(board, places)
    peers = len({peer for _, _, peer in places})
    latency, period = played.latency_ps, played.period_ps
    lacking = lacks(board, places, len(played.missing))
    if board.request.objective == "latency":
        return Placement(tuple(places), (*lacking, latency, peers, len(places), period))
    return Placement(tuple(places), (*lacking, period, peers, latency, len(places)))
