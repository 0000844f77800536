"""Three voters with links that work one way, or not between two of them: somebody leads, commands go through."""

from __future__ import annotations

import asyncio

import pytest

from peer.member.mesh_member import MeshMember
from peer.replication.leader_client import spelled
from peer.state.generated.commands import ConversationStarted
from peer.wire.generated.requests import PROPOSE, ProposeRequest
from tests.patience import WITHIN_S
from tests.peer.town import Town, town


async def three(here: Town) -> tuple[MeshMember, MeshMember, MeshMember]:
    """Three voters: who leads, and the two others."""
    meshes = [await here.found("a"), await here.join("b"), await here.join("c")]
    await here.until(lambda: all(here.voters(mesh) == ("a", "b", "c") for mesh in meshes))
    leader = here.leader()
    assert leader is not None
    first, second = (mesh for mesh in meshes if mesh is not leader)
    return leader, first, second


async def say(mesh: MeshMember, name: str) -> None:
    """Has the mesh remember something, whoever leads; it is committed then."""
    command = ConversationStarted(name, name, "", "", (), 1, mesh.me, mesh.me, "#3366cc")
    async with asyncio.timeout(WITHIN_S):
        await mesh.view.ask_leader(PROPOSE, ProposeRequest(spelled(command)))


def asks_for_votes(mesh: MeshMember) -> bool:
    replica = mesh.view.replica
    return replica is not None and replica.role in ("precandidate", "candidate")


@pytest.mark.parametrize("way", ["from the leader", "to the leader", "to the leader from both"])
async def test_a_link_that_works_one_way_only_stops_nothing(way: str) -> None:
    async with town() as here:
        leader, first, second = await three(here)
        a, b, c = leader.me, first.me, second.me
        here.deaf = {(a, b)} if way == "from the leader" else {(b, a)}
        if way == "to the leader from both":
            here.deaf.add((c, a))  # it reaches everybody, hears nobody, and must not go on leading
            await here.until(lambda: leader.view.replica is not None and not leader.view.replica.leads)
        elif way == "from the leader":
            await here.until(lambda: asks_for_votes(first))
        for number in range(3):
            await say(second, f"during-{number}")
        here.deaf.clear()
        await say(second, "after")
        wanted = {"during-0", "during-1", "during-2", "after"}
        await here.until(
            lambda: all(wanted <= m.view.state.conversations.keys() for m in here.members.values())
        )


@pytest.mark.parametrize("leads", [True, False])
async def test_a_bridge_between_two_that_do_not_hear_each_other_is_enough(leads: bool) -> None:
    async with town() as here:
        leader, first, second = await three(here)
        ends = (first, second) if leads else (leader, first)
        here.cut = {frozenset(mesh.me for mesh in ends)}
        if not leads:
            await here.until(lambda: asks_for_votes(first))  # it hears no leader, but the bridge does
        bridge = leader if leads else second
        for number in range(3):
            await say(bridge, f"during-{number}")
        here.cut.clear()
        wanted = {"during-0", "during-1", "during-2"}
        await here.until(
            lambda: all(wanted <= m.view.state.conversations.keys() for m in here.members.values())
        )
