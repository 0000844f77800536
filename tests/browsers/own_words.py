"""Own words of a person on the page."""

from __future__ import annotations

from peer.cli.role import give
from peer.member.mesh_member import MeshMember


async def own(mesh: MeshMember) -> None:
    """The only tab that lends is an owner of the mesh from now on."""
    (tab,) = [peer for peer, one in mesh.view.state.members.items() if one.compute and peer != mesh.me]
    await give(mesh, tab, "owner")
