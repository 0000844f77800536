"""Decides how a plan fares when what was measured is wrong or changes: mean, 95th percentile, worst.

Plans are made on the 90th percentile of stage times where that is known (`on_p90`), scored on sampled worlds.
"""

from __future__ import annotations

from dataclasses import replace

from planner.solvers.seeded_random import Draws
from planner.types import PeerProfile, PlanRequest


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


def scaled(peer: PeerProfile, factor: float) -> PeerProfile:
    """All its times that much longer."""
    return replace(
        peer,
        decode_s={kind: seconds * factor for kind, seconds in peer.decode_s.items()},
        prefill_s={kind: seconds * factor for kind, seconds in peer.prefill_s.items()},
        batch_s={kind: seconds * factor for kind, seconds in peer.batch_s.items()},
        step_s=peer.step_s * factor,
    )
