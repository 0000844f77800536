"""How fast peers of a decoder run graphs, by what they measured."""

from __future__ import annotations

import pytest

from planner.cost.graph_peers import TAB_ENGINE, UNTIMED_FLOPS_PER_S, flops_per_s, graph_peers
from planner.types import PeerFacts, PeerProfile, PlanRequest, Unit, UnitKind

FLOPS = {"embed": 0, "attn": 2000, "ffn": 6000, "head": 9000}


def measured(times: dict[UnitKind, float], provider: str = "cpu") -> PeerProfile:
    return PeerProfile("a", 100, 30, {}, times, 0.5, facts=PeerFacts(provider=provider))


@pytest.mark.parametrize(
    ("times", "speed"),
    [
        ({"attn": 2e-6, "ffn": 1e-9}, 1e9),
        ({"attn": 0.0, "ffn": 3e-6}, 2e9),
        ({"head": 1e-6}, 9e9),
        ({"embed": 5e-9}, UNTIMED_FLOPS_PER_S),
    ],
)
def test_speed_is_what_was_measured_of_a_prompt(times: dict[UnitKind, float], speed: float) -> None:
    assert flops_per_s(measured(times), "cpu", FLOPS) == pytest.approx(speed)
    assert flops_per_s(measured(times), "wasm", FLOPS) == pytest.approx(speed)
    assert flops_per_s(measured(times), "webgpu", FLOPS) == UNTIMED_FLOPS_PER_S, "not what was measured"


def test_peers_of_a_described_cluster_lend_all_they_have() -> None:
    units = (Unit("attn.0", "attn", 1, 2000, 4, 4),)
    peers = (measured({"attn": 2e-6}), measured({}, "wasm"))
    process, tab = graph_peers(PlanRequest(units, peers, (), 8, 1))
    assert (process.free_bytes, process.step_s) == (70, 0.5)
    assert process.flops_per_s == pytest.approx(1e9)
    assert process.engine.types is None
    assert tab.engine == TAB_ENGINE
