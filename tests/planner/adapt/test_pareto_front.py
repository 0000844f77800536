"""The few plans that a plan is shown among: what each can do, which are best, and why the others were not taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.adapt.pareto_front import MOST, MOST_UNABLE
from planner.adapt.serving_plan import FRONT_PEERS, choose
from planner.cost.objectives import Wish
from planner.types import Link, PeerProfile, Plan, PlanRequest, Unit, UnitKind

MIB = 2**20
UNITS = (
    Unit("embed", "embed", 30 * MIB, 1, 0, 2304),
    *(
        unit
        for block in range(8)
        for unit in (
            Unit(f"attn.{block}", "attn", 2 * MIB, 2 * MIB, 1536, 2304),
            Unit(f"ffn.{block}", "ffn", 6 * MIB, 6 * MIB, 0, 2304),
        )
    ),
    Unit("head", "head", 30 * MIB, 30 * MIB, 0, 4),
)
TOOK: dict[UnitKind, float] = {"embed": 2e-5, "attn": 8e-4, "ffn": 12e-4, "head": 4e-3}


def asked(peers: int, sessions: int = 4) -> PlanRequest:
    """The first peer is too small for everything, each further one a little slower."""

    def peer(at: int) -> PeerProfile:
        took = {kind: seconds * (1 + 0.3 * at) for kind, seconds in TOOK.items()}
        third = {kind: seconds / 3 for kind, seconds in took.items()}
        return PeerProfile(f"p{at}", (1000 if at else 90) * MIB, 8 * MIB, took, third, 1e-4, third)

    names = [f"p{at}" for at in range(peers)]
    links = tuple(Link(a, b, 0.002, 1e7, 1e-4) for a in names for b in names if a != b)
    return PlanRequest(UNITS, tuple(peer(at) for at in range(peers)), links, 512, sessions)


@pytest.mark.parametrize("peers", [2, 4, FRONT_PEERS + 1])
@pytest.mark.parametrize("goal", ["latency", "throughput"])
def test_the_chosen_plan_stands_among_the_front_and_what_cannot_run(peers: int, goal: str) -> None:
    wish = Wish("throughput" if goal == "throughput" else "latency")
    found = choose(asked(peers), wish)
    assert isinstance(found, Plan)
    able = [choice for choice in found.choices if choice.decode_s]
    unable = [choice for choice in found.choices if not choice.decode_s]
    assert len(able) >= 2
    assert len(found.choices) <= MOST
    (chosen,) = (choice for choice in able if choice.chosen)
    assert chosen.decode_s == pytest.approx(found.decode_s)
    assert chosen.tokens_per_s == pytest.approx(found.tokens_per_s)
    assert [choice.decode_s for choice in able] == sorted(choice.decode_s for choice in able)
    for choice in able:
        beaten = any(
            other.decode_s <= choice.decode_s
            and other.tokens_per_s >= choice.tokens_per_s
            and (other.decode_s, other.tokens_per_s) != (choice.decode_s, choice.tokens_per_s)
            for other in able
        )
        assert choice.best != beaten
        assert choice.prefill_s > 0
        assert choice.memory_bytes > 30 * MIB
        assert (choice.why_not == "") == choice.chosen
    front = [choice for choice in able if choice.best]
    assert sum(choice.knee for choice in front) == (len(front) > 1)
    assert not any(choice.knee for choice in able if not choice.best)
    assert 1 <= len(unable) <= MOST_UNABLE
    assert "short" in unable[0].why_not
    assert found == choose(replace(asked(peers), peers=asked(peers).peers[::-1]), wish)


def test_a_plan_without_another_stands_alone() -> None:
    found = choose(replace(asked(2), peers=asked(2).peers[1:], links=()))
    assert isinstance(found, Plan)
    assert found.choices == ()
