"""What a plan in the log says of its peers: the route, teams, and who holds which units. Pure."""

from __future__ import annotations

from collections.abc import Collection

from peer.state.generated.commands import MAX_SHARE, HeldSlice, PlanRecord, PlanStage


def route_of(plan: PlanRecord) -> tuple[str, ...]:
    """The primary of each stage, in pipeline order."""
    return tuple(stage.primary for stage in plan.stages)


def team_of(stage: PlanStage) -> tuple[str, ...]:
    """Who computes the stage: its primary, which is the lead, and its helpers in the order of their slices."""
    return (stage.primary, *stage.helpers)


def computing_in(plan: PlanRecord) -> frozenset[str]:
    """Everybody without whom the plan cannot serve by its primaries: leads and helpers."""
    return frozenset(peer for stage in plan.stages for peer in team_of(stage))


def whole_holders(stage: PlanStage) -> tuple[str, ...]:
    """Who is to hold all of the stage's units: its primary, unless that is the lead of a team, and standbys."""
    return stage.standbys if stage.helpers else (stage.primary, *stage.standbys)


def slice_of(stage: PlanStage, peer: str) -> HeldSlice | None:
    """The slice that `peer` is to hold as a member of the stage's team; None: it is in none."""
    if not stage.helpers or peer not in team_of(stage):
        return None
    return HeldSlice(stage.first, stage.stop, team_of(stage).index(peer), stage.shares)


def holders_of(plan: PlanRecord) -> dict[str, frozenset[tuple[int, int]]]:
    """Which runs of units each peer must hold whole for this plan."""
    runs: dict[str, set[tuple[int, int]]] = {}
    for stage in plan.stages:
        for peer in whole_holders(stage):
            runs.setdefault(peer, set()).add((stage.first, stage.stop))
    return {peer: frozenset(ranges) for peer, ranges in runs.items()}


def slices_of(plan: PlanRecord) -> dict[str, frozenset[HeldSlice]]:
    """Which slices of units each member of a team must hold for this plan."""
    found: dict[str, set[HeldSlice]] = {}
    for stage in plan.stages:
        for peer in team_of(stage):
            if (part := slice_of(stage, peer)) is not None:
                found.setdefault(peer, set()).add(part)
    return {peer: frozenset(parts) for peer, parts in found.items()}


def team_fault(plan: PlanRecord, members: Collection[str]) -> str:
    """Why the teams of a plan cannot be, for people; "" where all can, as in a plan without any."""
    for number, stage in enumerate(plan.stages):
        team = team_of(stage)
        if not stage.helpers and not stage.shares:
            continue
        if len(stage.shares) != len(team) or not stage.helpers:
            return f"stage {number}: expected a share of each of {len(team)} members, got {len(stage.shares)}"
        if any(not 1 <= share <= MAX_SHARE for share in stage.shares):
            return f"stage {number}: expected shares from 1 to {MAX_SHARE}"
        if len({*team}) < len(team):
            return f"stage {number}: a peer is in its team twice"
        if {*team} & {*stage.standbys}:
            return f"stage {number}: a member of its team stands by for it"
        if strangers := [peer for peer in team if peer not in members]:
            return f"stage {number}: {strangers[0]} of its team is no member"
    return ""
