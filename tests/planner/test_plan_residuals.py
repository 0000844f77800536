"""Intervals of plans come from plans over other classes, and hold as often as they say."""

from __future__ import annotations

import math
import random

import pytest

from planner.plan_residuals import LEAST_OTHERS, Compared, coverage, interval, median_abs_error


def plans(seed: int, count: int, spread: float, bias: dict[str, float]) -> list[Compared]:
    rng = random.Random(seed)
    found = []
    for classes, shift in bias.items():
        for _ in range(count):
            predicted = rng.uniform(0.01, 0.1)
            found.append(Compared(classes, predicted, predicted * math.exp(rng.gauss(shift, spread))))
    return found


def test_nothing_is_said_of_nothing() -> None:
    assert median_abs_error([]) is None
    assert coverage([]) is None
    assert interval(Compared("a", 1.0, 1.0), [Compared("b", 1.0, 1.0)] * (LEAST_OTHERS - 1)) is None


def test_errors_are_shares_of_what_was_measured() -> None:
    assert median_abs_error([Compared("a", 2.0, 1.0), Compared("a", 1.0, 1.0), Compared("a", 0.9, 1.0)]) == (
        pytest.approx(0.1)
    )


@pytest.mark.parametrize("seed", range(5))
def test_intervals_hold_where_classes_err_alike_and_not_where_one_is_biased(seed: int) -> None:
    alike = coverage(plans(seed, 200, 0.1, {"a": 0.2, "b": 0.2, "c": 0.2}))
    assert alike is not None
    assert 0.85 <= alike <= 0.95
    apart = coverage(plans(seed, 200, 0.02, {"a": 0.0, "b": 0.5}))
    assert apart == 0.0


def test_an_interval_follows_the_bias_of_the_others() -> None:
    others = [Compared("b", 1.0, 1.2 + 0.001 * place) for place in range(20)]
    found = interval(Compared("a", 0.5, 0.6), others)
    assert found is not None
    assert found[0] == pytest.approx(0.6, rel=0.01)
    assert 0.6 < found[1] < 0.62
