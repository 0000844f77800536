"""Decides from each entry of a mesh's log whether all units are held that a plan or an answer counts on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from peer.state.generated.commands import PlanRecord
from peer.state.mesh_state import MeshState, apply_entry
from peer.state.plan_record import route_of

Way = tuple[int, Sequence[str]]  # the version of the plan that an answer goes over, and its peers


class Coverage:
    """Follows the log from `state` on. `ways` are those of the answers that run."""

    def __init__(self, state: MeshState, ways: Callable[[], Iterable[Way]] = tuple) -> None:
        self._state = state
        self._ways = ways
        self._plans: dict[int, PlanRecord] = {}
        self.entries = 0
        self.gaps: list[str] = []  # what was uncovered, at which entry

    def entry(self, data: bytes) -> None:
        """A committed command."""
        self._state = apply_entry(self._state, data)
        self.entries += 1
        plan = self._state.plan
        if plan is None:
            return
        self._plans[plan.version] = plan
        for version, peers in {
            (plan.version, tuple(route_of(plan))),
            *((v, tuple(p)) for v, p in self._ways()),
        }:
            over = self._plans.get(version)
            for stage, peer in zip(over.stages if over is not None else (), peers, strict=False):
                member = self._state.members.get(peer)
                if member is None or (stage.first, stage.stop) not in member.held:
                    units = f"units {stage.first}-{stage.stop - 1} of plan {version}"
                    self.gaps.append(f"entry {self._state.index}: {peer[:8]} does not hold {units}")


def other_cuts(cuts: Sequence[int], units: int) -> tuple[tuple[int, ...], ...]:
    """Other ways to cut where `cuts` are: one border moved, all of them, two stages made one, one stage made two."""
    borders = (0, *cuts, units)
    widths = [stop - first for first, stop in pairwise(borders)]
    shift = max(1, min(widths) // 3)
    found = [(*cuts[:-1], cuts[-1] - shift), tuple(cut - shift for cut in cuts)]
    if len(cuts) > 1:
        found.append(tuple(cuts[1:]))
    found.append((max(1, cuts[0] // 2), *cuts))
    return tuple(dict.fromkeys(found))
