"""What a plan in the log says of its peers: the route, and who holds which units. Pure."""

from __future__ import annotations

from peer.state.generated.commands import PlanRecord


def route_of(plan: PlanRecord) -> tuple[str, ...]:
    """The primary of each stage, in pipeline order."""
    return tuple(stage.primary for stage in plan.stages)


def holders_of(plan: PlanRecord) -> dict[str, frozenset[tuple[int, int]]]:
    """Which runs of units each peer must hold for this plan."""
    runs: dict[str, set[tuple[int, int]]] = {}
    for stage in plan.stages:
        for peer in (stage.primary, *stage.standbys):
            runs.setdefault(peer, set()).add((stage.first, stage.stop))
    return {peer: frozenset(ranges) for peer, ranges in runs.items()}
