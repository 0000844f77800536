"""What a seat can show of its inputs, how they were computed, and which distances honest results have."""

from __future__ import annotations

import numpy as np
import pytest

from peer.session.activation_log import ActivationLog
from peer.session.evidence import (
    ALIKE,
    SAME,
    SAME_CLASS,
    Computes,
    Evidence,
    alone_from,
    distance,
    first_other,
    limit,
    marks_of,
    rounding,
    span_of,
    steps_of_spans,
)
from peer.wire.tensors import tensor_of


def hidden(first: int, stop: int, width: int = 3) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.arange(first * width, stop * width, dtype=np.float32).reshape(-1, width)


def test_marks_are_of_each_position_however_inputs_are_cut() -> None:
    whole, parts = Evidence(), Evidence()
    whole.note(0, tensor_of(hidden(0, 7)))
    for first, stop in ((0, 2), (2, 3), (3, 7)):
        parts.note(first, tensor_of(hidden(first, stop)))
    assert whole.marked(0, 7) == parts.marked(0, 7) == marks_of(tensor_of(hidden(0, 7)))
    assert whole.marked(5, 8) is None


def test_inputs_that_come_again_replace_those_before() -> None:
    evidence = Evidence()
    evidence.note(0, tensor_of(hidden(0, 7)))
    evidence.note(3, tensor_of(hidden(30, 31)))
    assert evidence.marked(0, 5) is None
    assert evidence.marked(3, 4) == marks_of(tensor_of(hidden(30, 31)))
    assert span_of(evidence.newest, 2, 4) is not None


def test_rows_of_a_log() -> None:
    log = ActivationLog(1 << 20)
    for first, stop in ((0, 4), (4, 5), (5, 9)):
        log.append(first, tensor_of(hidden(first, stop)))
    found = span_of(log, 2, 7)
    assert found is not None
    assert np.array_equal(found, hidden(2, 7))
    assert span_of(log, 2, 10) is None
    assert span_of(ActivationLog(1), 0, 1) is None


@pytest.mark.parametrize(
    ("spans", "stop", "expected"),
    [
        ((5,), 5, [(0, 4, True), (4, 5, True)]),
        ((3, 2), 5, [(0, 3, True), (3, 4, False), (4, 5, False)]),
        ((3,), 5, [(0, 3, True), (3, 4, False), (4, 5, False)]),
        ((0, 2, 2), 3, [(0, 1, False), (1, 2, False), (2, 3, True)]),
        ((9,), 2, [(0, 2, True)]),
    ],
)
def test_positions_are_computed_as_they_were(
    spans: tuple[int, ...], stop: int, expected: list[tuple[int, int, bool]]
) -> None:
    assert steps_of_spans(spans, 0, stop, 4) == expected


def test_steps_are_cut_where_each_position_has_one_of_its_own() -> None:
    steps = [(0, 3, True), (3, 6, True), (6, 7, False)]
    assert alone_from(9, steps) == steps
    assert alone_from(4, steps) == [(0, 3, True), (3, 4, True), (4, 5, True), (5, 6, True), (6, 7, False)]
    assert alone_from(0, steps[:1]) == [(0, 1, True), (1, 2, True), (2, 3, True)]


def test_distances() -> None:
    row = np.array([3.0, -4.0], np.float32)
    assert distance(row, row) == 0
    assert distance(row * np.float32(1.01), row) == pytest.approx(0.01, rel=1e-4)
    assert distance(np.array([np.nan, 0], np.float32), row) == float("inf")
    assert distance(row[:1], row) == float("inf")
    assert distance(row, row * 0) == float("inf")


@pytest.mark.parametrize(
    ("weights", "mine", "theirs", "expected"),
    [
        ("4bit", "cpu", "cpu", SAME),
        ("4bit", "wasm", "webgpu", SAME),
        ("4bit", "cpu", "wasm", ALIKE),
        ("8bit", "webgpu", "cpu", ALIKE),
        ("8bit", "cuda", "cpu", ALIKE),
        ("8bit", "cuda", "cuda", ALIKE),
        ("f32", "cpu", "wasm", SAME),
        ("f32", "cpu", "cuda", ALIKE),
    ],
)
def test_limits_are_wider_where_roundings_differ(
    weights: str, mine: str, theirs: str, expected: float
) -> None:
    assert limit(rounding(weights, Computes(mine)), rounding(weights, Computes(theirs))) == expected


VNNI = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755"
AVX2 = "cpu/avx2/rows-1/0123456789abcdef"
PLAIN = "cpu/avx2/rows-2x2-plain/abcdef0123456789"


@pytest.mark.parametrize(
    ("weights", "mine", "theirs", "expected"),
    [
        ("8bit", VNNI, VNNI, SAME_CLASS),
        ("4bit", VNNI, AVX2, ALIKE),  # rounded activations may fall to the other side
        ("f32", VNNI, AVX2, SAME),
        ("4bit", PLAIN, PLAIN, SAME_CLASS),
        ("4bit", PLAIN, AVX2, ALIKE),
        ("4bit", VNNI, "", SAME),  # of one kind, as far as anybody knows
        ("4bit", "", "", SAME),
    ],
)
def test_within_a_class_bits_are_equal_and_another_one_may_round_to_the_other_side(
    weights: str, mine: str, theirs: str, expected: float
) -> None:
    for classes in ((mine, theirs), (theirs, mine)):
        kinds = [rounding(weights, Computes("cpu", each)) for each in classes]
        assert limit(kinds[0], kinds[1], classes) == expected


def test_another_device_need_not_repeat_bits_within_its_class() -> None:
    kind = rounding("8bit", Computes("cuda", "cuda/sm90/rows-1/0123456789abcdef"))
    assert limit(kind, kind, ("cuda/a", "cuda/a")) == SAME
    assert limit(kind, kind, ("cuda/a", "cuda/b")) == limit(kind, kind) == ALIKE


def test_where_marks_differ_first() -> None:
    assert first_other([b"a", b"b"], [b"a", b"b"]) is None
    assert first_other([b"a", b"b"], [b"a", b"c"]) == 1
    assert first_other([b"a"], [b"a", b"c"]) == 1
