"""Decides on which members the units of offered models run, beside the mesh's own model.

Pure: a state and the work of each model in, commands for the log out. The plan of the mesh's own model comes first: an
offered model has the memory that this plan leaves. What is placed stays where it is while that is about as good; a new
offer takes no place of another one, beyond that of a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from peer.coordination.decoder_planning import taken_bytes
from peer.coordination.offer_promotion import next_version, stands
from peer.coordination.planner_goal import wished
from peer.limits import MAX_INT, MAX_TEXT
from peer.state.generated.commands import (
    MAX_RUN_STAGES,
    MAX_RUN_STANDBYS,
    Member,
    ModelOffer,
    ModelPlaced,
    Protection,
    RunStage,
)
from peer.state.mesh_state import MICRO, MeshState, planner_link, planner_profile
from peer.state.offers import Offers
from peer.state.version_negotiation import OFFERS
from planner.cost.graph_cost import (
    MAX_STANDBYS,
    GraphPeer,
    GraphPlan,
    GraphRequest,
    GraphStage,
    GraphStrategy,
)
from planner.cost.graph_evaluator import Board, evaluate
from planner.cost.graph_peers import IN_TABS, graph_peer
from planner.errors import RequestError
from planner.solvers.graph_placement import place
from planner.types import GraphWork, Infeasible, Link, Objective

HANDLING_S_PER_BYTE: Final = (
    1 / 32e6
)  # of libdatachannel, which keeps a core busy at 32 to 35 MB/s; aiortc is slower
SHARED_BYTES_PER_S: Final = (
    500e6  # written into memory that two processes share, and read there, on a busy machine
)

Works = Mapping[str, GraphWork | str]  # by model: one run of it, or why that is not known


@dataclass(frozen=True, slots=True)
class Wanted:
    """What placements depend on. `peers` have what the mesh's own model leaves free, offered models not counted."""

    offers: Offers
    peers: tuple[GraphPeer, ...]
    draining: frozenset[str]  # of `peers`: used where there is no placement without them
    holders: frozenset[str]  # of a model that answers, where towers are kept off them: the same
    links: tuple[Link, ...]
    objective: Objective
    standbys: int
    strategy: GraphStrategy = "optimal"

    @property
    def key(self) -> str:
        """Equal for what is placed alike."""
        models = sorted((name, offer.model) for name, offer in self.offers.items())
        avoided = (sorted(self.draining), sorted(self.holders))
        return repr((models, self.peers, avoided, self.links, self.objective, self.standbys, self.strategy))


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs, as it may enter the log."""

    plan: GraphPlan
    stages: tuple[RunStage, ...]


# --- what is there ----------------------------------------------------------------------------------------


def wanted_in(state: MeshState, speaks: Callable[[str], int], flops: Mapping[str, int]) -> Wanted | None:
    """What placements depend on now; None while the mesh's own model waits for its first plan, or nothing is offered.

    `speaks(peer)`: its version of the protocol. `flops` of a token in a unit of each kind of the mesh's own model.
    """
    waits = state.model is not None and state.plan is None and state.proposed is None and not state.refused
    if not state.offers or waits:
        return None
    own = _own_bytes(state)
    peers: list[GraphPeer] = []
    draining: set[str] = set()
    for peer, member in sorted(state.members.items()):
        if not _may_run(member, speaks) or member.profile is None:
            continue
        provider, taken = member.profile.provider, own.get(peer, 0)
        peers.append(graph_peer(planner_profile(member), provider, flops, taken))
        if member.status == "draining":
            draining.add(peer)
    here = frozenset(peer.peer for peer in peers)
    by_component = wished(state).strategy == "component"
    machines = {peer: _machine(state.members[peer]) for peer in here}
    return Wanted(
        state.offers,
        tuple(peers),
        frozenset(draining),
        here & _answering(state) if by_component else frozenset(),
        tuple(
            _sustained(planner_link(link), machines) for link in state.links if {link.src, link.dst} <= here
        ),
        "throughput" if wished(state).goal == "throughput" else "latency",
        _standbys(state.protection),
        "component" if by_component else "optimal",
    )


def _sustained(link: Link, machines: Mapping[str, str]) -> Link:
    """What a link carries of a stream: a burst as short as that of a probe may be faster than its peers can go on. Two
    processes of one machine hand values over in its memory.
    """
    if machines[link.src] and machines[link.src] == machines[link.dst]:
        return replace(link, bytes_per_s=SHARED_BYTES_PER_S)
    return replace(link, bytes_per_s=min(link.bytes_per_s, 1 / HANDLING_S_PER_BYTE))


def _machine(member: Member) -> str:
    """The machine whose memory a member's process shares with others; "": unknown, or a tab, which shares none."""
    profile = member.profile
    return "" if profile is None or profile.provider in IN_TABS else profile.surroundings.machine


def _may_run(member: Member, speaks: Callable[[str], int]) -> bool:
    """Whether it lends, is there, and knows of offers."""
    if not member.compute or member.profile is None:
        return False
    return member.status in ("measured", "draining") and speaks(member.peer) >= OFFERS


def _own_bytes(state: MeshState) -> dict[str, int]:
    """What each peer holds, or is to hold, of the models that answer in words."""
    return taken_bytes(replace(state, offers={}))


def _answering(state: MeshState) -> frozenset[str]:
    """Who serves, or is to serve, a stage of a model that answers in words. Whoever stands by for one may do more."""
    further = ((each.plan, each.proposed) for each in state.decoders.values() if not each.refused)
    plans = [plan for pair in ((state.plan, state.proposed), *further) for plan in pair if plan is not None]
    return frozenset(stage.primary for plan in plans for stage in plan.stages)


def _standbys(protection: Protection) -> int:
    """Of each stage: copies beyond the first, rounded up; one where spare peers stand by."""
    copies = -(-max(0, protection.redundancy_milli - 1000) // 1000)
    return min(max(copies, int(protection.spare)), MAX_STANDBYS, MAX_RUN_STANDBYS)


# --- where they go ----------------------------------------------------------------------------------------


def settle(wanted: Wanted, works: Works) -> dict[str, Placement | Infeasible]:
    """Where each offered model runs, by name, or why it runs nowhere. May take seconds.

    What is placed already stays as it is, and is left out, where the work of its model is not known.
    """
    found: dict[str, Placement | Infeasible] = {}
    tries = (wanted.draining | wanted.holders, wanted.draining, frozenset[str]())
    for avoided in dict.fromkeys(tries):
        spared = tuple(peer for peer in wanted.peers if peer.peer not in avoided)
        found = _settled(replace(wanted, peers=spared), works)
        if not any(isinstance(each, Infeasible) for each in found.values()):
            break
    return found


def _settled(wanted: Wanted, works: Works) -> dict[str, Placement | Infeasible]:
    alike = _alike(wanted, works)
    held = {names[0]: _kept(wanted, names) for names in alike}
    found: dict[str, Placement | Infeasible] = {}
    moving = [names for names in alike if not _stays(wanted.offers[names[0]], works)]
    moving.sort(key=lambda names: (not held[names[0]], names[0]))
    for name, *_ in moving:
        others = [stages for other, stages in held.items() if other != name]
        found[name] = _placed(wanted, works, name, others, held[name])
        held[name] = _stages(found[name])
    if any(isinstance(each, Infeasible) for each in found.values()):
        found = _without_standbys_first(wanted, works, alike, [names[0] for names in moving])
    return {name: found[names[0]] for names in moving for name in names}


def _alike(wanted: Wanted, works: Works) -> list[tuple[str, ...]]:
    """The names of offers; those of equal models together, since the same peers run them with the same memory."""
    groups: dict[str, list[str]] = {}
    for name, offer in sorted(wanted.offers.items()):
        work = works[offer.model]
        content = "" if isinstance(work, str) else work.content
        groups.setdefault(content or f"{name} alone", []).append(name)
    return [tuple(names) for names in groups.values()]


def _kept(wanted: Wanted, names: Sequence[str]) -> tuple[RunStage, ...]:
    """Where the first of these offers runs that runs."""
    return next((wanted.offers[name].stages for name in names if wanted.offers[name].stages), ())


def _without_standbys_first(
    wanted: Wanted, works: Works, alike: Sequence[tuple[str, ...]], names: Sequence[str]
) -> dict[str, Placement | Infeasible]:
    """One after another, with what those before leave; standbys take what is left once all models have a place."""
    bare = replace(wanted, standbys=0)
    kept = {each[0]: _kept(wanted, each) for each in alike}
    held = {name: stages for name, stages in kept.items() if name not in names}
    found: dict[str, Placement | Infeasible] = {}
    for name in names:
        found[name] = _placed(bare, works, name, held.values(), kept[name])
        held[name] = _stages(found[name])
    if not wanted.standbys:
        return found
    for name in names:
        if isinstance(found[name], Infeasible):
            continue
        others = [stages for other, stages in held.items() if other != name]
        before = _with_their_standbys(held[name], kept[name])
        protected = _placed(wanted, works, name, others, before)
        if isinstance(protected, Placement):
            found[name], held[name] = protected, protected.stages
    return found


def _stays(offer: ModelOffer, works: Works) -> bool:
    return bool(offer.stages) and isinstance(works[offer.model], str)


def _with_their_standbys(stages: tuple[RunStage, ...], before: tuple[RunStage, ...]) -> tuple[RunStage, ...]:
    """The stages with who stood by for the same units before: those hold them."""
    known = {(stage.first, stage.stop): stage for stage in before}
    found: list[RunStage] = []
    for stage in stages:
        old = known.get((stage.first, stage.stop))
        holders = () if old is None else (old.primary, *old.standbys)
        found.append(replace(stage, standbys=tuple(peer for peer in holders if peer != stage.primary)))
    return tuple(found)


def _placed(
    wanted: Wanted,
    works: Works,
    name: str,
    others: Iterable[tuple[RunStage, ...]],
    kept: tuple[RunStage, ...],
) -> Placement | Infeasible:
    work = works[wanted.offers[name].model]
    if isinstance(work, str):
        return Infeasible(work)
    request = request_for(wanted, work, others, kept)
    try:
        found = place(request)
    except RequestError as error:
        return Infeasible(str(error))
    if isinstance(found, Infeasible):
        return found
    if request.objective == "throughput":
        found = _in_lanes(request, found)
    if len(found.stages) > MAX_RUN_STAGES:
        return Infeasible(f"it would need {len(found.stages)} stages, and {MAX_RUN_STAGES} are the most")
    board = Board.of(request)
    return Placement(
        found,
        tuple(
            RunStage(s.first, s.stop, s.peer, s.standbys, min(board.stage_bytes(s.first, s.stop), MAX_INT))
            for s in found.stages
        ),
    )


def request_for(
    wanted: Wanted,
    work: GraphWork,
    others: Iterable[tuple[RunStage, ...]],
    kept: tuple[RunStage, ...] = (),
) -> GraphRequest:
    """What the planner is asked for a model; `others` have memory already, `kept` is where it runs."""
    taken: dict[str, int] = {}
    for stage in (stage for stages in others for stage in stages):
        for peer in (stage.primary, *stage.standbys):
            taken[peer] = taken.get(peer, 0) + stage.bytes
    peers = (
        replace(peer, free_bytes=max(0, peer.free_bytes - taken.get(peer.peer, 0))) for peer in wanted.peers
    )
    return GraphRequest(
        work,
        tuple(peers),
        wanted.links,
        objective=wanted.objective,
        strategy=wanted.strategy,
        standbys=wanted.standbys,
        handling_s_per_byte=HANDLING_S_PER_BYTE,
        keep=_keep(work, kept),
    )


def _in_lanes(request: GraphRequest, found: GraphPlan) -> GraphPlan:
    """The plan; or the whole model on one peer and its standbys, where a stream that goes over all of these side by
    side is faster.
    """
    keep = request.keep if len(request.keep) == 1 else ()
    whole = place(replace(request, most_stages=1, keep=keep))
    if isinstance(whole, Infeasible) or len(whole.stages) != 1:
        return found
    (stage,) = whole.stages
    peers = (stage.peer, *stage.standbys)
    rate = sum(evaluate(request, (replace(stage, peer=peer, standbys=()),)).rate_per_s for peer in peers)
    if len(peers) == 1 or rate < found.rate_per_s:
        return found
    said = f"A stream goes over {len(peers)} peers that hold all of it: {rate:.3g} runs/s"
    against = f", against {found.rate_per_s:.3g} over stages" if len(found.stages) > 1 else ""
    return replace(whole, rate_per_s=rate, why=(f"{said}{against}.", *whole.why))


def _keep(work: GraphWork, stages: tuple[RunStage, ...]) -> tuple[GraphStage, ...]:
    if not stages or stages[-1].stop != len(work.units):
        return ()  # of other units than the manifest has: nothing to keep
    return tuple(GraphStage(stage.first, stage.stop, stage.primary, stage.standbys) for stage in stages)


def _stages(found: Placement | Infeasible) -> tuple[RunStage, ...]:
    return found.stages if isinstance(found, Placement) else ()


# --- what the log is told ---------------------------------------------------------------------------------


def placed(
    state: MeshState, name: str, before: ModelOffer, found: Placement | Infeasible
) -> ModelPlaced | None:
    """What the log is told of it. `before`: the offer when that was looked for.

    None where the log knows, where that model is not offered any more, where it was placed meanwhile, or where somebody
    is gone who would run it.
    """
    offer = state.offers.get(name)
    if offer is None or offer.model != before.model or offer.version > before.version:
        return None
    if isinstance(found, Infeasible):
        why = (_short(found.reason),)
        if offer.version and not offer.stages and offer.why == why:
            return None
        return ModelPlaced(name, next_version(state, offer), (), 0, 0, why)
    named = {peer for stage in found.stages for peer in (stage.primary, *stage.standbys)}
    if found.stages == offer.stages or not all(stands(state, peer) for peer in named):
        return None
    return ModelPlaced(
        name,
        next_version(state, offer),
        found.stages,
        min(round(found.plan.latency_s * MICRO), MAX_INT),
        min(round(found.plan.rate_per_s * 1000), MAX_INT),
        tuple(_short(line) for line in found.plan.why),
    )


def _short(line: str) -> str:
    return line[:MAX_TEXT]
