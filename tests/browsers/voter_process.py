"""A peer in a process of its own, which a test can kill and start again: it votes soon, and keeps its log.

STORE STATE found MODEL SERVER MEMORY [FURTHER] prints the link, and offers FURTHER, a model that answers in words,
under the name `other`; whoever is called `asker` owns the mesh, too. STORE STATE join LINK NAME.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from functools import partial
from pathlib import Path

import peer.member.mesh_entry
from peer.coordination.coordinator_service import Coordinating
from peer.coordination.voter_policy import Patience
from peer.launch.tether import end_with_parent
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.state.generated.commands import DecoderOffered, RoleGiven
from peer.state.mesh_state import MeshState
from peer.state.protection import PRESETS
from peer.storage.peer_keys import kept_identity
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.invites import parse_link
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions

HASTY = Patience(settle_ms=300, long_ms=600, lost_ms=2000, calm_ms=300, again_ms=1000)
MEMORY = 1 << 30


async def founder(store: Store, state: Path, model: str, server: str, memory: int, *further: str) -> None:
    """Of a mesh whose key is drawn from the server's address, so that it is the same after a restart."""
    key = identity_from_seed(hashlib.sha256(server.encode()).digest())
    promise = Founding(
        model, MeshOptions(256, 2, "latency", None, PRESETS["high"]), ServerOptions(), meet=server
    )
    options = PeerOptions("founder", memory, 1, "cpu", "aiortc", ("127.0.0.1",))
    with kept_identity(state, key.id) as kept:
        async with found(promise, options, store, key, kept=kept) as mesh:
            assert mesh.link is not None
            for each in further:
                units = len(decode_manifest(store.manifest_bytes(each)).units)
                await mesh.propose(DecoderOffered("other", each, units, 256, 2, "latency"))
            print(mesh.link.url(), flush=True)
            crowning = asyncio.ensure_future(crowned(mesh))
            await mesh.ended.wait()
            crowning.cancel()


async def crowned(mesh: MeshMember) -> None:
    """Has whoever is called `asker` own the mesh, too."""

    def askers(state: MeshState) -> list[str]:
        return [peer for peer, member in state.members.items() if member.name == "asker"]

    while True:
        if await mesh.view.until(lambda state: bool(askers(state)), 1.0):
            for peer in askers(mesh.view.state):
                await mesh.propose(RoleGiven(peer, "owner"))
            return


async def joiner(store: Store, state: Path, link: str, name: str) -> None:
    options = PeerOptions(name, MEMORY, 1, "cpu", "aiortc", ("127.0.0.1",))
    with kept_identity(state, parse_link(link).mesh) as kept:
        async with join(link, options, store, compute=True, kept=kept) as mesh:
            print(mesh.me, flush=True)
            await mesh.ended.wait()


async def main(store: str, state: str, how: str, *words: str) -> None:
    if how == "found":
        model, server, memory, *further = words
        await founder(Store(Path(store)), Path(state), model, server, int(memory), *further)
    else:
        link, name = words
        await joiner(Store(Path(store)), Path(state), link, name)


if __name__ == "__main__":
    end_with_parent()
    vars(peer.member.mesh_entry)["Coordinating"] = partial(Coordinating, patience=HASTY)
    asyncio.run(main(*sys.argv[1:]))
