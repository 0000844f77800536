"""Predictions on made-up peers whose truth is known: error and coverage for classes left out, and when to abstain."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from planner.history.facts import PeerClass, class_named, class_of
from planner.history.reading import Cell
from planner.predict.priors import Roof, leaning, roof_of
from planner.predict.unit_times import (
    MIN_RUNS,
    Gate,
    Prediction,
    Predictor,
    ProbeFirst,
    Query,
    Sample,
    fit,
    revisit,
    samples_of,
)

KINDS = {"embed": 1.3, "attn": 1.6, "ffn": 1.2, "head": 1.1}  # true times over the roofline
PROVIDERS = {"cpu": 1.2, "wasm": 2.0, "webgpu": 1.5}
SIZES = {"embed": 1 << 14, "attn": 1 << 20, "ffn": 1 << 22, "head": 1 << 24}


def made_class(number: int) -> PeerClass:
    provider = list(PROVIDERS)[number % 3]
    browser = "Python" if provider == "cpu" else ("Chrome", "Firefox", "Edge")[number // 3 % 3]
    return PeerClass(browser, str(100 + number), provider, 1 + number % 4, "computer")


def world(seed: int, classes: int, spread: float, noise: float = 0.03, runs: int = 12) -> list[Sample]:
    """Samples of so many classes; each class is off by `spread` (of ln), each cell by 2 %, each run by `noise`."""
    draw = random.Random(seed)
    found = []
    for number in range(classes):
        peer = made_class(number)
        roof = Roof(draw.uniform(5e9, 5e11), draw.uniform(3e9, 6e10))
        off = draw.gauss(0, spread)
        for kind, factor in KINDS.items():
            query = Query(peer, kind, SIZES[kind].bit_length(), 2.0 * SIZES[kind], SIZES[kind], roof)
            truth = math.log(query.prior_s() * factor * PROVIDERS[peer.provider]) + off + draw.gauss(0, 0.02)
            mean = truth + draw.gauss(0, noise / math.sqrt(runs))
            found.append(Sample(query, runs, mean))
    return found


def of(found: Prediction | ProbeFirst) -> Prediction:
    return found.guess if isinstance(found, ProbeFirst) else found


@pytest.mark.parametrize("seed", range(2))
def test_classes_left_out_are_predicted_within_the_gate(seed: int) -> None:
    samples = world(seed, 18, 0.05)
    predictor = fit(samples)
    assert predictor.gate.passed, predictor.gate.words()
    assert predictor.gate.mean_error <= 0.10
    fresh = world(seed + 100, 60, 0.05)  # classes 18 to 59 of another draw: their truth was never seen
    unseen = [sample for sample in fresh if sample.query.cell not in predictor.runs]
    assert len(unseen) == 42 * len(KINDS)
    errors, inside = [], 0
    for sample in unseen:
        found = of(predictor.predict(sample.query))
        truth = math.exp(sample.mean_ln_s)
        errors.append(abs(found.seconds / truth - 1))
        inside += found.low_s <= truth <= found.high_s
    assert sum(errors) / len(errors) <= 0.10
    assert 0.85 <= inside / len(unseen) <= 0.99


def test_classes_that_differ_do_not_pass_and_are_probed_first() -> None:
    predictor = fit(world(1, 18, 0.6))
    assert not predictor.gate.passed
    stranger = replace(world(2, 19, 0.6)[-1].query)
    found = predictor.predict(stranger)
    assert isinstance(found, ProbeFirst)
    assert stranger.peer.name in found.why


def test_what_was_measured_often_enough_steers_however_classes_differ() -> None:
    samples = world(3, 18, 0.6)
    predictor = fit(samples)
    for sample in samples:
        found = predictor.predict(sample.query)
        assert isinstance(found, Prediction)
        assert found.steers
        assert found.seconds == pytest.approx(math.exp(sample.mean_ln_s), rel=0.1)


def test_nothing_steers_before_ten_runs() -> None:
    few = [replace(sample, runs=MIN_RUNS - 1) for sample in world(4, 18, 0.05)]
    predictor = fit(few)
    assert not any(of(predictor.predict(sample.query)).steers for sample in few)
    enough = [replace(sample, runs=MIN_RUNS) for sample in few]
    predictor = fit(enough)
    assert all(of(predictor.predict(sample.query)).steers for sample in enough)


def test_the_order_of_samples_never_matters() -> None:
    samples = world(5, 9, 0.05)
    query = world(6, 12, 0.05)[-1].query
    assert fit(samples).predict(query) == fit(samples[::-1]).predict(query)


def test_a_cold_start_gives_the_prior_and_asks_for_a_probe() -> None:
    peer = class_of("shoal/0.1 (Edg/140.0)", "webgpu", 1)
    found = Predictor().predict(Query(peer, "attn", 20, 2e6, 1e6))
    assert isinstance(found, ProbeFirst)
    assert found.guess.low_s < found.guess.seconds < found.guess.high_s
    assert not found.guess.steers
    assert "Edge is said to suit text" in found.guess.why
    assert found.guess.seconds == pytest.approx(0.97 * roof_of(peer).seconds(2e6, 1e6))


@pytest.mark.parametrize(
    ("agent", "modality", "says"),
    [
        ("Chrome/140.0", "vision", "Chrome is said to suit vision"),
        ("Firefox/130.0", "audio", "Firefox is said to suit audio"),
        ("Chrome/140.0 Edg/140.0", "text", "Edge is said to suit text"),
        ("Version/18.0 Mobile/15E148 Safari/604.1", "text", "Safari is said to suit phones"),
        ("Chrome/140.0", "text", ""),
        ("shoal/0.1.0 (aiortc)", "text", ""),
    ],
)
def test_what_is_said_of_browsers_is_a_weak_prior_that_runs_override(
    agent: str, modality: str, says: str
) -> None:
    peer = class_of(agent, "cpu" if agent.startswith("shoal") else "wasm", 1)
    factor, sentence = leaning(peer, modality, 0)  # type: ignore[arg-type]
    assert sentence.startswith(says)
    assert (factor < 1) == bool(says)
    assert leaning(peer, modality, 100)[0] > 0.999  # type: ignore[arg-type]


def test_few_classes_are_not_enough_to_predict_others() -> None:
    predictor = fit(world(7, 3, 0.01))
    assert not predictor.gate.passed
    assert "3 classes" in predictor.gate.words()
    assert isinstance(predictor.predict(world(8, 5, 0.01)[-1].query), ProbeFirst)


def test_a_gate_needs_both_a_small_error_and_intervals_that_hold() -> None:
    good = Gate(10, 0.05, 0.9, 0.9, 1.0)
    assert good.passed
    for bad in (
        replace(good, mean_error=0.2),
        replace(good, near=0.3),
        replace(good, coverage=0.5),
        replace(good, classes=2),
    ):
        assert not bad.passed


def test_what_steers_is_looked_at_again_after_a_hundred_answers() -> None:
    assert [revisit(answers, 50) for answers in (50, 149, 150, 400)] == [False, False, True, True]


def test_cells_of_a_history_become_samples() -> None:
    name = made_class(1).name
    cells = [
        Cell(name, "wasm", "attn", 20, 2e6, 1e6, 12, -5.0, 0.1),
        Cell("?", "wasm", "attn", 20, 1, 1, 1, 0, 0),
    ]
    (sample,) = samples_of(cells)
    assert class_named(name) == sample.query.peer == made_class(1)
    assert (sample.runs, sample.query.bucket) == (12, 20)
