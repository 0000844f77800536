"""Decides what the planner's meshes survive, and how few units the plan after a loss brings, against CP-SAT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from peer.bench import instances
from peer.bench.planner_sizes import LAYER
from peer.bench.planner_timing import Figures, timed
from peer.launch.terminal import say
from planner.adapt import k_failures, repair
from planner.adapt.serving_plan import MESH
from planner.cost import evaluator, independent_copies
from planner.solvers import cp_sat, portfolio
from planner.types import Infeasible, PlanRequest

MESHES: Final = 200
REPLANS: Final = 12
REPLAN_PEERS: Final = 60
PROOF: Final = 60.0  # deterministic seconds of CP-SAT for the fewest units


def losses(scale: float) -> Figures:
    """Any single loss, of a peer or of all that fail together."""
    count, survived, infeasible, chains = int(MESHES * scale), 0, 0, 0
    for seed in range(count):
        request = instances.mesh(seed, 6 + seed % 10, tight=2.0 + seed % 3, sessions=1 + seed % 2)
        found = k_failures.survivable(request, 1, MESH)
        if isinstance(found, Infeasible):
            infeasible += 1
            say(f"planner: mesh {seed}: {found.reason}")
            continue
        held = found.held()
        gone = {frozenset({name}) for name in held} | set(independent_copies.domains(request).values())
        chains += len(gone)
        survived += all(_serves_without(request, held, lost) for lost in gone)
    return {
        "loss_meshes": count,
        "loss_survived": survived,
        "loss_infeasible": infeasible,
        "loss_chains_checked": chains,
    }


def _serves_without(request: PlanRequest, held: dict[str, Any], lost: frozenset[str]) -> bool:
    """Whether those left have a chain of what they hold, that fits with the KV of every promised session."""
    stages = k_failures.after_loss(request, held, lost)
    rest = replace(request, peers=tuple(peer for peer in request.peers if peer.peer not in lost))
    fits = all(evaluator.overfull(request, peer, held.get(peer.peer, ())) is None for peer in rest.peers)
    return stages is not None and fits and evaluator.refuse(rest, stages) is None


def replans(scale: float) -> Figures:
    """The plan after a loss among 60 peers: how long it takes, and whether any loads fewer units."""
    taken, equal, proven, count = list[float](), 0, 0, max(2, int(REPLANS * scale))
    for seed in range(count):
        request, before, held = _loss(seed)
        result, seconds = timed(repair.fewest_moved, request, before, held)
        taken.append(seconds)
        say(
            f"planner: re-plan {seed + 1}: {seconds:.2f} s, loads {None if result is None else result[1]} units"
        )
        if result is None or not cp_sat.available():
            continue
        best, optimal = cp_sat.fewest_loaded(request, held, PROOF)
        say(f"planner: CP-SAT loads {best}, {'proven' if optimal else 'not proven'}")
        proven += optimal
        equal += optimal and best == result[1]
    return {
        "replan_60_instances": count,
        "replan_60_slowest_s": round(max(taken), 2),
        "replan_proven_by_cpsat": proven if cp_sat.available() else None,
        "replan_equal_to_cpsat": equal if proven else None,
    }


def _loss(seed: int) -> tuple[PlanRequest, Any, dict[str, tuple[tuple[int, int], ...]]]:
    """60 peers of which one of the chain is gone; what the others hold."""
    request = instances.mesh(seed, REPLAN_PEERS + 1, blocks=40, tight=0.4)
    outcome = portfolio.solve(request, LAYER, portfolio.Effort(search=300_000, exact=1_000_000))
    assert outcome.chosen is not None
    stages = outcome.chosen.stages
    gone = stages[seed % len(stages)]
    rest = replace(
        request,
        peers=tuple(p for p in request.peers if p.peer != gone.peer),
        links=tuple(link for link in request.links if gone.peer not in (link.src, link.dst)),
    )
    held: dict[str, tuple[tuple[int, int], ...]] = {}
    held |= {stage.peer: ((stage.first, stage.stop),) for stage in stages if stage.peer != gone.peer}
    return rest, stages, held
