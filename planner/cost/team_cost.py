"""What a unit would take that several peers compute together, each a slice, beside the best of them alone.

Counted as plans count teams (planner.cost.evaluator), for one unit of each kind: shares go by speed. Pure, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from planner.cost import evaluator
from planner.cost.objectives import CHUNK_TOKENS
from planner.types import PeerProfile, PlanRequest, Stage, Unit, UnitKind

MOST_PEERS: Final = 8  # of a mesh, the fastest, among which teams are looked for
MOST_TEAM: Final = 4
SHARES: Final = 1000  # in the largest share, as the log has them


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


def whole_shares(parts: Sequence[float]) -> tuple[int, ...]:
    """Shares in relation to one another as `parts` are, the largest at most SHARES; none is 0."""
    shares = [max(1, round(SHARES * part / max(parts))) for part in parts]
    return tuple(share // math.gcd(*shares) for share in shares)


def team_costs(request: PlanRequest, units: Sequence[Unit]) -> tuple[TeamCost, ...]:
    """For the first of `units` of each kind that can be cut, and each size of team: the team that is best at decode.
    Peers without a measured link to one another are no team.
    """
    peers, links = evaluator.profiles(request), evaluator.link_table(request)
    first_of = {unit.kind: unit for unit in reversed(units) if unit.cut is not None}
    found = []
    for kind, unit in first_of.items():
        asked = replace(request, units=(unit,))
        able = [peer for peer in request.peers if evaluator.computes_slices(peer, (unit,))]
        able = sorted(able, key=lambda peer: (peer.decode_s[kind], peer.peer))[:MOST_PEERS]
        alone = [
            (
                evaluator.stage_ps(peer, (unit,), 1),
                evaluator.chunk_ps(peer, (unit,), CHUNK_TOKENS, last=True),
            )
            for peer in able
        ]
        for count in range(2, min(MOST_TEAM, len(able)) + 1):
            stages = [
                _stage((lead, *helpers), kind)
                for lead in able
                for helpers in combinations([peer for peer in able if peer is not lead], count - 1)
            ]
            timed = [
                (evaluator.place_ps(asked, stage, 1, peers, links), at)
                for at, stage in enumerate(stages)
                if evaluator.refuse_team(asked, stage, links) is None
            ]
            if not timed:
                continue
            decode, at = min(timed)
            chunk = evaluator.place_chunk_ps(asked, stages[at], CHUNK_TOKENS, peers, links, last=True)
            best, best_chunk = (min(times) for times in zip(*alone, strict=True))
            times = (each / evaluator.PICO for each in (decode, chunk, best, best_chunk))
            found.append(TeamCost(kind, stages[at].team, *times))
    return tuple(found)


def _stage(team: Sequence[PeerProfile], kind: UnitKind) -> Stage:
    lead, *helpers = (peer.peer for peer in team)
    shares = whole_shares([1 / max(peer.decode_s[kind], 1e-12) for peer in team])
    return Stage(0, 1, lead, helpers=tuple(helpers), shares=shares)
