"""Stages that teams compute, over real data channels: the text is that of one peer, also when a member is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.session.sampling import Sampling
from peer.state.generated.commands import PlanProposed, PlanRecord, PlanStage, PlanWished
from peer.state.mesh_state import MeshState
from tests.e2e.real_mesh import UNITS, Models, Start, until
from tests.e2e.unsplit import QUESTION, Unsplit, ask
from tests.patience import WITHIN_S

TOKENS = 24


async def proposed(
    founder: MeshMember, members: Sequence[str], shares: Sequence[int], standbys: tuple[str, ...] = ()
) -> None:
    """Has a team of these peers, the lead first, compute the whole model."""
    version = founder.view.state.last_version + 1
    stage = PlanStage(0, UNITS, members[0], standbys, helpers=tuple(members[1:]), shares=tuple(shares))
    leading = founder.parts.leadership.current
    assert leading is not None
    leading.submit(PlanProposed(PlanRecord(version, (stage,), 1, 1)))
    async with asyncio.timeout(WITHIN_S):
        await until(lambda: (plan := founder.view.state.serving()) is not None and plan.version == version)


@pytest.mark.parametrize(("peers", "shares"), [(2, (1, 1)), (3, (2, 1, 1))])
async def test_a_team_answers_as_one_peer_does(
    start: Start, models: Models, peers: int, shares: tuple[int, ...]
) -> None:
    async with start((), peers, weights="f32", sessions=2) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        await proposed(founder, [meshes[1].me, founder.me, *(mesh.me for mesh in meshes[2:])], shares)
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        expected = Unsplit(models, "f32").answer(prompt, TOKENS, Sampling())
        got = await asyncio.gather(*(ask(mesh, prompt, TOKENS, Sampling()) for mesh in meshes[:2]))
        assert got == [expected] * 2


async def test_a_mesh_plans_the_team_that_is_wished_for(start: Start, models: Models) -> None:
    async with start(None, 2, weights="f32", sessions=2) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        await founder.propose(PlanWished("tensor", "latency"))

        def teamed(state: MeshState) -> bool:
            plan = state.serving()
            return plan is not None and any(stage.helpers for stage in plan.stages)

        for mesh in meshes:
            assert await mesh.view.until(teamed, WITHIN_S), (mesh.view.state.plan, mesh.view.state.refused)
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        expected = Unsplit(models, "f32").answer(prompt, TOKENS, Sampling())
        assert (
            await asyncio.gather(*(ask(mesh, prompt, TOKENS, Sampling()) for mesh in meshes))
            == [expected] * 2
        )
