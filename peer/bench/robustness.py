"""Decides how a plan fares when what was measured is wrong or changes: mean, 95th percentile, worst.

Plans are made on the 90th percentile of stage times where that is known (`on_p90`), scored on sampled worlds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.cost import evaluator, independent_copies
from planner.errors import RequestError
from planner.solvers.seeded_random import Draws
from planner.types import PeerProfile, PlanRequest, Stage

SCENARIOS = 50
SPEED_SIGMA = 0.2  # of the logarithm of a peer's times
SPIKE = 0.1  # share of links whose round trip is SPIKE_TIMES as long
SPIKE_TIMES = 4.0
HORIZON_H = 1.0  # within which a peer may leave


@dataclass(frozen=True, slots=True)
class Score:
    """Seconds a token over the scenarios in which the plan, or what its standbys make of it, still serves."""

    mean_s: float
    p95_s: float
    worst_s: float
    broken: float  # share of scenarios in which nothing serves


def on_p90(request: PlanRequest) -> PlanRequest:
    """The request with 90th percentiles in place of medians, where they are known."""

    def slow(peer: PeerProfile) -> PeerProfile:
        facts = peer.facts
        return replace(
            peer,
            decode_s={**peer.decode_s, **facts.decode_p90_s},
            prefill_s={**peer.prefill_s, **facts.prefill_p90_s},
        )

    return replace(request, peers=tuple(slow(peer) for peer in request.peers))


def distorted(request: PlanRequest, factor: float, seed: int) -> PlanRequest:
    """Every peer's times, and every link's round trip and rate, wrong by up to `factor` either way."""
    draws = Draws(seed)

    def wrong() -> float:
        return float(factor ** draws.uniform(-1, 1))

    peers = tuple(scaled(peer, wrong()) for peer in sorted(request.peers, key=lambda peer: peer.peer))
    links = tuple(
        replace(link, rtt_s=link.rtt_s * wrong(), bytes_per_s=link.bytes_per_s * wrong())
        for link in sorted(request.links, key=lambda link: (link.src, link.dst))
    )
    return replace(request, peers=peers, links=links)


def score(request: PlanRequest, stages: Sequence[Stage], seed: int = 1, count: int = SCENARIOS) -> Score:
    """The plan in `count` worlds: times lognormal, some round trips spiked, peers gone by their hazard."""
    draws, found, broken = Draws(seed), list[float](), 0
    names = sorted({stage.peer for stage in stages})
    known = evaluator.profiles(request)
    for _ in range(count):
        peers = tuple(
            scaled(peer, math.exp(SPEED_SIGMA * draws.normal()))
            for peer in sorted(request.peers, key=lambda peer: peer.peer)
        )
        links = tuple(
            replace(link, rtt_s=link.rtt_s * (SPIKE_TIMES if draws.uniform() < SPIKE else 1.0))
            for link in sorted(request.links, key=lambda link: (link.src, link.dst))
        )
        world = replace(request, peers=peers, links=links)
        gone = [
            name
            for name in names
            if draws.uniform() < 1 - math.exp(-independent_copies.hazard(known[name]) * HORIZON_H)
        ][:1]
        serving = tuple(
            stage
            if stage.peer not in gone
            else replace(
                stage, peer=next((name for name in stage.standbys if name not in gone), ""), standbys=()
            )
            for stage in stages
        )
        try:
            found.append(
                evaluator.evaluate(world, tuple(replace(stage, standbys=()) for stage in serving)).decode_s
            )
        except RequestError:
            broken += 1
    found.sort()
    if not found:
        return Score(math.inf, math.inf, math.inf, 1.0)
    at = min(len(found) - 1, math.ceil(0.95 * len(found)) - 1)
    return Score(sum(found) / len(found), found[at], found[-1], broken / count)


def scaled(peer: PeerProfile, factor: float) -> PeerProfile:
    """All its times that much longer."""
    return replace(
        peer,
        decode_s={kind: seconds * factor for kind, seconds in peer.decode_s.items()},
        prefill_s={kind: seconds * factor for kind, seconds in peer.prefill_s.items()},
        batch_s={kind: seconds * factor for kind, seconds in peer.batch_s.items()},
        step_s=peer.step_s * factor,
    )
