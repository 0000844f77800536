"""Lost stages are repaired before those that need them, priority units first, together where nothing waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.coordination.repair_order import chained, load_order, priority_stages, waves

UNITS = ("embed", "attn.0", "ffn.0", "attn.1", "ffn.1", "head")
STAGES = ((0, 1), (1, 3), (3, 5), (5, 6))


@pytest.mark.parametrize(
    ("lost", "priority", "together", "expected"),
    [
        ([], [], True, ()),
        ([1, 3], [], True, ((1, 3),)),
        ([1, 3], [], False, ((1,), (3,))),
        ([1, 3], [3], False, ((3,), (1,))),
        ([1, 3], [3], True, ((3, 1),)),
        ([1, 2, 4], [], True, ((1, 4), (2,))),
        ([0, 1, 3, 4], [4], False, ((3,), (4,), (0,), (1,))),  # what a priority stage waits for comes with it
        ([0, 1, 2], [2], True, ((0,), (1,), (2,))),
        ([0, 2], [7], False, ((0,), (2,))),  # a priority that is not lost
    ],
)
def test_waves(
    lost: list[int], priority: list[int], together: bool, expected: tuple[tuple[int, ...], ...]
) -> None:
    assert waves(chained(lost), priority, together=together) == expected


@given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.booleans())
def test_everything_lost_is_repaired_once_after_what_it_waits_for(
    lost: set[int], priority: set[int], together: bool
) -> None:
    needs, done = chained(lost), set[int]()
    for wave in waves(needs, priority, together=together):
        assert wave
        assert together or len(wave) == 1
        assert all(needs[at] <= done for at in wave)
        assert not done & set(wave)
        done |= set(wave)
    assert done == lost


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        waves({1: [2], 2: [1]}, together=True)


def test_runs_are_loaded_in_that_order() -> None:
    assert priority_stages(STAGES, UNITS, ("head", "ffn.0")) == {1, 3}
    assert load_order(STAGES, [(5, 6), (0, 1)], UNITS, ()) == ((0, 1), (5, 6))
    assert load_order(STAGES, [(5, 6), (0, 1)], UNITS, ("head",)) == ((5, 6), (0, 1))
    assert load_order(STAGES, [(2, 6), (5, 6), (3, 5)], UNITS, ("head",)) == ((3, 5), (5, 6), (2, 6))
