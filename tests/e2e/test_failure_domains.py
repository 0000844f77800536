"""Real peers that say what they fail with: copies are kept elsewhere, and everybody can read why."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from peer.cli.status_plan import snapshot
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions
from peer.state.failure_domains import UNKNOWN, Surroundings, hashed, hazard_milli
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import options
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

MEMORY = 1 << 30
CUTS = (3,)  # of the tiny model's six units: two stages
PLACES = (
    ("one", "anna"),
    ("two", "ben"),
    ("one", "anna"),
    ("three", "ben"),
)  # machine and owner, in order of joining


async def test_the_standby_of_each_stage_is_elsewhere(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = build_model(open_gguf(TinyModel().write_gguf(tmp_path / "tiny.gguf"), "tiny"), "f32", store)
    promise = Founding(model, MeshOptions(256, 4, "latency", CUTS), ServerOptions())
    key = identity_from_seed(os.urandom(32))
    async with AsyncExitStack() as stack:
        meshes: list[MeshMember] = []
        for number, (machine, owner) in enumerate(PLACES):
            its = replace(options(f"peer{number}", MEMORY), machine=machine, owner=owner)
            entering = (
                join(meshes[0].link.url(), its, Store(tmp_path / its.name), compute=True)
                if meshes and meshes[0].link is not None
                else found(promise, its, store, key)
            )
            meshes.append(await stack.enter_async_context(entering))
        me = [mesh.me for mesh in meshes]

        def elsewhere(state: MeshState) -> bool:
            """Whether each stage has a standby, ready, that nothing takes together with its primary."""
            plan = state.serving()
            if plan is None or state.proposed is not None or route_of(plan) != (me[0], me[1]):
                return False
            if any(state.members[peer].profile is None for peer in me):
                return False
            places = {peer: set(_surroundings(state, peer).domains()) for peer in me}
            return all(
                any(
                    not places[peer] & places[stage.primary] and run in state.members[peer].held
                    for peer in stage.standbys
                )
                for stage in plan.stages
                for run in ((stage.first, stage.stop),)
            )

        assert await meshes[-1].view.until(elsewhere, WITHIN_S), meshes[0].view.state.plan
        data = await snapshot(meshes[-1])
        said = {member["peer"]: member["surroundings"] for member in data["members"]}
        for peer, (machine, owner) in zip(me, PLACES, strict=True):
            assert (said[peer]["machine"], said[peer]["owner"]) == (
                hashed("machine", key.id, machine),
                hashed("owner", key.id, owner),
            )
            assert said[peer]["hazard_milli"] >= hazard_milli("process", ())
        assert len(data["links"]) == len(me) * (len(me) - 1)
        assert {link["relayed"] for link in data["links"]} == {False}


def _surroundings(state: MeshState, peer: str) -> Surroundings:
    profile = state.members[peer].profile
    return profile.surroundings if profile is not None else UNKNOWN
