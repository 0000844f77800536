"""Teams at the coordinator: planned where nothing else fits or where they are wished for, and replaced after a loss."""

from __future__ import annotations

from dataclasses import replace

from peer.coordination.coordinator import Coordinator, solve
from peer.state.generated.commands import (
    LinkFacts,
    MemberJoined,
    MemberLeft,
    MemberMeasured,
    ModelChosen,
    PlanWished,
    Profile,
    Protection,
    ProtectionChosen,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState
from peer.state.plan_record import holders_of, slices_of
from planner.types import Unit, UnitCut

MIB = 1 << 20
UNITS = (
    Unit("embed", "embed", 2 * MIB, 0, 0, 64),
    Unit("attn.0", "attn", 10 * MIB, 0, 0, 64),
    Unit("ffn.0", "ffn", 40 * MIB, 0, 0, 64),
    Unit("head", "head", 10 * MIB, 0, 0, 4),
)
CUT = (UNITS[0], *(replace(unit, cut=UnitCut(8, 0, 1, 64)) for unit in UNITS[1:]))
KINDS = {"embed": 1_000_000, "attn": 2_000_000, "ffn": 9_000_000, "head": 4_000_000}


class Mesh:
    """A coordinator `z` that lends nothing, and members of `memory_mib` that hold what plans give them."""

    def __init__(self, memory_mib: int, able: frozenset[str] = frozenset("abcd"), told: bool = True) -> None:
        self.core = Coordinator("z", UNITS, cut_units=CUT if told else (), slices=lambda peer: peer in able)
        self.memory_mib = memory_mib
        model = ModelChosen("a" * 64, "toy", len(UNITS), 128, 1, "latency")
        for command in (model, ProtectionChosen(Protection(1000, False)), MemberJoined("z", "Z", False)):
            self.core.submit(command)

    @property
    def state(self) -> MeshState:
        return self.core.state

    def join(self, *peers: str) -> None:
        for peer in peers:
            others = [name for name, member in self.state.members.items() if member.compute]
            ways = [pair for other in others for pair in ((peer, other), (other, peer))]
            links = tuple(LinkFacts(*way, 400, 100_000_000, 0) for way in ways)
            profile = Profile(self.memory_mib * MIB, MIB, KINDS, KINDS, KINDS, 500, "cpu", 1)
            self.core.submit(MemberJoined(peer, peer.upper(), True))
            self.core.submit(MemberMeasured(peer, profile, links))

    def settle(self) -> None:
        """Plans and loads until nothing is left to do."""
        for _ in range(20):
            while (wanted := self.core.wanted()) is not None:
                self.core.planned(wanted, solve(wanted))
            if not self._loads():
                return
        raise AssertionError("the plans never settle")

    def _loads(self) -> bool:
        loads = False
        for peer, member in list(self.state.members.items()):
            plans = [plan for plan in (self.state.plan, self.state.proposed) if plan is not None]
            runs = {run for plan in plans for run in holders_of(plan).get(peer, ())}
            parts = {part for plan in plans for part in slices_of(plan).get(peer, ())}
            if (runs, parts) != ({*member.held}, {*member.slices}):
                held = UnitsHeld(peer, tuple(sorted(runs)), tuple(sorted(parts, key=repr)))
                known = self.core.told(peer, held)
                assert known is not None
                self.core.submit(known)
                loads = True
        return loads

    @property
    def teams(self) -> list[tuple[str, ...]]:
        """The teams of the plan that serves."""
        serving = self.state.serving()
        stages = serving.stages if serving is not None else ()
        return [(stage.primary, *stage.helpers) for stage in stages if stage.helpers]


def test_a_unit_that_fits_nobody_is_given_to_a_team() -> None:
    mesh = Mesh(38)
    mesh.join("a", "b")
    mesh.settle()
    [team] = mesh.teams
    assert sorted(team) == ["a", "b"]


def test_without_word_of_slices_there_is_no_plan_and_it_is_said_in_bytes() -> None:
    for mesh in (Mesh(38, told=False), Mesh(38, able=frozenset("a"))):
        mesh.join("a", "b")
        mesh.settle()
        assert mesh.state.serving() is None
        assert "MiB more" in mesh.state.refused


def test_where_all_fits_there_is_a_team_only_if_it_is_wished_for() -> None:
    mesh = Mesh(200)
    mesh.join("a", "b")
    mesh.settle()
    assert mesh.state.serving() is not None
    assert mesh.teams == []
    mesh.core.submit(PlanWished("tensor", "latency"))
    mesh.settle()
    assert len(mesh.teams) == 1


def test_a_lost_helper_is_replaced_and_a_lost_team_is_refused() -> None:
    mesh = Mesh(38)
    mesh.join("a", "b", "c")
    mesh.settle()
    [team] = mesh.teams
    mesh.core.submit(MemberLeft(team[-1], "lost"))
    assert mesh.teams == []
    mesh.settle()
    [again] = mesh.teams
    assert team[-1] not in again
    mesh.core.submit(MemberLeft(again[0], "lost"))
    mesh.settle()
    assert mesh.state.serving() is None
    assert mesh.state.refused
