"""Decides who counts as a holder of a copy: what fails together is one holder, who may be behind a relay is none; and
what is said of copies that do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from planner.model.arithmetic_class import other_bits, shown
from planner.types import PeerFacts, PlanRequest, Stage

PRIOR_HAZARD_PER_H: Final = 0.5  # of a peer that nothing is known of: as a tab that somebody may close
COPIES: Final = "Copies: "  # how a sentence on them begins


class MayFail(Protocol):
    """A peer of any kind of request, with what is known of how it fails."""

    @property
    def peer(self) -> str:
        """Its id."""

    @property
    def facts(self) -> PeerFacts:
        """What was measured beyond its speed."""


def doubtful(request: PlanRequest) -> frozenset[str]:
    """Peers that no link reaches, or leaves, of which it is known that no relay is in it."""
    to = {link.dst for link in request.links if link.relayed is False}
    out = {link.src for link in request.links if link.relayed is False}
    names = {peer.peer for peer in request.peers}
    return frozenset(name for name in names if not (name in to and name in out) and len(names) > 1)


def domains_of(peer: MayFail) -> frozenset[str]:
    """What it fails with: its machine, NAT and owner as far as they are known, else itself."""
    return frozenset(peer.facts.domains or (f"peer {peer.peer}",))


def domains(request: PlanRequest) -> dict[str, frozenset[str]]:
    """Peers that may fail together, by domain."""
    found: dict[str, set[str]] = {}
    for peer in request.peers:
        for name in domains_of(peer):
            found.setdefault(name, set()).add(peer.peer)
    return {name: frozenset(peers) for name, peers in sorted(found.items())}


def apart(peer: MayFail, others: Iterable[MayFail]) -> bool:
    """Whether nothing that takes one of `others` takes this one, too."""
    mine = domains_of(peer)
    return not any(mine & domains_of(other) for other in others)


def shared(peer: MayFail, others: Iterable[MayFail]) -> frozenset[str]:
    """The domains that this one has in common with any of `others`."""
    mine = domains_of(peer)
    return frozenset(name for other in others for name in mine & domains_of(other))


def hazard(peer: MayFail) -> float:
    """How often it leaves, an hour."""
    return PRIOR_HAZARD_PER_H if peer.facts.hazard_per_h is None else peer.facts.hazard_per_h


def alone(request: PlanRequest) -> PlanRequest:
    """As if each peer failed by itself and was reached directly: where no copy counts, one is better than none."""
    return replace(
        request,
        peers=tuple(replace(peer, facts=replace(peer.facts, domains=())) for peer in request.peers),
        links=tuple(replace(link, relayed=False) for link in request.links),
    )


def doubts(request: PlanRequest, stages: Sequence[Stage]) -> tuple[str, ...]:
    """Sentences on the stages that are held as they should not be: nobody else has the room or the links. And on those
    whose first standby is known to compute other bits than the primary.
    """
    unsure = doubtful(request)
    known = {peer.peer: peer for peer in request.peers}
    lone: list[str] = []
    together: list[str] = []
    kinds: set[str] = set()
    for number, stage in enumerate(stages, start=1):
        if {stage.peer, *stage.standbys} <= unsure:
            lone.append(str(number))
        copies = [shared(known[name], [known[stage.peer]]) for name in stage.standbys]
        if copies and all(copies):
            together.append(str(number))
            kinds |= {name.partition(" ")[0] for names in copies for name in names}
    said: list[str] = []
    if lone:
        said.append(f"{_stages(lone)} held only by peers that may be behind a relay; nobody else can.")
    if together:
        said.append(
            f"{_stages(together)} held only by peers that fail together (same {', '.join(sorted(kinds))})."
        )
    said += _other_arithmetic(known, stages)
    return tuple(COPIES + sentence for sentence in said)


def _other_arithmetic(known: Mapping[str, MayFail], stages: Sequence[Stage]) -> list[str]:
    """A sentence where a stage's first standby is of another class; short, since the log carries 512 characters."""
    found: list[tuple[int, str, str, str]] = []
    for number, stage in enumerate(stages, start=1):
        classes = [known[name].facts.arithmetic for name in (stage.peer, *stage.standbys[:1])]
        if other_bits(classes[0], classes[-1]):
            found.append((number, stage.standbys[0], shown(classes[0]), shown(classes[1])))
    if not found:
        return []
    number, name, primary, its = found[0]
    more = f"; {len(found) - 1} more of the stages have such standbys" if len(found) > 1 else ""
    return [
        f"{name} stands by for stage {number} with other arithmetic ({its}, the primary {primary}){more}: "
        "after a takeover wording may differ."
    ]


def _stages(numbers: Sequence[str]) -> str:
    return f"stage {numbers[0]} is" if len(numbers) == 1 else f"stages {', '.join(numbers)} are"
