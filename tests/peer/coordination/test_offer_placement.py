"""Where offered models run: on whom, with which memory, what makes room for what, and what the log is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.coordination.offer_placement import (
    HANDLING_S_PER_BYTE,
    SHARED_BYTES_PER_S,
    Placement,
    placed,
    settle,
    wanted_in,
)
from peer.coordination.offer_promotion import promoted
from peer.state.failure_domains import Surroundings
from peer.state.generated.commands import (
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberPaused,
    ModelOffer,
    ModelOffered,
    ModelPlaced,
    ModelWithdrawn,
    PlanProposed,
    PlanRecord,
    PlanStage,
    PlanWished,
    Protection,
    ProtectionChosen,
    RunStage,
)
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from planner.types import Infeasible
from tests.peer.coordination.offered_models import (
    ASK,
    FLOPS,
    LEND,
    MIB,
    OWN,
    chain,
    grown,
    member,
    mesh,
    offered,
    settled,
    shown,
    stages_of,
    wanted,
)

SCRATCH = 2 * 4  # bytes of a unit of a chain: two values
BARE = ProtectionChosen(Protection(1000, False))


def placed_on(state: MeshState, **machines: str) -> MeshState:
    """The state where these members say on which machine they run."""
    members = dict(state.members)
    for peer, machine in machines.items():
        profile = members[peer].profile
        assert profile is not None
        members[peer] = replace(
            members[peer], profile=replace(profile, surroundings=Surroundings(machine=machine))
        )
    return replace(state, members=members)


def test_processes_of_one_machine_hand_values_over_in_its_memory() -> None:
    state = offered(placed_on(mesh(a=100, b=100, c=100, d=100), a="one", b="one", c="other"), "x")
    tabs = placed_on(grown(state, *member("e", 100, ["a"], provider="wasm")), e="one")
    rates = {frozenset((link.src, link.dst)): link.bytes_per_s for link in wanted(tabs).links}
    assert rates.pop(frozenset("ab")) == SHARED_BYTES_PER_S
    assert frozenset("ae") in rates
    assert set(rates.values()) == {min(rates.values())}
    assert max(rates.values()) <= 1 / HANDLING_S_PER_BYTE


def test_a_stream_goes_over_whole_models_side_by_side_where_that_is_faster() -> None:
    """A peer with all of it hands nothing on; where one has no room for all of it, stages share the work."""
    state = offered(grown(mesh(a=100, b=100), PlanWished("optimal", "throughput")), "x")
    found = settled(state, x=chain(*[1] * 8))["x"]
    assert isinstance(found, Placement)
    assert [(stage.first, stage.stop, len(stage.standbys)) for stage in found.stages] == [(0, 8, 1)]
    assert found.plan.why[0].startswith("A stream goes over 2 peers that hold all of it")
    again = grown(state, ModelPlaced("x", 9, found.stages, 1, 1, ()))
    assert settled(again, x=chain(*[1] * 8))["x"] == found
    little = offered(grown(mesh(a=100, b=6), PlanWished("optimal", "throughput")), "x")
    assert len(stages_of(settled(little, x=chain(*[1] * 8))["x"])) == 2


def test_an_offer_has_the_memory_that_the_mesh_s_own_model_leaves() -> None:
    state = offered(mesh(a=100, b=50), "x")
    moves = PlanRecord(
        2, (PlanStage(0, 4, "a", (), MIB, 0, MIB), PlanStage(4, 8, "b", ("a",), 5 * MIB, MIB)), 1, 1
    )
    free = {peer.peer: peer.free_bytes // MIB for peer in wanted(state).peers}
    assert free == {"a": 100 - 1 - 1, "b": 50 - 1}
    loading = grown(state, PlanProposed(moves))
    free = {peer.peer: peer.free_bytes // MIB for peer in wanted(loading).peers}
    assert free == {"a": 100 - 1 - 1 - 6, "b": 50 - 1 - 6}, "units of both plans, each once"


@pytest.mark.parametrize(
    ("commands", "speaks", "runs"),
    [
        ((), 5, True),
        ((), 4, False),
        (tuple(member("z", 50, provider="wasm")), 5, True),
        (tuple(member("z", 50, provider="wasm")), 4, False),
        ((MemberJoined("z", "Z", True, True),), 5, False),
        ((MemberJoined("z", "Z", False, True),), 5, False),
        ((MemberDraining("z", "the battery is low"),), 5, True),
        ((MemberPaused("z", "frozen"),), 5, False),
        ((MemberLeaving("z"),), 5, False),
        ((MemberLeft("z", "lost"),), 5, False),
    ],
)
def test_who_may_run_it(commands: tuple[Command, ...], speaks: int, runs: bool) -> None:
    state = grown(offered(mesh(a=100, z=50), "x"), *commands)
    found = wanted_in(state, lambda peer: speaks if peer == "z" else 5, FLOPS)
    assert found is not None
    assert ("z" in {peer.peer for peer in found.peers}) == runs


@pytest.mark.parametrize(
    ("dtype", "opset", "runs"),
    [
        ("float32", 0, "z"),
        ("float32", 26, "z"),
        ("string", 11, "z"),
        ("float32", 27, "a"),
        ("complex64", 17, "a"),
    ],
)
def test_a_tab_gets_no_unit_that_its_runtime_cannot_compute(dtype: str, opset: int, runs: str) -> None:
    state = grown(offered(mesh(a=40), "x"), *member("z", 500, ("a",), provider="wasm"), BARE)
    work = chain(30, 30)
    units = tuple(replace(unit, types=(dtype,)) for unit in work.units)
    found = settled(state, x=replace(work, units=units, opset=opset))["x"]
    if runs == "a":
        assert isinstance(found, Infeasible)
        assert "no memory would help" not in found.reason, "a process with room could"
        state = grown(state, *member("b", 500, ("a",)))
        found = settled(state, x=replace(work, units=units, opset=opset))["x"]
        assert {primary for _, _, primary, _ in stages_of(found)} <= {"a", "b"}
    assert ("z" in {primary for _, _, primary, _ in stages_of(found)}) == (runs == "z")


def test_nothing_is_placed_before_the_mesh_s_own_model_has_a_plan() -> None:
    state = grown(MeshState(), OWN, *member("a", 50), ModelOffered(ASK, "x"))
    assert wanted_in(state, lambda _: 5, FLOPS) is None
    assert wanted_in(replace(state, refused="5 MiB are missing"), lambda _: 5, FLOPS) is not None
    assert wanted_in(mesh(a=50), lambda _: 5, FLOPS) is None, "nothing is offered"


@pytest.mark.parametrize(
    ("protection", "standbys"),
    [
        (Protection(1000, False), 0),
        (Protection(1000, True), 1),
        (Protection(1500, False), 1),
        (Protection(2001, False), 2),
    ],
)
def test_standbys_are_as_the_protection_promises(protection: Protection, standbys: int) -> None:
    assert wanted(grown(offered(mesh(a=9), "x"), ProtectionChosen(protection))).standbys == standbys


def test_the_goal_of_the_mesh_is_that_of_its_offers() -> None:
    state = offered(mesh(a=9), "x")
    assert wanted(state).objective == "latency"
    assert wanted(grown(state, PlanWished("optimal", "throughput"))).objective == "throughput"


def test_a_model_that_fits_nobody_is_split_and_what_is_missing_is_said() -> None:
    state = grown(offered(mesh(a=22, b=22), "x"), BARE)
    found = settled(state, x=chain(15, 15))["x"]
    assert {stage[:2] for stage in stages_of(found)} == {(0, 1), (1, 2)}
    assert {stage[2] for stage in stages_of(found)} == {"a", "b"}
    lacks = settled(state, x=chain(15, 60))["x"]
    assert isinstance(lacks, Infeasible)
    assert "MiB more" in lacks.reason
    told = placed(state, "x", state.offers["x"], lacks)
    assert told is not None
    assert (told.stages, told.why) == ((), (lacks.reason,))
    after = grown(state, told)
    assert placed(after, "x", after.offers["x"], lacks) is None, "the log knows"


def test_what_a_stage_takes_is_told_with_it() -> None:
    found = settled(grown(offered(mesh(a=50), "x"), BARE), x=chain(7, 8))["x"]
    told = placed(offered(mesh(a=50), "x"), "x", ModelOffer(ASK), found)
    assert told is not None
    assert [stage.bytes for stage in told.stages] == [15 * MIB + 2 * 4]
    assert told.version > offered(mesh(a=50), "x").index
    assert told.why


def test_two_offers_share_the_peers() -> None:
    state = grown(offered(mesh(a=22, b=22), "x", "y"), BARE)
    found = settled(state, x=chain(15), y=chain(15))
    assert sorted(stages_of(found["x"]) + stages_of(found["y"])) == [(0, 1, "a", ()), (0, 1, "b", ())]


def test_offers_of_equal_models_run_on_the_same_peers_with_the_memory_of_one() -> None:
    state = offered(offered(mesh(a=22, b=22), "x"), "y", model=LEND)
    works = {ASK: chain(12, 12, content="same"), LEND: chain(12, 12, content="same")}
    found = settle(wanted(grown(state, BARE)), works)
    assert stages_of(found["x"]) == stages_of(found["y"])
    assert {stage[2] for stage in stages_of(found["x"])} == {"a", "b"}, "one of them alone takes both peers"
    apart = settle(wanted(grown(state, BARE)), {**works, LEND: chain(12, 12, content="other")})
    assert isinstance(apart["y"], Infeasible)


def test_an_offer_that_is_equal_to_one_that_runs_goes_where_that_one_is() -> None:
    state = placed_at(grown(offered(mesh(a=40, b=40), "z"), BARE), "z", RunStage(0, 1, "b", (), 30 * MIB))
    works = {ASK: chain(30, content="same"), LEND: chain(30, content="same")}
    found = settle(wanted(offered(state, "a", model=LEND)), works)
    assert stages_of(found["a"]) == stages_of(found["z"]) == [(0, 1, "b", ())]


def test_one_that_nobody_can_hold_is_refused_with_the_missing_bytes_and_the_others_go_on() -> None:
    state = grown(offered(mesh(a=40, b=40), "fits"), BARE)
    state = placed_at(state, "fits", RunStage(0, 1, "b", (), 30 * MIB + SCRATCH))
    state = offered(state, "huge", model=LEND)
    found = settle(wanted(state), {ASK: chain(30), LEND: chain(200)})
    refused = found["huge"]
    assert isinstance(refused, Infeasible)
    assert refused.missing_bytes == 200 * MIB + SCRATCH - 38 * MIB, "on a, which has most room left"
    assert refused.reason == "needs 163 MiB more on a; or another peer"
    assert stages_of(found["fits"]) == [(0, 1, "b", ())], "it stays"
    assert placed(state, "fits", state.offers["fits"], found["fits"]) is None, "the log hears nothing of it"
    told = placed(state, "huge", state.offers["huge"], refused)
    assert told is not None
    assert (told.stages, told.why) == ((), (refused.reason,))


def placed_at(state: MeshState, name: str, *stages: RunStage) -> MeshState:
    return grown(state, ModelPlaced(name, state.index + 1, stages, 1, 1, ("it was",)))


def test_a_new_model_takes_the_room_of_a_standby_and_of_nothing_else() -> None:
    state = placed_at(offered(mesh(a=22, b=22), "z"), "z", RunStage(0, 1, "b", ("a",), 15 * MIB))
    alone = settled(state, z=chain(15))
    assert stages_of(alone["z"]) == [(0, 1, "b", ("a",))]
    both = settle(wanted(offered(state, "new", model=LEND)), {ASK: chain(15), LEND: chain(15)})
    assert stages_of(both["z"]) == [(0, 1, "b", ())], "it stays where it is"
    assert stages_of(both["new"]) == [(0, 1, "a", ())]
    larger = settle(wanted(offered(state, "new", model=LEND)), {ASK: chain(15), LEND: chain(18, 15)})
    assert stages_of(larger["z"]) == [(0, 1, "b", ("a",))], "nobody gains by its standby's room"
    assert isinstance(larger["new"], Infeasible)


def test_a_model_stays_where_it_runs() -> None:
    state = placed_at(offered(mesh(a=50, b=50), "x"), "x", RunStage(0, 1, "b", ("a",), 15 * MIB + 8))
    found = settled(state, x=chain(15))["x"]
    assert stages_of(found) == [(0, 1, "b", ("a",))]
    assert placed(state, "x", state.offers["x"], found) is None


def test_it_makes_room_for_the_mesh_s_own_model() -> None:
    state = placed_at(grown(offered(mesh(a=50, b=50), "x"), BARE), "x", RunStage(0, 1, "b", (), 30 * MIB))
    grows = PlanRecord(2, (PlanStage(0, 4, "b", (), 40 * MIB, 0, MIB),), 1, 1)
    found = settled(grown(state, PlanProposed(grows)), x=chain(30))["x"]
    assert stages_of(found) == [(0, 1, "a", ())]


def test_who_drains_is_used_where_nobody_else_has_the_room() -> None:
    state = grown(offered(mesh(a=50, b=80), "x"), BARE, MemberDraining("b", "the battery is low"))
    assert stages_of(settled(state, x=chain(30))["x"]) == [(0, 1, "a", ())]
    assert stages_of(settled(state, x=chain(70))["x"]) == [(0, 1, "b", ())]


def test_what_is_not_known_of_a_model_changes_nothing_that_runs() -> None:
    state = placed_at(offered(mesh(a=50), "x"), "x", RunStage(0, 1, "a", (), 15 * MIB))
    found = settle(wanted(offered(state, "y", model=LEND)), {ASK: "the server is gone", LEND: chain(40)})
    assert "x" not in found
    assert isinstance(found["y"], Infeasible), "x still counts"
    new = settled(offered(mesh(a=50), "x"), x="the server is gone")["x"]
    assert new == Infeasible("the server is gone")


def test_a_result_for_another_model_or_for_who_is_gone_is_dropped() -> None:
    state = grown(offered(mesh(a=50, b=50), "x"), BARE)
    found = settled(state, x=chain(15))["x"]
    [(_, _, peer, _)] = stages_of(found)
    told = placed(state, "x", ModelOffer(ASK), found)
    assert told is not None
    assert placed(state, "x", ModelOffer(LEND), found) is None
    assert placed(state, "y", ModelOffer(ASK), found) is None
    assert placed(grown(state, MemberLeft(peer, "lost")), "x", ModelOffer(ASK), found) is None
    elsewhere = placed_at(state, "x", RunStage(0, 1, next(iter({"a", "b"} - {peer})), (), 15 * MIB))
    assert placed(elsewhere, "x", ModelOffer(ASK), found) is None, "it was placed meanwhile"
    assert placed(elsewhere, "x", elsewhere.offers["x"], found) is not None
    again = grown(elsewhere, ModelWithdrawn("x"), ModelOffered(ASK, "x"))
    assert placed(again, "x", elsewhere.offers["x"], found) is not None, "the same model, offered again"


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ((), None),
        (("c",), None),
        (("a",), [(0, 1, "b", ("c",)), (1, 2, "b", ("a",))]),
        (("a", "b"), [(0, 1, "c", ()), (1, 2, "b", ("a",))]),
        (("a", "b", "c"), None),
        (("b",), [(0, 1, "a", ("b", "c")), (1, 2, "a", ())]),
    ],
)
@pytest.mark.parametrize(
    "how", [MemberLeaving, lambda peer: MemberLeft(peer, "lost"), lambda p: MemberPaused(p, "")]
)
def test_who_stands_by_takes_over_at_once(
    lost: tuple[str, ...],
    expected: list[tuple[int, int, str, tuple[str, ...]]] | None,
    how: type[MemberLeaving],
) -> None:
    stages = (RunStage(0, 1, "a", ("b", "c"), 5), RunStage(1, 2, "b", ("a",), 7))
    state = placed_at(offered(mesh(a=50, b=50, c=50), "x"), "x", *stages)
    state = grown(state, *map(how, lost))
    told = promoted(state)
    if expected is None:
        assert told is None
        return
    assert told is not None
    assert shown(told.stages) == expected
    assert [stage.bytes for stage in told.stages] == [5, 7]
    after = grown(state, told)
    assert after.offers["x"].version == told.version
    assert promoted(after) is None
