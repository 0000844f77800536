"""Timelines: nobody does two things at once; replicas and spans reach what they say."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from peer.bench import instances
from planner.cost import evaluator, schedules
from planner.cost.objectives import Wish
from planner.cost.simulator import Work
from planner.solvers import portfolio, replicas

QUICK = portfolio.Effort(search=60_000, exact=10_000_000)


def apart(works: tuple[Work, ...]) -> bool:
    """Whether the bars of each peer follow one another."""
    bars: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for work in works:
        if work.what == "stage":
            bars[work.where].append((work.start_ps, work.stop_ps))
    return all(a[1] <= b[0] for rows in bars.values() for a, b in pairwise(sorted(rows)))


@pytest.mark.parametrize("seed", range(3))
def test_timelines_add_up(seed: int) -> None:
    request = instances.mesh(seed, 5, blocks=6, sessions=4, tight=1.5)
    chosen = portfolio.solve(request, Wish("throughput"), QUICK).chosen
    assert chosen is not None
    prompt = schedules.prompt(request, chosen.stages, 200)
    assert apart(prompt.works)
    assert prompt.total_ps == evaluator.prefill_ps(request, chosen.stages, 200, prompt.batch)
    assert all(
        prompt.total_ps <= evaluator.prefill_ps(request, chosen.stages, 200, size)
        for size in (16, 32, 64, 128)
    )
    assert len([work for work in prompt.works if work.what == "stage"]) == len(chosen.stages) * -(
        -200 // prompt.batch
    )
    decode = schedules.decode(request, chosen.stages)
    assert apart(decode.works)
    assert all(0 <= share <= 1 for _, share in (*prompt.idle, *decode.idle))


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
