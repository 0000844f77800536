"""The log: every command changes the state as told, on every peer alike, and survives the wire or is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import get_args

import pytest

from peer.coordination.coordinator import Coordinator, check_cuts
from peer.errors import BadCommand
from peer.state.generated.commands import (
    HeldSlice,
    LinkFacts,
    MemberCommand,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MemberRenamed,
    ModelChosen,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    Profile,
    Protection,
    ProtectionChosen,
    RoleGiven,
    UnitsHeld,
)
from peer.state.member_commands import Command, decode_command, encode_command
from peer.state.mesh_state import MeshState, apply, decode_state, encode_state, refusal
from peer.state.plan_record import holders_of, route_of
from peer.state.proposal_rights import may_say
from planner.solvers.placement import plan
from planner.types import Infeasible, Unit

MIB = 1 << 20
UNITS = (
    Unit("embed", "embed", 0, 0, 0, 64),
    Unit("attn.0", "attn", 10 * MIB, 0, 1024, 64),
    Unit("ffn.0", "ffn", 20 * MIB, 0, 0, 64),
    Unit("attn.1", "attn", 10 * MIB, 0, 1024, 64),
    Unit("ffn.1", "ffn", 20 * MIB, 0, 0, 64),
    Unit("head", "head", 40 * MIB, 0, 0, 4),
)
KINDS = {"embed": 1000, "attn": 2000, "ffn": 3000, "head": 4000}
MODEL = ModelChosen("a" * 64, "toy", len(UNITS), 128, 2, "latency")


def profile(memory_mib: int) -> Profile:
    return Profile(memory_mib * MIB, 10 * MIB, KINDS, KINDS, KINDS, 500, "cpu", 1)


def links(peer: str, others: list[str]) -> tuple[LinkFacts, ...]:
    there = [LinkFacts(peer, other, 1000, 10_000_000, 0) for other in others]
    return (*there, *(LinkFacts(x.dst, x.src, 1000, 10_000_000, 0) for x in there))


PLAN = PlanRecord(3, (PlanStage(0, 3, "a", ("c",), 1, 2, 3), PlanStage(3, 6, "b")), 12, 34, ("because",))
EXAMPLES: tuple[Command, ...] = (
    MODEL,
    MemberJoined("a", "Ada's laptop", True, True, True, 2),
    MemberMeasured("a", profile(100), links("a", ["b"])),
    PlanProposed(PLAN),
    UnitsHeld("a", ((0, 3),), (HeldSlice(3, 6, 1, (2, 1)),)),
    PlanActivated(3),
    PlanRefused("needs 5 MiB more"),
    MemberDraining("a", "the tab is hidden"),
    MemberPaused("a", "the tab is hidden"),
    MemberRenamed("a", "Ada's desk"),
    MemberLeaving("a"),
    MemberLeft("a", "lost"),
    ProtectionChosen(Protection(2000, False, "shadow", "parallel", priority=("head", "embed"))),
)


def grown(commands: list[Command]) -> MeshState:
    state = MeshState(term=1)
    for command in commands:
        state = apply(state, command)
    return state


def test_every_command_has_an_example() -> None:
    assert {type(command) for command in EXAMPLES} == set(get_args(MemberCommand))


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_commands_survive_the_wire(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


def test_states_survive_the_wire() -> None:
    state = grown(list(EXAMPLES[:5]))
    assert decode_state(encode_state(state)) == state
    assert apply(decode_state(encode_state(state)), PlanActivated(3)) == apply(state, PlanActivated(3))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "object"),
        (b'{"version":1}', "kind"),
        (b'{"kind":["PlanActivated"]}', "kind"),
        (b'{"kind":"PlanActivated"}', "version"),
        (b'{"kind":"PlanActivated","version":-1}', "integer"),
        (b'{"kind":"PlanActivated","version":1.5}', "integer"),
        (b'{"kind":"PlanActivated","version":true}', "integer"),
        (b'{"kind":"PlanActivated","version":1,"more":2.5}', "JSON"),
        (b'{"kind":"MemberLeaving","peer":7}', "string"),
        (json.dumps({"kind": "MemberLeaving", "peer": "x" * 513}).encode(), "512"),
        (b'{"kind":"UnitsHeld","peer":"a","held":[[3,3]]}', "first < stop"),
        (b'{"kind":"UnitsHeld","peer":"a","held":[[1]]}', "pairs"),
        (b'{"kind":"MemberJoined","peer":"a","name":"b","compute":1}', "true or false"),
        (b'{"kind":"PlanProposed","plan":null}', "object"),
    ],
)
def test_broken_commands_are_refused_by_name(body: bytes, word: str) -> None:
    with pytest.raises(BadCommand, match=word):
        decode_command(body)


def test_ten_thousand_mutations_raise_only_bad_command() -> None:
    rng = random.Random(7)
    state = encode_state(grown(list(EXAMPLES[:5])))
    encoded = [*(encode_command(command) for command in EXAMPLES)]
    for _ in range(10_000):
        body = bytearray(rng.choice([*encoded, state]))
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(body))
            match rng.randrange(3):
                case 0:
                    body[place] = rng.randrange(256)
                case 1:
                    del body[place:]
                    body += b" "
                case _:
                    body.insert(place, rng.choice(b'0123456789"{}[],:-.e'))
        for decode in (decode_command, decode_state):
            try:
                decode(bytes(body))
            except BadCommand:
                continue


def test_commands_about_strangers_change_nothing_but_the_index() -> None:
    state = grown([MODEL])
    for command in (UnitsHeld("x", ((0, 1),)), MemberLeaving("x"), MemberMeasured("x", profile(1), ())):
        after = apply(state, command)
        assert after.index == state.index + 1
        assert after.members == {}
        assert after.links == ()


# --- the coordinator -------------------------------------------------------------------------------------------------


class Mesh:
    """A coordinator, its planner, and a follower that sees the log only."""

    def __init__(self, cuts: tuple[int, ...] | None = None) -> None:
        self.core = Coordinator("a", UNITS, cuts)
        self.follower = MeshState(cuts=cuts)
        self.submit(MODEL)

    def submit(self, command: Command) -> None:
        self.see(self.core.submit(command))

    def see(self, log: list[Command]) -> None:
        for command in log:
            self.follower = apply(self.follower, decode_command(encode_command(command)))
        assert self.follower == self.core.state

    def replan(self) -> None:
        while (wanted := self.core.wanted()) is not None:
            result = self.core.by_hand(wanted.request) or plan(wanted.request)
            self.see(self.core.planned(wanted, result))

    def join(self, peer: str, memory_mib: int) -> None:
        others = [name for name, member in self.core.state.members.items() if member.compute]
        self.submit(MemberJoined(peer, peer.upper(), True))
        self.submit(MemberMeasured(peer, profile(memory_mib), links(peer, others)))
        self.replan()

    def load(self, *peers: str) -> None:
        proposed = self.core.state.proposed or self.core.state.plan
        assert proposed is not None
        for peer in peers:
            self.submit(UnitsHeld(peer, tuple(sorted(holders_of(proposed).get(peer, ())))))

    @property
    def route(self) -> tuple[str, ...]:
        serving = self.core.state.serving()
        return route_of(serving) if serving is not None else ()


def test_a_plan_takes_over_when_every_primary_holds_its_units() -> None:
    mesh = Mesh()
    mesh.join("a", 70)
    assert "more" in mesh.core.state.refused
    mesh.join("b", 80)
    assert mesh.core.state.proposed is not None
    assert mesh.route == ()
    mesh.load("a")
    assert mesh.route == ()
    mesh.load("b")
    assert set(mesh.route) == {"a", "b"}
    assert mesh.core.state.proposed is None


def test_a_later_peer_becomes_a_standby_and_takes_over_without_loading() -> None:
    mesh = Mesh()
    mesh.join("a", 5)  # too little for anything
    mesh.join("b", 200)
    mesh.load("b")
    assert mesh.route == ("b",)
    mesh.join("c", 200)
    mesh.load("b", "c")
    plan_now = mesh.core.state.serving()
    assert plan_now is not None
    assert plan_now.stages[0].standbys
    version = plan_now.version
    primary = route_of(plan_now)[0]
    mesh.submit(MemberLeaving(primary))
    assert mesh.route == tuple({"b", "c"} - {primary})
    assert mesh.core.state.last_version > version


def test_without_a_holder_there_is_no_route_until_somebody_loads() -> None:
    mesh = Mesh(cuts=(3,))
    mesh.submit(ProtectionChosen(Protection(1000, False)))
    mesh.join("a", 200)
    assert "2 peers" in mesh.core.state.refused
    mesh.join("b", 200)
    mesh.load("a", "b")
    assert mesh.route == ("a", "b")
    mesh.submit(MemberLeft("b", "gone"))
    mesh.replan()
    assert mesh.route == ()
    mesh.join("c", 200)
    mesh.load("a", "c")
    assert mesh.route == ("a", "c")


def test_a_peer_lost_while_loading_ends_that_proposal() -> None:
    mesh = Mesh()
    mesh.join("a", 70)
    mesh.join("b", 80)
    mesh.submit(MemberLeft("b", "gone"))
    assert mesh.core.state.proposed is None
    assert "gone" in mesh.core.state.refused
    mesh.replan()
    mesh.join("b", 80)
    mesh.load("a", "b")
    assert set(mesh.route) == {"a", "b"}


def test_a_late_planner_result_for_older_members_is_dropped() -> None:
    mesh = Mesh()
    mesh.submit(MemberJoined("a", "A", True))
    mesh.submit(MemberMeasured("a", profile(500), ()))
    stale = mesh.core.wanted()
    assert stale is not None
    mesh.submit(MemberJoined("b", "B", True))
    mesh.submit(MemberMeasured("b", profile(500), links("b", ["a"])))
    fresh = mesh.core.wanted()
    assert fresh is not None
    assert mesh.core.planned(stale, Infeasible("old")) == []
    assert mesh.core.state.refused == ""
    mesh.see(mesh.core.planned(fresh, plan(fresh.request)))
    assert mesh.core.state.proposed is not None


@pytest.mark.parametrize("cuts", [(0,), (6,), (3, 3), (4, 2), (-1,)])
def test_cuts_outside_the_model_are_refused(cuts: tuple[int, ...]) -> None:
    with pytest.raises(BadCommand, match="cuts"):
        check_cuts(cuts, len(UNITS))


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_followers_agree_and_versions_only_rise(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh()
    versions = [0]
    for _ in range(60):
        here = sorted(mesh.core.state.members)
        match rng.randrange(5):
            case 0 if len(here) < 5:
                free = [name for name in "abcde" if name not in here]
                mesh.join(rng.choice(free), rng.choice([5, 60, 90, 200]))
            case 1 if here:
                mesh.submit(MemberLeft(rng.choice(here), "gone"))
            case 2 if here:
                mesh.submit(MemberLeaving(rng.choice(here)))
            case _ if here and (mesh.core.state.proposed or mesh.core.state.plan):
                mesh.load(rng.choice(here))
        mesh.replan()
        serving = mesh.core.state.serving()
        if serving is not None:
            assert all(mesh.core.state.members[peer].status == "measured" for peer in route_of(serving))
        versions.append(mesh.core.state.last_version)
    assert versions == sorted(versions)


def test_a_paused_member_stays_and_comes_back_by_measuring() -> None:
    profile = Profile(MIB, 0, {}, {}, {}, 0, "wasm", 1)
    plan = PlanRecord(1, (PlanStage(0, 4, "a"),), 1, 1)
    state = MeshState()
    for command in (
        ModelChosen("m", "toy", 4, 64, 1, "latency"),
        MemberJoined("a", "tab", True),
        MemberMeasured("a", profile, ()),
        PlanProposed(plan),
        UnitsHeld("a", ((0, 4),)),
        PlanActivated(1),
    ):
        state = apply(state, command)
    assert state.serving() == plan
    paused = apply(state, MemberPaused("a", "the tab is hidden"))
    assert paused.members["a"].status == "paused"
    assert paused.members["a"].held == ((0, 4),)
    assert paused.serving() is None
    assert apply(paused, MemberMeasured("a", profile, ())).serving() == plan
    leaving = apply(paused, MemberLeaving("a"))
    assert apply(leaving, MemberPaused("a", "late")).members["a"].status == "leaving"


NAMES = (
    ("Ada's desk", ""),
    ("😀" * 64, ""),
    ("", "1 to 64 characters, got 0"),
    ("x" * 65, "1 to 64 characters, got 65"),
    ("a\x1b[2J", "without control characters"),
    ("a\nb", "without control characters"),
    ("a\u202eb", "without control characters"),
    ("a\u2028b", "without control characters"),
)


@pytest.mark.parametrize(("name", "fault"), NAMES)
def test_a_member_is_called_otherwise_by_a_name_that_it_could_join_with(name: str, fault: str) -> None:
    state = grown([MODEL, MemberJoined("a", "Ada's laptop", True), MemberMeasured("a", profile(1), ())])
    renamed = MemberRenamed("a", name)
    after = apply(state, renamed)
    assert fault in refusal(state, renamed)
    assert bool(fault) == bool(refusal(state, renamed))
    assert after.members["a"] == replace(state.members["a"], name="Ada's laptop" if fault else name)
    assert after.index == state.index + 1


def test_a_member_alone_says_what_it_is_called() -> None:
    state = grown(
        [MODEL, MemberJoined("a", "x", True), MemberJoined("b", "y", True), RoleGiven("b", "owner")]
    )
    assert may_say(state, "a", MemberRenamed("a", "z")) == ""
    assert may_say(state, "b", MemberRenamed("a", "z")) != ""
    assert refusal(state, MemberRenamed("gone", "z")) == "there is no such member"


def test_who_lends_less_says_why_until_it_measures_again() -> None:
    profile = Profile(MIB, 0, {}, {}, {}, 0, "wasm", 1)
    joined = apply(MeshState(), MemberJoined("a", "tab", True))
    back = MemberMeasured("a", profile, ())
    measured = apply(joined, back)
    drains, pauses = MemberDraining("a", "the battery is low"), MemberPaused("a", "the network is gone")
    for state, command, status in (
        (joined, drains, "joining"),
        (joined, pauses, "paused"),
        (apply(MeshState(), MemberJoined("a", "asks", False)), pauses, "joining"),
        (measured, drains, "draining"),
        (apply(measured, drains), MemberDraining("a", "the tab is hidden"), "draining"),
        (apply(measured, drains), pauses, "paused"),
        (apply(measured, pauses), MemberPaused("a", "its tab is frozen"), "paused"),
        (apply(measured, pauses), drains, "paused"),
        (apply(measured, MemberLeaving("a")), drains, "leaving"),
    ):
        member = apply(state, command).members["a"]
        changed = member != state.members["a"]
        assert (member.status, member.reason) == (status, command.reason if changed else member.reason)
        again = apply(apply(state, command), back).members["a"]
        assert (again.status, again.reason) == ("leaving" if status == "leaving" else "measured", "")


def test_pause_and_another_pledge_call_for_new_plans() -> None:
    coordinator = Coordinator("a", UNITS)
    coordinator.submit(ModelChosen("m", "toy", len(UNITS), 64, 1, "latency"))
    for peer in ("a", "b"):
        coordinator.submit(MemberJoined(peer, peer, True))
        coordinator.submit(MemberMeasured(peer, Profile(64 * MIB, 0, {}, {}, {}, 0, "cpu", 1), ()))

    def asked() -> tuple[str, ...] | None:
        wanted = coordinator.wanted()
        return None if wanted is None else tuple(peer.peer for peer in wanted.request.peers)

    assert asked() == ("a", "b")
    assert asked() is None
    coordinator.submit(MemberPaused("b", "the battery is low"))
    assert asked() == ("a",)
    coordinator.submit(MemberMeasured("b", Profile(64 * MIB, 0, {}, {}, {}, 0, "cpu", 1), ()))
    assert asked() == ("a", "b")
    coordinator.submit(MemberMeasured("b", Profile(32 * MIB, 0, {}, {}, {}, 0, "cpu", 1), ()))
    assert asked() == ("a", "b")


def test_a_draining_member_serves_on_only_while_nobody_else_can() -> None:
    coordinator = Coordinator("a", UNITS)
    coordinator.submit(ModelChosen("m", "toy", len(UNITS), 64, 1, "latency"))

    def comes(peer: str) -> None:
        if peer not in coordinator.state.members:
            coordinator.submit(MemberJoined(peer, peer, True))
        coordinator.submit(MemberMeasured(peer, profile(1000), ()))

    def asked() -> tuple[str, ...] | None:
        wanted = coordinator.wanted()
        if wanted is None:
            return None
        peers = tuple(peer.peer for peer in wanted.request.peers)
        enough = len(peers) >= 2
        result = plan(wanted.request) if enough else Infeasible("one is too few here")
        coordinator.planned(wanted, result)
        return peers

    comes("a")
    comes("b")
    assert asked() == ("a", "b")
    coordinator.submit(MemberDraining("b", "the tab is hidden"))
    assert asked() == ("a",)  # no plan without it
    assert asked() == ("a", "b")  # so it serves on
    assert asked() is None
    comes("c")
    assert asked() == ("a", "c")
    assert asked() is None
    coordinator.submit(MemberDraining("a", "the battery is low"))
    coordinator.submit(MemberDraining("c", "the battery is low"))
    assert asked() == ("a", "b", "c")  # all of them drain
    comes("b")
    assert asked() == ("b",)
