"""Losses at the coordinator: who is asked, what is planned at once, who comes back, and how the strategies differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from peer.coordination import coordinator_service
from peer.coordination.coordinator import SILENT, Coordinator, solve
from peer.coordination.coordinator_service import Coordinating
from peer.coordination.suspicion import Reach
from peer.errors import BadCommand, NotAdmitted
from peer.state.generated.commands import (
    LinkFacts,
    MemberDraining,
    MemberJoined,
    MemberLeft,
    MemberMeasured,
    ModelChosen,
    Profile,
    Protection,
    ProtectionChosen,
    RepairStrategy,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState
from peer.state.plan_record import holders_of, route_of
from peer.state.protection import PRESETS
from peer.transport import circuit_breakers
from peer.wire.generated.requests import SUSPECT, SuspectRequest
from planner.types import Unit
from tests.peer.coordination.no_log import NoLog

MIB = 1 << 20
UNITS = (
    Unit("embed", "embed", 10 * MIB, 0, 0, 64),
    Unit("attn.0", "attn", 10 * MIB, 0, 0, 64),
    Unit("ffn.0", "ffn", 10 * MIB, 0, 0, 64),
    Unit("head", "head", 10 * MIB, 0, 0, 4),
)
MODEL = ModelChosen("a" * 64, "toy", len(UNITS), 128, 2, "latency")
KINDS = {"embed": 1000, "attn": 2000, "ffn": 3000, "head": 4000}
NONE, ALL = Protection(1000, False), Protection(2000, True)
PATIENT_S = 20.0


def measured(peer: str, others: list[str], memory_mib: int = 25) -> MemberMeasured:
    there = [LinkFacts(peer, other, 1000, 10_000_000, 0) for other in others]
    back = [LinkFacts(link.dst, link.src, 1000, 10_000_000, 0) for link in there]
    return MemberMeasured(
        peer, Profile(memory_mib * MIB, MIB, KINDS, KINDS, KINDS, 500, "cpu", 1), (*there, *back)
    )


class Mesh:
    """A coordinator `z` that lends nothing, two stages of 20 MiB, and members that hold what they are told to."""

    def __init__(self, protection: Protection) -> None:
        self.core = Coordinator("z", UNITS)
        for command in (MODEL, ProtectionChosen(protection), MemberJoined("z", "Z", False)):
            self.core.submit(command)

    @property
    def state(self) -> MeshState:
        return self.core.state

    def join(self, *peers: str) -> None:
        for peer in peers:
            others = [name for name, member in self.state.members.items() if member.compute]
            self.core.submit(MemberJoined(peer, peer.upper(), True))
            self.core.submit(measured(peer, others))
        self.settle()

    def settle(self) -> None:
        """Plans and loads until nothing is left to do."""
        for _ in range(20):
            while (wanted := self.core.wanted()) is not None:
                self.core.planned(wanted, self.core.by_hand(wanted.request) or solve(wanted))
            if not self.load():
                return
        raise AssertionError("the plans never settle")

    def load(self) -> bool:
        loads = False
        for peer, member in list(self.state.members.items()):
            want = {
                run
                for plan in (self.state.plan, self.state.proposed)
                if plan is not None
                for run in holders_of(plan).get(peer, ())
            }
            if want != set(member.held):
                self.core.submit(UnitsHeld(peer, tuple(sorted(want))))
                loads = True
        return loads

    @property
    def route(self) -> tuple[str, ...]:
        serving = self.state.serving()
        return route_of(serving) if serving is not None else ()

    @property
    def standbys(self) -> list[tuple[str, ...]]:
        assert self.state.plan is not None
        return [stage.standbys for stage in self.state.plan.stages]


def test_a_loss_promotes_the_standby_at_once_and_the_idle_peer_stands_by_next() -> None:
    mesh = Mesh(Protection(1500, False))
    mesh.join("a", "b", "c", "d")
    route = mesh.route
    lost_place = next(at for at, names in enumerate(mesh.standbys) if names)
    heir = mesh.standbys[lost_place][0]
    mesh.core.submit(MemberLeft(route[lost_place], "lost"))
    assert mesh.route[lost_place] == heir
    assert mesh.route[1 - lost_place] == route[1 - lost_place]
    mesh.settle()
    assert mesh.route[lost_place] == heir, "what serves is not moved for a standby"
    assert sum(map(len, mesh.standbys)) == 1


def test_without_a_standby_the_idle_peer_brings_the_lost_stage_and_nobody_else_moves() -> None:
    mesh = Mesh(NONE)
    mesh.join("a", "b", "c")
    route, held = mesh.route, {peer: member.held for peer, member in mesh.state.members.items()}
    idle = next(peer for peer in "abc" if peer not in route)
    mesh.core.submit(MemberLeft(route[0], "lost"))
    assert mesh.route == ()
    wanted = mesh.core.wanted()
    assert wanted is not None
    mesh.core.planned(wanted, solve(wanted))
    assert mesh.state.proposed is not None
    assert route_of(mesh.state.proposed) == (idle, route[1])
    assert (mesh.state.proposed.stages[1].first, mesh.state.proposed.stages[1].stop) in held[route[1]]


@pytest.mark.parametrize("priority", [(), ("head",), ("embed",)])
def test_lost_places_choose_their_new_peers_in_the_order_of_their_repair(priority: tuple[str, ...]) -> None:
    mesh = Mesh(Protection(1000, False, priority=priority, together=False))
    mesh.join("a", "b", "c", "d")
    for peer in mesh.route:
        mesh.core.submit(MemberLeft(peer, "lost"))
    wanted = mesh.core.wanted()
    assert wanted is not None
    assert wanted.first == (0, 1), "the head waits for the stage before it, which therefore comes first"
    mesh.core.planned(wanted, solve(wanted))
    mesh.settle()
    assert len(mesh.route) == 2


def test_a_priority_stage_that_waits_for_nobody_is_repaired_first() -> None:
    mesh = Mesh(Protection(1000, False, priority=("head",)))
    mesh.core.set_cuts((1, 2))
    mesh.join("a", "b", "c", "d", "e")
    before = mesh.route
    for peer in (before[0], before[2]):
        mesh.core.submit(MemberLeft(peer, "lost"))
    wanted = mesh.core.wanted()
    assert wanted is not None
    assert wanted.first == (2, 0)


def test_a_silent_peer_is_left_out_at_once_where_others_hold_its_units() -> None:
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c", "d")
    silent = mesh.route[1]
    mesh.core.submit(MemberDraining(silent, SILENT))
    assert mesh.route
    assert silent not in mesh.route
    mesh.settle()
    assert silent not in mesh.route
    assert silent not in {name for names in mesh.standbys for name in names}


def test_a_mesh_keeps_its_only_peer_though_it_is_silent() -> None:
    mesh = Mesh(NONE)
    mesh.join("a", "b")
    route = mesh.route
    mesh.core.submit(MemberDraining(route[0], SILENT))
    mesh.settle()
    assert mesh.route == route


def test_who_comes_back_is_a_standby() -> None:
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c", "d")
    silent = mesh.route[0]
    member = mesh.state.members[silent]
    assert member.profile is not None
    mesh.core.submit(MemberDraining(silent, SILENT))
    mesh.settle()
    route = mesh.route
    mesh.core.submit(MemberMeasured(silent, member.profile, ()))
    mesh.settle()
    assert mesh.route == route
    assert silent in {name for names in mesh.standbys for name in names}


def test_choosing_another_protection_changes_who_stands_by_and_moves_nobody() -> None:
    mesh = Mesh(NONE)
    mesh.join("a", "b", "c", "d")
    route = mesh.route
    assert mesh.standbys == [(), ()]
    mesh.core.submit(ProtectionChosen(ALL))
    mesh.settle()
    assert mesh.route == route
    assert all(mesh.standbys)
    mesh.core.submit(ProtectionChosen(PRESETS["basic"]))
    mesh.settle()
    assert (mesh.route, mesh.standbys) == (route, [(), ()])


@pytest.mark.parametrize("strategy", ["simple", "progressive", "parallel", "coordinated"])
def test_strategies(strategy: RepairStrategy) -> None:
    mesh = Mesh(Protection(2000, False, strategy=strategy))
    mesh.join("a", "b", "c", "d", "e")
    lost = mesh.route[0]
    mesh.core.submit(MemberLeft(lost, "lost"))
    if strategy == "simple":
        assert mesh.route == ()
        assert mesh.core.wanted() is None, "it waits for the same peer"
        assert mesh.core.awaited == {lost}
        assert mesh.core.stop_waiting(lost)
    assert len(mesh.route) == 2
    at_once = all(mesh.standbys)
    assert at_once == (strategy == "parallel")
    mesh.settle()
    assert all(mesh.standbys)


def test_simple_goes_on_with_the_same_peer_when_it_is_back_in_time() -> None:
    mesh = Mesh(Protection(2000, False, strategy="simple"))
    mesh.join("a", "b", "c", "d")
    route = mesh.route
    held = mesh.state.members[route[0]].held
    mesh.core.submit(MemberLeft(route[0], "lost"))
    mesh.core.submit(MemberJoined(route[0], "back", True))
    mesh.core.submit(UnitsHeld(route[0], held))
    assert mesh.route == route
    assert mesh.core.stop_waiting(route[0]) == []
    assert mesh.route == route


# -- asking


class Others:
    """Who answers, who is at the signaling server, and how often each was asked."""

    def __init__(self, mesh: Mesh) -> None:
        self.answering = set(mesh.state.members)
        self.present = set(mesh.state.members)
        self.asked: list[str] = []

    async def answers(self, peer: str, _: float) -> bool:
        self.asked.append(peer)
        return peer in self.answering


@asynccontextmanager
async def coordinated(mesh: Mesh, others: Others) -> AsyncIterator[Coordinating]:
    reach = Reach(others.answers, lambda peer: peer in others.present)
    made = Coordinating(mesh.core, NoLog(), lambda _: True, reach)
    try:
        yield made
    finally:
        await made.close()


async def until(mesh: Mesh, holds: object) -> None:
    async with asyncio.timeout(PATIENT_S):
        while not holds():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_suspect_that_answers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c")
    others, index = Others(mesh), mesh.state.index
    async with coordinated(mesh, others) as made:
        made.answer("b", SUSPECT, SuspectRequest("a"))
        made.hinted("a")  # one question is enough
        await until(mesh, lambda: others.asked)
        await asyncio.sleep(0)
        assert (mesh.state.index, others.asked) == (index, ["a"])
        assert made.breakers() == []
        for wrong in ({}, {"peer": 1}, {"peer": "x" * 600}):
            with pytest.raises(BadCommand, match="suspect"):
                SUSPECT.read(wrong)
        with pytest.raises(NotAdmitted, match="join first"):
            made.answer("stranger", SUSPECT, SuspectRequest("a"))


async def test_silent_and_gone_from_signaling_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c", "d")
    others, lost = Others(mesh), mesh.route[0]
    async with coordinated(mesh, others) as made:
        others.answering.discard(lost)
        others.present.discard(lost)
        made.hinted(lost)
        await until(mesh, lambda: lost not in mesh.state.members)
        assert len(mesh.route) == 2
        assert made.breakers() == [(lost, "open")]
        made.gone(lost, "lost")
        assert others.asked.count(lost) == 1


async def test_silent_but_present_drains_and_comes_back_after_a_growing_quiet_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(circuit_breakers, "QUIET_MS", 30)
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c", "d")
    others, peer, quiet = Others(mesh), mesh.route[0], list[int]()
    async with coordinated(mesh, others) as made:
        for _ in range(3):
            others.answering.discard(peer)
            made.answer("b" if peer != "b" else "c", SUSPECT, SuspectRequest(peer))
            await until(mesh, lambda: mesh.state.members[peer].reason == SILENT)
            assert made._suspicions is not None
            breaker = made._suspicions.breakers._all[peer]
            quiet.append(breaker.quiet_ms)
            others.answering.add(peer)
            await until(mesh, lambda: mesh.state.members[peer].status == "measured")
            await until(mesh, lambda: peer not in made._suspicions._looking)  # type: ignore[union-attr]
        assert quiet[0] >= 30  # longer when the machine was too busy to ask in time
        assert quiet[0] < quiet[1] < quiet[2]
        assert made.breakers() == []


async def test_who_another_coordinator_found_silent_comes_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(circuit_breakers, "QUIET_MS", 30)
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c", "d")
    peer = mesh.route[0]
    mesh.core.submit(MemberDraining(peer, SILENT))
    async with coordinated(mesh, Others(mesh)) as made:
        made.begin("y")
        await until(mesh, lambda: mesh.state.members[peer].status == "measured")


async def test_who_was_gone_and_speaks_again_is_a_member_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breakers, "QUIET_MS", 30)
    mesh = Mesh(ALL)
    mesh.join("a", "b", "c", "d")
    others, peer = Others(mesh), mesh.route[0]
    before, links = mesh.state.members[peer], set(mesh.state.links)
    async with coordinated(mesh, others) as made:
        others.answering.discard(peer)
        others.present.discard(peer)
        made.hinted(peer)
        await until(mesh, lambda: peer not in mesh.state.members)
        others.answering.add(peer)
        await until(mesh, lambda: peer in mesh.state.members and mesh.state.members[peer].profile is not None)
        assert mesh.state.members[peer] == before
        assert set(mesh.state.links) == links


async def test_simple_waits_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_service, "SAME_PEER_S", 0.05)
    mesh = Mesh(Protection(2000, False, strategy="simple"))
    mesh.join("a", "b", "c", "d")
    others, lost = Others(mesh), mesh.route[0]
    async with coordinated(mesh, others) as made:
        made.gone(lost, "lost")
        assert mesh.route == ()
        await until(mesh, lambda: len(mesh.route) == 2)
