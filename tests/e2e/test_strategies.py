"""Every strategy of the planner runs on a real mesh, with unsplit tokens, also where peers come back on a route."""

from __future__ import annotations

from dataclasses import replace

from peer.coordination.coordinator import plan_request
from peer.coordination.planner_goal import planner_wish
from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.session.sampling import Sampling
from peer.state.generated.commands import Group, MemberMeasured, PlanRecord, PlanWished
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from planner.model.manifest import decode_manifest
from planner.solvers import strategies
from planner.types import Stage
from tests.e2e.real_mesh import UNITS, Models, Start
from tests.e2e.unsplit import QUESTION, Unsplit, ask
from tests.patience import WITHIN_S

PEERS = 4
ROOM = 0.45  # of the whole model on each peer, so that three are needed at least
TOKENS = 6
GROUPS = (Group("low", 0, 20, "peer2"), Group("middle", 20, 44, "founder"), Group("high", 44, UNITS, "peer1"))
WISHES = (  # what needs the most stages comes last
    PlanWished("optimal", "latency"),
    PlanWished("hybrid", "latency"),
    PlanWished("layer", "memory"),
    PlanWished("pipeline", "balanced"),
    PlanWished("component", "latency", GROUPS),
    PlanWished("attention-ffn", "latency"),
)


async def narrowed(founder: MeshMember, models: Models) -> None:
    """Leaves every peer room for a part of the model only."""
    units = decode_manifest(models.store.manifest_bytes(models.ids["8bit"])).planner_units()
    view = founder.view
    assert await view.until(lambda state: all(m.profile for m in state.members.values()), WITHIN_S)
    model, coordinating = view.state.model, founder.leadership.current
    assert model is not None
    assert coordinating is not None
    kv = sum(unit.kv_bytes_per_token for unit in units) * model.context * model.sessions
    whole = sum(unit.weight_bytes for unit in units) + kv
    for peer, member in sorted(view.state.members.items()):
        assert member.profile is not None
        room = member.profile.overhead_bytes + round(ROOM * whole)
        coordinating.submit(MemberMeasured(peer, replace(member.profile, memory_bytes=room), ()))


def stages_of(plan: PlanRecord) -> tuple[Stage, ...]:
    return tuple(Stage(stage.first, stage.stop, stage.primary) for stage in plan.stages)


async def test_every_strategy_gives_the_unsplit_tokens(start: Start, models: Models) -> None:
    unsplit = Unsplit(models)
    async with start(None, PEERS, sessions=2) as meshes:
        founder = meshes[0]
        await narrowed(founder, models)
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        expected = unsplit.answer(prompt, TOKENS, Sampling())
        came_back = False
        for number, wish in enumerate(WISHES):
            await founder.propose(wish)

            def holds(state: MeshState, wish: PlanWished = wish) -> bool:
                plan, proposed = state.serving(), state.proposed
                if plan is None or proposed is not None or state.wish != wish or len(plan.stages) < 2:
                    return False
                request = plan_request(state, founder.manifest.planner_units())
                return strategies.keeps(request, planner_wish(state), stages_of(plan))

            assert await founder.view.until(holds, WITHIN_S), (wish, founder.view.state.plan)
            plan = founder.view.state.serving()
            assert plan is not None
            came_back |= len(set(route_of(plan))) < len(route_of(plan))
            asker = meshes[number % PEERS]
            assert await asker.view.until(lambda state, plan=plan: state.serving() == plan, WITHIN_S)
            assert await ask(asker, prompt, TOKENS, Sampling()) == expected, (wish, route_of(plan))
        assert came_back
