"""A team pays where what it saves at computing is more than its messages take, and not elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from planner.cost.evaluator import PICO, evaluate
from planner.cost.team_cost import MOST_TEAM, team_costs
from planner.types import Link, PeerProfile, PlanRequest, Stage, Unit, UnitCut, UnitKind

KINDS: Final[tuple[UnitKind, ...]] = ("embed", "attn", "ffn", "head")
UNITS: Final = (Unit("ffn.0", "ffn", 1 << 20, 0, 0, 8192, cut=UnitCut(8, 0, 1, 8192)),)


def request(rtt_s: float, decode_s: float, peers: int = 3) -> PlanRequest:
    """Equal peers, each linked to each."""
    names = [f"p{number}" for number in range(peers)]
    times = dict.fromkeys(KINDS, decode_s)
    profiles = tuple(PeerProfile(name, 1 << 30, 0, times, times) for name in names)
    links = tuple(Link(a, b, rtt_s, 1e9) for a in names for b in names if a != b)
    return PlanRequest((), profiles, links, 1024, 1)


def test_a_team_pays_on_a_fast_link_alone() -> None:
    near, far = (team_costs(request(rtt_s, 0.004), UNITS) for rtt_s in (0.0002, 0.04))
    assert [len(team.peers) for team in near] == [2, 3]
    assert all(team.pays == (True, True) for team in near)
    assert near[0].decode_s == pytest.approx(0.002 + 0.0002 + 16_384 / 1e9)
    assert all(not team.pays[0] for team in far)


def test_what_a_team_takes_is_what_plans_count() -> None:
    asked = replace(request(0.0002, 0.004), units=UNITS)
    for team in team_costs(asked, UNITS):
        lead, *helpers = team.peers
        stage = Stage(0, 1, lead, helpers=tuple(helpers), shares=(1,) * len(team.peers))
        assert evaluate(asked, (stage,)).decode_ps == round(team.decode_s * PICO)


def test_teams_are_bounded_and_need_links_both_ways() -> None:
    assert max(len(team.peers) for team in team_costs(request(0.001, 0.01, 12), UNITS)) == MOST_TEAM
    asked = request(0.001, 0.01)
    one_way = tuple(link for link in asked.links if link.src < link.dst)
    assert team_costs(replace(asked, links=one_way), UNITS) == ()
    assert team_costs(replace(asked, peers=()), UNITS) == ()
