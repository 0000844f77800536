"""Decides who counts as a holder of a copy: what fails together is one holder, who may be behind a relay is none."""

from __future__ import annotations

from collections.abc import Iterable

from planner.types import PeerProfile, PlanRequest


def doubtful(request: PlanRequest) -> frozenset[str]:
    """Peers that no link reaches, or leaves, of which it is known that no relay is in it."""
    to = {link.dst for link in request.links if link.relayed is False}
    out = {link.src for link in request.links if link.relayed is False}
    names = {peer.peer for peer in request.peers}
    return frozenset(name for name in names if not (name in to and name in out) and len(names) > 1)


def domains_of(peer: PeerProfile) -> frozenset[str]:
    """What it fails with: its machine, NAT and owner as far as they are known, else itself."""
    return frozenset(peer.facts.domains or (f"peer {peer.peer}",))


def domains(request: PlanRequest) -> dict[str, frozenset[str]]:
    """Peers that may fail together, by domain."""
    found: dict[str, set[str]] = {}
    for peer in request.peers:
        for name in domains_of(peer):
            found.setdefault(name, set()).add(peer.peer)
    return {name: frozenset(peers) for name, peers in sorted(found.items())}


def apart(peer: PeerProfile, others: Iterable[PeerProfile]) -> bool:
    """Whether nothing that takes one of `others` takes this one, too."""
    mine = domains_of(peer)
    return not any(mine & domains_of(other) for other in others)
