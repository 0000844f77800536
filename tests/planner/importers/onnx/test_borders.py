"""Frontiers, borders and units of graphs that are drawn or made up: a pure cut."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import pytest

from planner.importers.onnx.borders import (
    MOST_SIDE_BY_SIDE,
    Group,
    Part,
    cut,
    find_borders,
    frontiers,
)

Steps = Sequence[tuple[str, str, float]]  # what it takes, what it makes, work


def parts(*steps: tuple[str, str, float]) -> list[Part]:
    return [Part(tuple(takes.split()), tuple(makes.split()), work) for takes, makes, work in steps]


def test_a_frontier_is_what_is_made_before_and_used_after() -> None:
    made = parts(("x", "a", 1), ("a", "b c", 1), ("b", "d", 1), ("c d x", "y", 1))
    assert frontiers(made, {"a": 1, "b": 10, "c": 100, "d": 1000}) == [0, 1, 110, 1100]
    assert frontiers(made, {"a": 1, "b": 10, "d": 1000}) == [0, 1, math.inf, math.inf], "c cannot cross"


def test_a_border_is_the_cheapest_place_around() -> None:
    steps = [(f"v{i}", f"v{i + 1}", 1.0) for i in range(100)]
    sizes = {f"v{i}": 10.0 for i in range(101)} | {"v50": 1.0, "v20": 9.0}
    found = find_borders(parts(*steps), sizes)
    assert 50 in found
    assert 20 in found
    assert not {49, 51, 48, 52} & set(found), "worse than one beside it"


def test_equal_places_are_borders_at_a_distance() -> None:
    steps = [(f"v{i}", f"v{i + 1}", 1.0) for i in range(200)]
    found = find_borders(parts(*steps), {f"v{i}": 10.0 for i in range(201)})
    assert found == list(range(1, 200, 5)), "each more than a 48th of 200 from the next"


def test_no_border_where_a_value_cannot_cross_or_much_more_does_than_nearby() -> None:
    made = parts(("x", "a", 1), ("a", "b", 1), ("b", "c", 1), ("c", "y", 1))
    assert find_borders(made, {"a": 1, "b": math.inf, "c": 1}) == [1, 3]
    heavy = parts(*[(f"v{i}", f"v{i + 1}", 1.0) for i in range(48)])
    sizes = {f"v{i}": 1.0 for i in range(49)} | {"v24": 5.0}
    assert 24 not in find_borders(heavy, sizes)


def test_branches_between_two_borders_are_units_side_by_side() -> None:
    made = parts(
        ("x", "a", 10), ("a", "l1", 10), ("l1", "l2", 10), ("a", "r1", 10), ("r1", "r2", 10), ("l2 r2", "y", 10)
    )  # fmt: skip
    sizes = {"a": 1.0, "l1": math.inf, "l2": math.inf, "r1": math.inf, "r2": math.inf}
    assert cut(made, sizes) == [[0], [1, 2, 3, 4, 5]], "what cannot cross keeps both in one"
    sizes |= {"l2": 50.0, "r2": 50.0}
    groups = cut(made, {**sizes, "a": 40.0})
    assert [1, 2] in groups
    assert [3, 4] in groups


def test_small_steps_join_a_neighbour_that_nothing_else_waits_for() -> None:
    made = parts(("x", "a", 100), ("a", "b", 0.1), ("b", "c", 100), ("z", "s", 0.1), ("c s", "y", 100))
    groups = cut(made, dict.fromkeys("abcs", 1.0))
    assert groups == [[0, 1], [2], [3, 4]] or groups == [[0], [1, 2], [3, 4]]


def test_a_small_step_that_two_towers_use_joins_neither() -> None:
    made = parts(
        ("x", "s", 0.1),
        ("s p", "a", 100),
        ("a", "b", 100),
        ("s q", "c", 100),
        ("c", "d", 100),
        ("b d", "y", 1),
    )
    groups = cut(made, dict.fromkeys("sabcd", 1.0))
    assert [0] in groups


def test_more_small_branches_than_units_stay_together() -> None:
    many = 3 * MOST_SIDE_BY_SIDE
    steps = [("x", f"b{i}", 1.0 + i / 100) for i in range(many)]
    made = parts(("w", "x", 1.0), *steps, (" ".join(f"b{i}" for i in range(many)), "y", 1.0))
    groups = cut(made, {"x": 1.0} | {f"b{i}": math.inf for i in range(many)})
    assert sum(map(len, groups)) == len(made)
    assert len(groups) <= MOST_SIDE_BY_SIDE + 2


def check(made: Sequence[Part], groups: Sequence[Group], sizes: Mapping[str, float]) -> None:
    """Every step once, in topological order of the units, and nothing crosses that cannot."""
    assert sorted(place for group in groups for place in group) == list(range(len(made)))
    assert all(group == sorted(group) for group in groups)
    owner = {
        value: place for place, group in enumerate(groups) for step in group for value in made[step].outputs
    }
    for place, group in enumerate(groups):
        for step in group:
            for value in made[step].inputs:
                source = owner.get(value, -1)
                assert source <= place
                assert source in (-1, place) or sizes.get(value, math.inf) < math.inf


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs_are_cut_in_order(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 60)
    made, values = [], ["x"]
    for step in range(count):
        takes = tuple(
            {rng.choice(values[-6:] if rng.random() < 0.8 else values) for _ in range(rng.randint(1, 3))}
        )
        makes = tuple(f"v{step}.{place}" for place in range(rng.randint(1, 2)))
        values += makes
        made.append(Part(takes, makes, rng.choice([0.0, 0.1, 1.0, 10.0])))
    sizes = {value: float(rng.randint(0, 100)) for value in values if rng.random() < 0.9}
    most = rng.choice([1, 2, 5, 64])
    groups = cut(made, sizes, most)
    assert len(groups) <= most
    check(made, groups, sizes)
    assert cut(made, sizes, most) == groups


def test_a_frontier_is_what_brute_force_finds() -> None:
    rng = random.Random(3)
    made: list[Part] = []
    values = ["x"]
    for step in range(80):
        made.append(Part(tuple(rng.sample(values, min(len(values), 2))), (f"v{step}",), 1.0))
        values.append(f"v{step}")
    sizes = {value: float(rng.randint(1, 9)) for value in values}
    for place, cost in enumerate(frontiers(made, sizes)):
        before = {value for part in made[:place] for value in part.outputs}
        after = {value for part in made[place:] for value in part.inputs}
        assert cost == sum(sizes[value] for value in before & after)
