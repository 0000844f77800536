"""What searches make smaller: the figure of the goal of one path, after the bounds that it breaks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from planner.cost import objectives
from planner.cost.objectives import MOST_STAGES, Wish
from planner.errors import RequestError
from planner.solvers.lattice import Lattice, cut
from planner.solvers.network import INF, Path
from planner.types import PlanRequest

BROKEN: Final = 1e18  # an energy at least this high breaks a bound; above that of any path that keeps them
NEVER: Final = float("inf")  # it cannot run at all


@dataclass(slots=True)
class Energy:
    """The energy of paths over `view`, each computed once: picoseconds a token for the goals of latency and
    throughput, else a share. `evaluations` counts the paths that were valued.
    """

    view: Lattice
    request: PlanRequest
    wish: Wish
    evaluations: int = 0
    _known: dict[Path, float] = field(default_factory=dict)
    _cuts: dict[tuple[int, ...], Path | None] = field(default_factory=dict)

    def of(self, path: Path) -> float:
        """Smaller is better; NEVER for a path that cannot run."""
        found = self._known.get(path)
        if found is None:
            self.evaluations += 1
            found = self._known[path] = self._value(path)
        return found

    @property
    def is_quick(self) -> bool:
        """Whether the latency of a path is all there is to value, which takes microseconds."""
        return not self.wish.rate_floor and self.wish.goal == "latency"

    def better(self, one: Path | None, other: Path | None) -> Path | None:
        """The one of less energy; of equals the one with fewer stages, then the smaller one."""
        able = [path for path in (one, other) if path is not None and self.of(path) < NEVER]
        return min(able, key=self.key, default=None)

    def key(self, path: Path) -> tuple[float, int, Path]:
        """For sorting."""
        return self.of(path), len(path), path

    def cut(self, path: Path) -> Path:
        """The same peers in the same order with the borders of least latency, where that is better."""
        order = tuple(peer for peer, _ in path)
        if order not in self._cuts:
            self._cuts[order] = cut(self.view, order)
        best = self.better(path, self._cuts[order])
        return path if best is None else best

    def _value(self, path: Path) -> float:
        latency = self.view.value(path)
        if latency >= INF or len(path) > MOST_STAGES:
            return NEVER
        if self.is_quick and len(path) <= (self.wish.most_stages or MOST_STAGES):
            late = self.wish.decode_cap_s is not None and latency > self.wish.decode_cap_s * 1e12
            return latency + (BROKEN if late else 0.0)
        try:
            found = objectives.figures(self.request, self.view.stages(self.request, path))
        except RequestError:
            return NEVER
        return objectives.figure(self.wish, found) + (
            BROKEN if objectives.refusals(self.wish, found) else 0.0
        )
