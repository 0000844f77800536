"""Why a mesh that serves no plan cannot answer now, for people and programs. Pure."""

from __future__ import annotations

from peer.state.decoder_sight import seen_as
from peer.state.display_names import named
from peer.state.mesh_state import AWAY, MeshState

PAUSED = "all machines that lend to it are paused: one has to go on lending"
NOBODY = "nobody lends a machine to it: one has to join"
LOADING = "its peers are still loading"
NOTHING = "nothing is offered yet, which shoal offer does"
NO_WORDS = "no model of this mesh answers in words"
NOT_OWN = "say which model is asked; these answer in words"


def why_not_ready(state: MeshState) -> str:
    """In a line, with names for ids; of a mesh that has no plan under way."""
    if state.model is None and state.members:
        return why_no_words(state)
    lending = [member.status for member in state.members.values() if member.compute]
    if not lending:
        return NOBODY
    if all(status == "paused" for status in lending):
        return PAUSED
    return named(state.refused, state.members) or LOADING


def runs_any(state: MeshState) -> bool:
    """Whether a model that the mesh offers has a place, and who runs it is there."""
    if any(seen_as(state, name).serving() is not None for name in state.decoders):
        return True
    return any(
        bool(offer.stages)
        and all(
            (member := state.members.get(stage.primary)) is not None and member.status not in AWAY
            for stage in offer.stages
        )
        for offer in state.offers.values()
    )


def why_no_words(state: MeshState) -> str:
    """The same of a mesh that was founded for other models alone: what it runs."""
    if state.decoders:
        return f"{NOT_OWN}: {', '.join(sorted(state.decoders))}"
    runs = f"shoal run asks {', '.join(sorted(state.offers))}" if state.offers else NOTHING
    return f"{NO_WORDS}: {runs}"
