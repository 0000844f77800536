"""Intervals of plans come from plans over other classes, and hold as often as they say."""

from __future__ import annotations

import math
import random

import pytest

from peer.bench.plan_residuals import (
    LEAST_OTHERS,
    Compared,
    Residual,
    against_best,
    coverage,
    interval,
    learned,
    median_abs_error,
    residual,
)


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


def test_a_residual_is_learned_from_other_classes_only() -> None:
    alike = plans(1, 50, 0.02, {"a": 0.3, "b": 0.3, "c": 0.3})
    assert (median_abs_error(alike) or 0) > 0.2
    assert (median_abs_error(learned(alike)) or 1) < 0.03
    apart = plans(2, 50, 0.001, {"a": 0.0, "b": 0.5})
    for plan, again in zip(apart, learned(apart), strict=True):
        factor = again.predicted_s / plan.predicted_s
        assert factor == pytest.approx(math.exp(0.5 if plan.classes == "a" else 0.0), rel=0.01)
    few = [Compared("a", 1.0, 2.0)] + [Compared("b", 1.0, 2.0)] * (LEAST_OTHERS - 1)
    assert learned(few)[0] == few[0]


def staged(seed: int, stage_s: float) -> list[Compared]:
    """Plans of up to two stages over single classes, of two and three over both, as a mesh of four has them."""
    rng = random.Random(seed)
    found = []
    for classes, counts in (
        ("a", (1, 1, 2, 2, 2, 2)),
        ("b", (1, 1, 2, 2, 2, 2)),
        ("a+b", (2,) * 20 + (3,) * 20),
    ):
        for count in counts:
            predicted = rng.uniform(0.008, 0.013)
            measured = (1.05 * predicted + stage_s * count) * math.exp(rng.gauss(0.0, 0.02))
            found.append(Compared(classes, predicted, measured, count))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_what_a_stage_takes_beyond_its_prediction_is_learned_of_plans_with_fewer_stages(seed: int) -> None:
    plans_of_mesh = staged(seed, 0.0006)
    few = [plan for plan in plans_of_mesh if plan.classes != "a+b"]
    learnt = residual(few)
    assert learnt.stage_s == pytest.approx(0.0006, abs=0.0004)
    assert (median_abs_error(plans_of_mesh) or 0) > 0.1
    assert (median_abs_error(learned(plans_of_mesh)) or 1) < 0.05


def test_a_stage_takes_no_less_than_nothing_and_plans_alike_say_nothing_of_it() -> None:
    assert residual([Compared("a", 0.01, 0.012, 2)] * 9) == Residual(pytest.approx(1.2))
    assert residual(staged(1, -0.001)).stage_s == 0.0
    assert residual([]) == Residual()


def test_the_chosen_plan_is_compared_within_rounds() -> None:
    assert against_best([1.0, 2.0, 1.0], []) == 1.0
    slower_machine = [[0.9, 1.8, 0.9], [1.1, 2.2, 1.1]]
    assert against_best([1.0, 2.0, 1.0], slower_machine) == pytest.approx(1 / 0.9)
    assert against_best([1.0, 1.0, 1.0], [[0.5, 1.0, 1.0], [1.2, 1.2, 0.1]]) == 1.0
