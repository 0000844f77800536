"""Made-up models and members for tests of where offered models run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from peer.coordination.offer_placement import Placement, Wanted, settle, wanted_in
from peer.state.generated.commands import (
    LinkFacts,
    MemberJoined,
    MemberMeasured,
    ModelChosen,
    ModelOffered,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    Profile,
    RunStage,
)
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState, apply
from planner.model.graph_manifest import GraphManifest, GraphUnit, Term, Value
from planner.model.graph_work import work_of
from planner.model.store import BlobRef
from planner.types import GraphWork, Infeasible

MIB = 1 << 20
OWN = ModelChosen("a" * 64, "own", 4, 128, 2, "latency")
FLOPS = {"embed": 0, "attn": 2000, "ffn": 6000, "head": 9000}
NOTHING = BlobRef("0" * 64, 1, ("0" * 64,))
ASK, LEND = ("b" * 64, "c" * 64)


def manifest(*weights_mib: int, flops: float = 1e6) -> GraphManifest:
    """A chain of units with so many MiB of weights each."""
    names = [f"v{place}" for place in range(len(weights_mib) + 1)]
    units = tuple(
        GraphUnit(f"u{place}", "all", NOTHING, (), (), (took,), (gives,), 0, mib * MIB, (Term(flops),), ())
        for place, (mib, took, gives) in enumerate(zip(weights_mib, names[:-1], names[1:], strict=True))
    )
    values = tuple(Value(name, "float32", (1,), (Term(4.0),)) for name in names)
    return GraphManifest("chain", names[:1] and (names[0],), (names[-1],), {}, values, units)


def chain(*weights_mib: int, content: str = "") -> GraphWork:
    """The work of one run of it; `content` as in GraphWork: by default no other model is equal to it."""
    return replace(work_of(manifest(*weights_mib)), content=content)


def profile(memory_mib: int, provider: str = "cpu") -> Profile:
    times = {"embed": 10, "attn": 2000, "ffn": 3000, "head": 4000}
    return Profile(memory_mib * MIB, MIB, times, times, times, 500, provider, 1)


def member(peer: str, memory_mib: int, others: Sequence[str] = (), *, provider: str = "cpu") -> list[Command]:
    """A member that has measured itself and its links to others, both ways; a tab is not headless."""
    there = [LinkFacts(peer, other, 1000, 10_000_000, 0) for other in others]
    links = tuple(there + [LinkFacts(link.dst, link.src, 1000, 10_000_000, 0) for link in there])
    stays = provider == "cpu"
    joined = MemberJoined(peer, peer.upper(), True, stays, stays)
    return [joined, MemberMeasured(peer, profile(memory_mib, provider), links)]


def own_plan(*stages: PlanStage) -> list[Command]:
    """The plan of the mesh's own model, which serves."""
    return [PlanProposed(PlanRecord(1, stages, 1, 1)), PlanActivated(1)]


def mesh(**memory_mib: int) -> MeshState:
    """A mesh of processes that lend so much, one of which holds all of the mesh's own model, which takes 1 MiB."""
    names = list(memory_mib)
    commands: list[Command] = [OWN]
    for place, name in enumerate(names):
        commands += member(name, memory_mib[name], names[:place])
    return grown(MeshState(), *commands, *own_plan(PlanStage(0, 4, names[0], (), MIB // 2, MIB // 2, MIB)))


def grown(state: MeshState, *commands: Command) -> MeshState:
    """The state after these."""
    for command in commands:
        state = apply(state, command)
    return state


def offered(state: MeshState, *names: str, model: str = ASK) -> MeshState:
    """The state after offers of one model under these names."""
    return grown(state, *(ModelOffered(model, name) for name in names))


def wanted(state: MeshState) -> Wanted:
    """What placements depend on; everybody speaks the newest version."""
    found = wanted_in(state, lambda _: 5, FLOPS)
    assert found is not None
    return found


def settled(state: MeshState, **works: GraphWork | str) -> dict[str, Placement | Infeasible]:
    """Where the models of these offers go."""
    return settle(wanted(state), {state.offers[name].model: work for name, work in works.items()})


def stages_of(found: Placement | Infeasible) -> list[tuple[int, int, str, tuple[str, ...]]]:
    """(first, stop, primary, standbys) of each stage; [] where it runs nowhere."""
    return shown(found.stages) if isinstance(found, Placement) else []


def shown(stages: Sequence[RunStage]) -> list[tuple[int, int, str, tuple[str, ...]]]:
    """The same of stages in the log."""
    return [(stage.first, stage.stop, stage.primary, stage.standbys) for stage in stages]
