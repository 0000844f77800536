"""What a unit would take that several peers compute together, each a slice, beside the best of them alone.

A team has a lead, which has the unit's place, and helpers. The lead sends the unit's input to all helpers, everybody
computes its share, helpers send their parts back. Shares go by speed. So a step takes as long as the slowest share with
its way there and back; adding up is not counted. Pure, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from planner.cost.objectives import CHUNK_TOKENS
from planner.types import Link, PeerProfile, PlanRequest, UnitKind

MOST_PEERS: Final = 8  # of a mesh, the fastest, among which teams are looked for
MOST_TEAM: Final = 4


@dataclass(frozen=True, slots=True)
class TeamCost:
    """The best team of its size for units of one kind, by its times of a decode step and of a prompt's chunk
    (CHUNK_TOKENS); `alone_s` and `alone_chunk_s` are those of the best peer by itself.
    """

    kind: UnitKind
    peers: tuple[str, ...]  # the lead first
    decode_s: float
    chunk_s: float
    alone_s: float
    alone_chunk_s: float

    @property
    def pays(self) -> tuple[bool, bool]:
        """Whether it is faster than the best peer alone: for decode, for prompts."""
        return self.decode_s < self.alone_s, self.chunk_s < self.alone_chunk_s


def team_costs(request: PlanRequest, sent: Mapping[UnitKind, int]) -> tuple[TeamCost, ...]:
    """For each kind of `sent`, which says how many bytes go to and from each helper for a token, and each size of team:
    the team that is best at decode. Peers without a measured link to one another are no team.
    """
    links = {(link.src, link.dst): link for link in request.links}
    found = []
    for kind, size in sent.items():
        able = sorted(
            (peer for peer in request.peers if kind in peer.decode_s), key=lambda p: p.decode_s[kind]
        )
        able = able[:MOST_PEERS]
        if not able:
            continue
        alone = able[0].decode_s[kind]
        tokens = 1 if kind == "head" else CHUNK_TOKENS  # a prompt needs the logits of its last token
        alone_chunk = min(tokens * peer.prefill_s[kind] for peer in able)
        for count in range(2, min(MOST_TEAM, len(able)) + 1):
            teams = [
                (lead, *helpers)
                for lead in able
                for helpers in combinations([peer for peer in able if peer is not lead], count - 1)
                if all((lead.peer, h.peer) in links and (h.peer, lead.peer) in links for h in helpers)
            ]
            timed = [
                (_step(team, links, [p.decode_s[kind] for p in team], size), at)
                for at, team in enumerate(teams)
            ]
            if not timed:
                continue
            decode, at = min(timed)
            team = teams[at]
            chunk = _step(team, links, [tokens * p.prefill_s[kind] for p in team], tokens * size)
            peers = tuple(peer.peer for peer in team)
            found.append(TeamCost(kind, peers, decode, chunk, alone, alone_chunk))
    return tuple(found)


def _step(
    team: Sequence[PeerProfile], links: Mapping[tuple[str, str], Link], times: Sequence[float], size: int
) -> float:
    """The time of a step of which `times` are those of each member alone, `size` bytes going there and back."""
    speeds = [1 / max(seconds, 1e-12) for seconds in times]
    computed = 1 / sum(speeds)  # of each share, since they go by speed
    lead, *helpers = team
    ways = [
        sum(_way(links[pair], size // 2) for pair in ((lead.peer, helper.peer), (helper.peer, lead.peer)))
        + helper.step_s
        for helper in helpers
    ]
    return computed + max(ways)


def _way(link: Link, size: int) -> float:
    return link.rtt_s / 2 + link.overhead_s + size / link.bytes_per_s + link.loss * link.rtt_s
