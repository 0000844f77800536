"""Sampling: vectors for every language, brute force on small vocabularies, chi-square with fixed seeds."""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from peer.session.sampling import (
    BadSampling,
    NotFiniteLogits,
    Sampling,
    candidates,
    exponential,
    murmur3,
    penalize,
    sample,
    uniform,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "sampling.json").read_text())


def floats(text: str) -> NDArray[np.float32]:
    return np.frombuffer(bytes.fromhex(text), "<f4")


def made_logits(seed: int, vocab: int, span: int) -> NDArray[np.float32]:
    return np.array([uniform(seed, i) * span - span / 2 for i in range(vocab)], np.float32)


def logits_of(case: dict[str, Any], made: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    if "logits" in case:
        return floats(case["logits"])
    key = json.dumps(case["made"])
    if key not in made:
        made[key] = made_logits(**case["made"])
    return made[key]


def brute_weights(
    logits: NDArray[np.float32], sampling: Sampling, history: Sequence[int], generated: Sequence[int]
) -> dict[int, float]:
    """The definition, token by token and with full sorts: what candidates() must equal to the bit."""
    values = [float(value) for value in logits]
    for token in sorted(set(history)):
        rate = sampling.repetition_penalty
        values[token] = values[token] * rate if values[token] < 0 else values[token] / rate
    for token, count in Counter(generated).items():
        values[token] = values[token] - count * sampling.frequency_penalty - sampling.presence_penalty
    values = [float(np.float32(value)) for value in values]
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    top = values[order[0]]
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights: dict[int, float] = {}
    for token in order:
        exponent = (values[token] - top) / sampling.temperature
        if exponent >= -40:
            weights[token] = float(exponential(np.array([exponent]))[0])
    if sampling.top_p < 1:
        total = 0.0
        for token in sorted(weights):
            total += weights[token]
        kept, mass = [], 0.0
        for token in order:
            if token not in weights or mass >= sampling.top_p * total:
                break
            kept.append(token)
            mass += weights[token]
        weights = {token: weights[token] for token in kept}
    return {token: weight for token, weight in weights.items() if weight >= sampling.min_p}


def test_murmur3_equals_its_published_values() -> None:
    assert murmur3((), 0) == 0
    assert murmur3((), 1) == 0x514E28B7
    assert murmur3((0xFFFFFFFF,), 0) == 0x76293B50
    assert murmur3((0x87654321,), 0) == 0xF55B516B
    assert murmur3((0x87654321,), 0x5082EDEE) == 0x2362F9DE
    assert murmur3((0,), 0) == 0x2362F9DE


def test_uniform_vectors() -> None:
    for seed, position, high, low, scaled in VECTORS["uniform"]:
        words = (seed & 0xFFFFFFFF, seed >> 32, position)
        assert (murmur3(words, 1), murmur3(words, 2)) == (high, low)
        assert uniform(seed, position) * 2**53 == scaled


def test_exponential_vectors() -> None:
    for given_bits, wanted_bits in VECTORS["exponential"]:
        (exponent,) = struct.unpack(">d", bytes.fromhex(given_bits))
        got = float(exponential(np.array([exponent]))[0])
        assert struct.pack(">d", got).hex() == wanted_bits


def test_exponential_is_one() -> None:
    exponents = -np.linspace(0, 40, 20001)
    wanted = np.array([math.exp(value) for value in exponents])
    assert np.max(np.abs(exponential(exponents) / wanted - 1)) < 4e-16
    assert exponential(np.zeros(1))[0] == 1.0


def test_sample_vectors() -> None:
    made: dict[str, NDArray[np.float32]] = {}
    for case in VECTORS["sample"]:
        sampling = Sampling.from_wire(case["settings"])
        token = sample(logits_of(case, made), sampling, case["position"], case["history"], case["generated"])
        assert token == case["token"], case["name"]


@pytest.mark.parametrize("case", VECTORS["reject"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1, top_p=0.5, repetition_penalty=2)])
def test_logits_that_are_not_numbers_are_refused(case: dict[str, str], sampling: Sampling) -> None:
    with pytest.raises(NotFiniteLogits, match="logits must be finite"):
        sample(floats(case["logits"]), sampling, 0, [0])


def test_a_penalty_that_overflows_is_refused() -> None:
    with pytest.raises(NotFiniteLogits):
        sample(np.array([3e38, 0], np.float32), Sampling(repetition_penalty=0.01), 0, [0])


def test_empty_or_square_logits_are_refused() -> None:
    for shape in [(0,), (1, 2)]:
        with pytest.raises(NotFiniteLogits, match="one row"):
            sample(np.zeros(shape, np.float32), Sampling(), 0)


wire_settings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.01, 0.5, 0.8, 1.0, 2.0]),
    top_k=st.integers(0, 8),
    top_p=st.sampled_from([0.01, 0.3, 0.5, 0.9, 0.999999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.1, 2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.3, -1.5]),
    presence_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    seed=st.integers(0, 2**53 - 1),
)
small_logits = st.lists(
    st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0, -math.inf]), st.floats(-30, 30, width=32)),
    min_size=1,
    max_size=12,
).filter(lambda row: max(row) > -math.inf)


@settings(max_examples=300, deadline=None)
@given(small_logits, wire_settings, st.data())
def test_equals_brute_force(row: list[float], sampling: Sampling, data: st.DataObject) -> None:
    logits = np.array(row, np.float32)
    tokens = st.lists(st.integers(0, len(row) - 1), max_size=6)
    prompt, generated = data.draw(tokens), data.draw(tokens)
    history = prompt + generated
    changed = penalize(logits, sampling, history, generated)
    ids, weights = candidates(changed, int(np.argmax(changed)), sampling)
    assert dict(zip(ids.tolist(), weights.tolist(), strict=True)) == brute_weights(
        logits, sampling, history, generated
    )
    assert sample(logits, sampling, 7, history, generated) in ids


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 6.0])
@pytest.mark.parametrize(
    "options", [{"top_p": 0.9}, {"top_k": 50}, {"top_k": 3000, "top_p": 0.5}, {"min_p": 0.2}]
)
def test_partial_sorts_equal_full_sorts_on_a_large_vocabulary(spread: float, options: dict[str, Any]) -> None:
    logits = (np.random.default_rng(1).normal(0, 1, 5000) * spread).round(1).astype(np.float32)  # many ties
    sampling = Sampling(temperature=0.9, **options)
    ids, weights = candidates(logits, int(np.argmax(logits)), sampling)
    assert dict(zip(ids.tolist(), weights.tolist(), strict=True)) == brute_weights(logits, sampling, [], [])


@given(wire_settings)
def test_wire_form_returns_what_went_in(sampling: Sampling) -> None:
    wire = sampling.to_wire()
    assert all(type(value) is int for value in wire)
    assert Sampling.from_wire(wire) == sampling


def test_settings_are_kept_to_a_millionth() -> None:
    assert Sampling(temperature=0.12345678).temperature == 0.123457
    assert Sampling(temperature=0.8).temperature == 0.8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", 1000),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_k", -1),
        ("top_k", 2.0),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("repetition_penalty", 0),
        ("frequency_penalty", 3),
        ("presence_penalty", -3),
        ("seed", -1),
        ("seed", 2**53),
    ],
)
def test_settings_out_of_range_name_their_field(field: str, value: object) -> None:
    with pytest.raises(BadSampling, match=field):
        Sampling(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wire", [[], [0] * 7, [0] * 9, [0.5] * 8, [True] * 8, ["1"] * 8, [2**60] * 8, [0] * 8]
)
def test_hostile_wire_forms_are_refused(wire: list[Any]) -> None:
    with pytest.raises(BadSampling):
        Sampling.from_wire(wire)


def test_token_ids_outside_the_vocabulary_are_refused() -> None:
    logits = np.zeros(4, np.float32)
    for tokens in ([4], [-1]):
        with pytest.raises(BadSampling, match="token ids"):
            sample(logits, Sampling(repetition_penalty=2), 0, tokens)
        with pytest.raises(BadSampling, match="token ids"):
            sample(logits, Sampling(presence_penalty=1), 0, [], tokens)
    with pytest.raises(BadSampling, match="position"):
        sample(logits, Sampling(temperature=1), -1)


def chi_square(counts: Sequence[int], expected: Sequence[float]) -> float:
    return sum((seen - wanted) ** 2 / wanted for seen, wanted in zip(counts, expected, strict=True))


def test_numbers_are_uniform_over_positions_seeds_and_pairs() -> None:
    """16 cells, 15 degrees of freedom: the 0.999 quantile is 37.7. 256 cells for neighbours: 330.5."""
    streams = {
        "positions": [uniform(3, i) for i in range(16000)],
        "seeds": [uniform(i, 3) for i in range(16000)],
        "high seeds": [uniform(i << 32, 3) for i in range(16000)],
        "low bits": [uniform(4, i) * 2**48 % 1 for i in range(16000)],
    }
    for name, numbers in streams.items():
        counts = Counter(int(number * 16) for number in numbers)
        assert chi_square([counts[cell] for cell in range(16)], [1000.0] * 16) < 37.7, name
    numbers = [uniform(5, i) for i in range(25601)]
    pairs = Counter((int(a * 16), int(b * 16)) for a, b in itertools.pairwise(numbers))
    assert chi_square([pairs[a, b] for a in range(16) for b in range(16)], [100.0] * 256) < 330.5


@pytest.mark.parametrize(
    "options", [{}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.15}, {"repetition_penalty": 1.5}]
)
def test_tokens_come_as_often_as_their_weight_says(options: dict[str, Any]) -> None:
    logits = np.array([1.0, 0.2, -0.5, 2.0, 1.7, 0.0, -3.0, 1.0], np.float32)
    sampling = Sampling(temperature=0.8, seed=20, **options)
    weights = brute_weights(logits, sampling, [3], [])
    total, draws = sum(weights.values()), 8000
    counts = Counter(sample(logits, sampling, position, [3]) for position in range(draws))
    assert set(counts) <= set(weights)
    tokens = sorted(weights)
    found = chi_square(
        [counts[token] for token in tokens], [weights[token] / total * draws for token in tokens]
    )
    assert found < 24.4  # 0.999 quantile of 7 degrees of freedom; fewer tokens have a lower one


def test_chance_depends_on_seed_and_position_only() -> None:
    logits = made_logits(1, 300, 4)
    sampling = Sampling(temperature=1, seed=9)
    first = [sample(logits, sampling, position) for position in range(40)]
    assert first == [sample(logits, sampling, position, [1, 2], [2]) for position in range(40)]
    assert len(set(first)) > 10
    assert first != [sample(logits, Sampling(temperature=1, seed=10), position) for position in range(40)]


def test_arguments_are_left_alone() -> None:
    logits = made_logits(2, 50, 4)
    logits.setflags(write=False)
    sample(logits, Sampling(1.0, 5, 0.9, 0.1, 1.2, 0.5, 0.5, 1), 3, [1, 2], [2])
