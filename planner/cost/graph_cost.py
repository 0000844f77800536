"""What the placement of a model of units that form a graph is about: the peers, the request, the stages of a plan.

Pure data, no behaviour beyond checks; `planner.model.graph_work` makes the work from a manifest, and
`planner.cost.graph_evaluator` says what a placement costs. A stage is a run of units on one peer, and a peer may have
several stages, so that a branch that stands behind another in the order can run elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from planner.cost.evaluator import MAX_SECONDS, MAX_SUM, check_links, check_once, check_seconds
from planner.errors import RequestError
from planner.types import GraphWork, Link, Objective, PeerFacts

MOST_STAGES: Final = 256  # of a plan: what an entry of the log holds
MAX_STANDBYS: Final = 7  # of a stage, as many as MAX_REDUNDANCY promises

# Where stages may end: anywhere, or only between components, each of which has one peer.
GraphStrategy = Literal["optimal", "component"]


@dataclass(frozen=True, slots=True)
class Engine:
    """What computes at a peer, as far as that is known: None stands for whatever there is."""

    newest_opset: int | None = None  # of ONNX's own operators
    types: tuple[str, ...] | None = None  # of the values that it takes and gives


@dataclass(frozen=True, slots=True)
class GraphPeer:
    """Measured speed and memory of one peer. Of `facts` the domains, hazard, arithmetic and operators are read."""

    peer: str
    free_bytes: int  # for weights and scratch, beyond the peer's overhead and what else it holds
    flops_per_s: float
    step_s: float = 0.0  # fixed cost of one stage
    facts: PeerFacts = field(default_factory=PeerFacts)
    engine: Engine = field(default_factory=Engine)


@dataclass(frozen=True, slots=True)
class GraphStage:
    """Units [first, stop) on `peer`; `standbys` hold the same units and can take over, the first named first."""

    first: int
    stop: int
    peer: str
    standbys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """Everything a placement depends on. The order of `peers` and `links` never changes the answer."""

    work: GraphWork
    peers: tuple[GraphPeer, ...]
    links: tuple[Link, ...]
    origin: str | None = None  # peer that asks; None: inputs and outputs cost nothing
    objective: Objective = "latency"
    strategy: GraphStrategy = "optimal"
    prefer: Mapping[str, str] = field(default_factory=dict)  # component -> peer, where it can hold it
    most_stages: int = MOST_STAGES
    standbys: int = 1  # of each stage, where there is room
    handling_s_per_byte: float = 0.0  # at most, of the processor of a peer that sends or takes a value
    keep: tuple[GraphStage, ...] = ()  # the stages of the plan that serves


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """Stages in the order of units, what they are predicted to do, and why this plan was chosen."""

    stages: tuple[GraphStage, ...]
    latency_s: float  # one run alone, from the inputs at the origin until it has the outputs
    rate_per_s: float  # runs of a long stream
    why: tuple[str, ...] = ()


def check_graph_request(request: GraphRequest) -> None:
    """Raises RequestError unless every number is usable: the solvers take the rest on trust."""
    _check_work(request.work)
    if request.most_stages < 1:
        raise RequestError(f"expected most_stages of at least 1, got {request.most_stages}")
    if not 0 <= request.standbys <= MAX_STANDBYS:
        raise RequestError(f"expected 0 to {MAX_STANDBYS} standbys of a stage, got {request.standbys}")
    check_once("peer", [peer.peer for peer in request.peers])
    check_links(request.links)
    flops = max(unit.flops for unit in request.work.units)
    for peer in request.peers:
        at = f"peer {peer.peer}"
        if not 0 <= peer.free_bytes <= MAX_SUM:
            raise RequestError(f"{at}: expected free_bytes from 0 to {MAX_SUM}, got {peer.free_bytes}")
        if not (math.isfinite(peer.flops_per_s) and peer.flops_per_s > 0):
            raise RequestError(f"{at}: expected flops_per_s > 0, got {peer.flops_per_s}")
        check_seconds(at, peer.step_s)
        check_seconds(at, flops / peer.flops_per_s)
        hazard = peer.facts.hazard_per_h
        if hazard is not None and not 0 <= hazard <= MAX_SECONDS:
            raise RequestError(f"{at}: expected a hazard from 0 to {MAX_SECONDS:g} an hour, got {hazard}")
    widest = max((edge.bytes for edge in request.work.edges), default=0)
    check_seconds("handling_s_per_byte", widest * request.handling_s_per_byte)
    for link in request.links:
        check_seconds(f"link {link.src} -> {link.dst}", widest / (link.bytes_per_s * (1 - link.loss)))
    if request.keep:
        _check_cover(request.keep, len(request.work.units))


def _check_work(work: GraphWork) -> None:
    if not work.units:
        raise RequestError("expected at least one unit, got none")
    for unit in work.units:
        for name, size, most in (
            ("weight_bytes", unit.weight_bytes, MAX_SUM),
            ("scratch_bytes", unit.scratch_bytes, MAX_SUM),
            ("flops", unit.flops, MAX_SUM),
        ):
            if not 0 <= size <= most:
                raise RequestError(f"unit {unit.name}: expected {name} from 0 to {most}, got {size}")
    for edge in work.edges:
        before = -1 if edge.source is None else edge.source
        places = (before, *edge.users)
        if not 0 <= edge.bytes <= MAX_SUM:
            raise RequestError(f"value {edge.value}: expected bytes from 0 to {MAX_SUM}, got {edge.bytes}")
        if any(a >= b for a, b in zip(places, edge.users, strict=False)) or max(places) >= len(work.units):
            raise RequestError(f"value {edge.value}: expected users in order after unit {before}")


def _check_cover(stages: Sequence[GraphStage], units: int) -> None:
    at = 0
    for stage in stages:
        if stage.first != at or not stage.first < stage.stop <= units:
            raise RequestError(f"keep: expected a stage from unit {at} on, got {stage.first}-{stage.stop}")
        at = stage.stop
    if at != units:
        raise RequestError(f"keep: expected stages that cover {units} units, got {at}")
