"""Replicas and spans reach the rates that they say."""

from __future__ import annotations

import pytest

from peer.bench import instances
from planner.solvers import replicas


def test_spans_carry_what_one_chain_does_at_least() -> None:
    tables = (instances.HELIX_C10[0],) * 2 + (instances.HELIX_C10[9],) * 2
    one = replicas.annealed(tables, 12, steps=0)
    found = replicas.annealed(tables, 12, steps=150)
    assert found.rate >= one.rate > 0
    assert found == replicas.annealed(tables, 12, steps=150)
    assert replicas.flow(tables, found.held, 12) == pytest.approx(found.rate)


def test_helix_placement_carries_its_rate_as_a_flow() -> None:
    found = replicas.annealed(instances.HELIX_C10, instances.HELIX_LAYERS, steps=0)
    assert found.rate == pytest.approx(286.6)


def test_two_replicas_beat_one_chain_where_two_fit() -> None:
    tables = ((40.0, 20.0, 12.0, 10.0),) * 4
    found = replicas.grouped(tables, 4, generations=5)
    assert found.rate == pytest.approx(40.0)
    assert found == replicas.grouped(tables, 4, generations=5)
    two = replicas.grouped(((30.0, 25.0),) * 4, 4, generations=5)
    assert two.rate == pytest.approx(50.0)
    assert sorted(two.replica.count(each) for each in set(two.replica)) == [2, 2]
