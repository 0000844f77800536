"""Forms of calls: each row is computed once, in a call of a shape that was proven, with company that is nobody's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.runtime.forms import (
    ALONE,
    ATTENTION_ROWS,
    ENDS,
    MOST_ROWS,
    ROW_SHAPES,
    Form,
    RowShape,
    filled_tokens,
    row_shape,
)
from peer.runtime.kv_slots import KvSlots, Shape

SHAPES = (*ROW_SHAPES, ALONE, RowShape(most=8), RowShape(2, 2, 8))


@given(st.sampled_from(SHAPES), st.integers(0, 40), st.integers(1, 40), st.integers(1, 80))
def test_calls_cover_the_rows_once_inside_the_arrays(
    shape: RowShape, first: int, count: int, limit: int
) -> None:
    limit = max(limit, first + count)
    rows = KvSlots(limit, 16, Form(body=shape)).rows
    found = shape.spans(range(first, first + count), rows)
    assert [row for wanted, _ in found for row in wanted] == list(range(first, first + count))
    for wanted, whole in found:
        assert whole.start <= wanted.start
        assert wanted.stop <= whole.stop <= rows
        assert shape.least <= len(whole) <= shape.most
        assert len(whole) % shape.multiple == 0
        assert len(whole) - len(wanted) < max(shape.least, shape.multiple)


@given(st.sampled_from(ENDS), st.integers(0, 300), st.integers(1, 64))
def test_a_call_of_a_prompt_ends_where_it_must_and_leaves_no_single_token(
    ends: int, start: int, count: int
) -> None:
    filled = filled_tokens(start, count, ends)
    assert filled >= count
    assert (start + filled) % ends == 0
    assert filled % ATTENTION_ROWS != 1
    assert filled - count <= Form(ends=ends).spare_tokens


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (set(), RowShape()),
        ({1}, RowShape(least=2)),
        ({1, 3, 5, 7, 9, 11, 13, 15}, RowShape(least=2, multiple=2)),
        ({1, 2, 3}, RowShape(least=4)),
        ({n for n in range(1, 17) if n % 4}, RowShape(least=4, multiple=4)),
        ({n for n in range(1, 17) if n % 8}, RowShape(least=8, multiple=8)),
        (set(range(1, 16)), RowShape(least=16, multiple=16)),
    ],
    ids=str,
)
def test_the_cheapest_shape_that_holds_is_chosen(odd: set[int], expected: RowShape) -> None:
    """`odd` numbers of rows give other bits, each its own."""
    assert row_shape(lambda size: size if size in odd else 0, MOST_ROWS) == expected


def test_where_every_number_of_rows_differs_none_holds_but_alone() -> None:
    assert row_shape(lambda size: size, 8) == RowShape(8, 8, 8)  # one size is one kernel
    assert row_shape(lambda size: object(), 8) is None  # and this one not even that
    assert ALONE.spans(range(2, 5), 9) == [(range(n, n + 1), range(n, n + 1)) for n in (2, 3, 4)]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form(), "rows-1"),
        (Form(body=RowShape(least=2)), "rows-2-head-1"),
        (Form(RowShape(2, 2), RowShape(2, 2), 4), "rows-2x2-ends-4"),
        (Form(ALONE, ALONE, 0), "rows-1-1-ends-0"),
        (Form(plain=True, fused=False), "rows-1-plain-unfused"),
    ],
)
def test_forms_say_what_they_are(form: Form, text: str) -> None:
    assert form.text == text


@pytest.mark.parametrize("limit", [1, 3, 16, 40])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_have_room_for_every_call(shape: RowShape, limit: int) -> None:
    slots = KvSlots(limit, 100, Form(body=shape, ends=8))
    assert slots.rows >= max(limit, shape.least)
    grown = slots.grown(Shape(0, 0), slots.rows, 115)
    assert (grown.rows, grown.capacity) == (slots.rows, 115)
