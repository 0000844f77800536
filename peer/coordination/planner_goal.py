"""Decides what the planner is to be good at in a state of the mesh, and says it to people. Pure."""

from __future__ import annotations

from peer.state.generated.commands import PlanWished
from peer.state.mesh_state import MeshState
from planner.cost.objectives import Component, Wish


def wished(state: MeshState) -> PlanWished:
    """What the log says, or what the model's promise implies."""
    if state.wish is not None:
        return state.wish
    return PlanWished("optimal", state.model.objective if state.model is not None else "latency")


def planner_wish(state: MeshState) -> Wish:
    """In the planner's words. A component may prefer a peer by its id or by its name; of equal names the first id."""
    wish = wished(state)
    by_name = {member.name: peer for peer, member in sorted(state.members.items(), reverse=True)}
    components = tuple(
        Component(
            group.name,
            group.first,
            group.stop,
            group.prefers if group.prefers in state.members else by_name.get(group.prefers),
        )
        for group in wish.components
    )
    return Wish(wish.goal, wish.strategy, components=components, min_tensor_bytes=wish.min_tensor_bytes)


def wish_line(state: MeshState) -> str:
    """For people: "plans by the strategy layer, for latency"."""
    if state.cuts is not None:
        return f"borders fixed by hand at units {list(state.cuts)}"
    wish = wished(state)
    groups = ", ".join(
        f"{group.name} {group.first}-{group.stop - 1}" + (f" on {group.prefers}" if group.prefers else "")
        for group in wish.components
    )
    return f"plans by the strategy {wish.strategy}{f' ({groups})' if groups else ''}, for {wish.goal}"
