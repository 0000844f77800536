"""Classes of arithmetic: which are equal, which are other ones, and what people read."""

from __future__ import annotations

import pytest

from planner.model.arithmetic_class import crossed, other_bits, same_bits, shown, unlike

VNNI = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755"
AVX2 = "cpu/avx2/rows-1/0123456789abcdef"


@pytest.mark.parametrize(
    ("one", "another", "same", "other", "last", "across"),
    [
        (VNNI, VNNI, True, False, 0, False),
        (VNNI, AVX2, False, True, 2, True),
        (VNNI, "", False, False, 1, True),
        ("", VNNI, False, False, 1, True),
        ("", "", False, False, 1, False),
    ],
)
def test_what_two_classes_say(
    one: str, another: str, same: bool, other: bool, last: int, across: bool
) -> None:
    assert unlike(one, another) == last
    assert same_bits(one, another) == same
    assert other_bits(one, another) == other
    assert crossed(one, another) == across


@pytest.mark.parametrize(
    ("arithmetic", "text"),
    [
        (VNNI, "cpu avx512_vnni rows-1 9f3a"),
        ("webgpu//packed/0123456789abcdef", "webgpu packed 0123"),
        ("odd", "odd"),
        ("", ""),
    ],
)
def test_what_people_read(arithmetic: str, text: str) -> None:
    assert shown(arithmetic) == text
