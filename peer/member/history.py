"""The history of a mesh, as the member keeps it that founded the mesh."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from peer.coordination.chronicle import Chronicle
from peer.coordination.history_writer import follow_mesh
from peer.coordination.plan_forecast import Foresight, agent_of
from peer.member.mesh_member import MeshMember
from planner.history.writing import HistoryWriter


def keep_history(
    mesh: MeshMember, writer: HistoryWriter, foresight: Foresight
) -> AbstractContextManager[None]:
    """Writes what `mesh` goes through into its history, while the context lasts. The model is known."""
    units = mesh.manifest.planner_units() if mesh.manifest is not None else ()
    name = mesh.link.mesh if mesh.link is not None else ""
    chronicle = Chronicle(name, units, partial(agent_of, mesh.links), mesh.leadership.is_fresh)
    return follow_mesh(chronicle, mesh.view, mesh.stage, mesh.leadership, writer, foresight)
