"""Why a mesh that serves no plan cannot answer now, for people and programs. Pure."""

from __future__ import annotations

from peer.state.display_names import named
from peer.state.mesh_state import MeshState

PAUSED = "all machines that lend to it are paused: one has to go on lending"
NOBODY = "nobody lends a machine to it: one has to join"
LOADING = "its peers are still loading"


def why_not_ready(state: MeshState) -> str:
    """In a line, with names for ids; of a mesh that has no plan under way."""
    lending = [member.status for member in state.members.values() if member.compute]
    if not lending:
        return NOBODY
    if all(status == "paused" for status in lending):
        return PAUSED
    return named(state.refused, state.members) or LOADING
