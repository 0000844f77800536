"""The state of the mesh as it looks to the parts that serve one further model that answers in words.

Pure; the same in web_peer/src/state/decoder_sight.ts. `model`, plans and what members hold are those of that model, so
that whatever serves the mesh's own serves it, too.
"""

from __future__ import annotations

from dataclasses import replace

from peer.state.generated.commands import ModelChosen, PlanWished
from peer.state.mesh_state import MeshState


def seen_as(state: MeshState, name: str) -> MeshState:
    """The state as if the model of that name were the mesh's own; one without a model where it is not offered (any
    more). Borders and components that were fixed by hand are of the mesh's own model alone.
    """
    found = state.decoders.get(name)
    if found is None:
        members = {peer: replace(member, held=(), slices=()) for peer, member in state.members.items()}
        return replace(
            state, model=None, members=members, plan=None, proposed=None, refused="", standbys={}, cuts=None
        )
    members = {
        peer: replace(member, held=found.held.get(peer, ()), slices=())
        for peer, member in state.members.items()
    }
    versions = (plan.version for plan in (found.plan, found.proposed) if plan is not None)
    return replace(
        state,
        model=ModelChosen(found.model, name, found.units, found.context, found.sessions, found.objective),
        members=members,
        plan=found.plan,
        proposed=found.proposed,
        last_version=max(versions, default=0),
        refused=found.refused,
        standbys={},
        cuts=None,
        wish=_wish(state.wish, found.objective == "throughput"),
    )


def _wish(wish: PlanWished | None, throughput: bool) -> PlanWished | None:
    if wish is None or wish.strategy != "component":
        return wish
    return PlanWished("optimal", "throughput" if throughput else wish.goal)
