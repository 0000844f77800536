"""One run of an offered model in time, as every member can reckon it from the log: where it runs, or where it would.

Pure, as the placement is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from peer.coordination.offer_placement import Placement, request_for, settle, wanted_in
from peer.limits import HIGHEST_VERSION
from peer.state.generated.commands import ModelOffer, RunStage
from peer.state.mesh_state import MeshState
from planner.cost.graph_cost import GraphStage
from planner.cost.graph_schedule import Schedule, schedule
from planner.errors import RequestError
from planner.types import GraphWork, Infeasible

WAITS = "the mesh's own model has no plan yet, which comes first"


@dataclass(frozen=True, slots=True)
class OfferSchedule:
    """`found` is None where it runs nowhere, or where that cannot be reckoned; `why` are sentences of the planner."""

    found: Schedule | None
    why: tuple[str, ...]


def running(state: MeshState, name: str, work: GraphWork, flops: Mapping[str, int]) -> OfferSchedule:
    """One run of the offer `name` where the log says that it runs. `flops` as in `wanted_in`."""
    offer = state.offers[name]
    if not offer.stages:
        return OfferSchedule(None, offer.why or ("the mesh has found no place for it yet",))
    return _scheduled(state, name, work, offer.stages, offer.why, flops)


def would_be(state: MeshState, model: str, work: GraphWork, flops: Mapping[str, int]) -> OfferSchedule:
    """One run of a model that is not offered, where it would be placed beside what runs. May take seconds."""
    name = "\0"  # which no offer is called
    state = replace(state, offers={**state.offers, name: ModelOffer(model)})
    wanted = wanted_in(state, _newest, flops)
    if wanted is None:
        return OfferSchedule(None, (WAITS,))
    stay = {offer.model: "it stays where it is" for offer in state.offers.values()}
    match settle(wanted, {**stay, model: work})[name]:
        case Infeasible(reason):
            return OfferSchedule(None, (reason,))
        case Placement(plan, stages):
            return _scheduled(state, name, work, stages, plan.why, flops)


def _scheduled(
    state: MeshState,
    name: str,
    work: GraphWork,
    stages: tuple[RunStage, ...],
    why: tuple[str, ...],
    flops: Mapping[str, int],
) -> OfferSchedule:
    wanted = wanted_in(state, _newest, flops)
    if wanted is None:
        return OfferSchedule(None, (WAITS,))
    if stages[-1].stop != len(work.units):
        return OfferSchedule(
            None, (f"its stages hold {stages[-1].stop} units, its manifest {len(work.units)}",)
        )
    others = (offer.stages for other, offer in wanted.offers.items() if other != name)
    placed = tuple(GraphStage(each.first, each.stop, each.primary, each.standbys) for each in stages)
    try:
        return OfferSchedule(schedule(request_for(wanted, work, others), placed), why)
    except RequestError as error:  # somebody who runs it has left, and nobody has taken over yet
        return OfferSchedule(None, (str(error),))


def _newest(_: str) -> int:
    """Of the version that peers speak: who only looks at a mesh has met few of them."""
    return HIGHEST_VERSION
