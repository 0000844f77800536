"""Rows stay without holes, lengths follow their sessions, arrays grow by doubling."""

from __future__ import annotations

import random

import pytest

from peer.runtime.kv_slots import FIRST_CAPACITY, KvSlots, Move, Shape, spans


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_sessions_get_rows_in_order_and_keep_them() -> None:
    slots = KvSlots(3, 100)
    assert [slots.admit(name(n)) for n in (1, 2, 3)] == [0, 1, 2]
    assert slots.admit(name(2)) == 1
    assert slots.admit(name(4)) is None
    slots.set_length(name(2), 40)
    assert (slots.length(name(2)), slots.length(name(9)), slots.length_of_row(1)) == (40, 0, 40)


def test_releasing_moves_the_last_row_into_the_hole() -> None:
    slots = KvSlots(3, 100)
    for number in range(3):
        slots.admit(name(number))
        slots.set_length(name(number), 10 + number)
    assert slots.release(name(0)) == Move(2, 0, 12)
    assert slots.row(name(2)) == 0
    assert slots.lengths() == {name(2): 12, name(1): 11}
    assert slots.release(name(1)) is None
    assert slots.release(name(1)) is None
    assert slots.admit(name(5)) == 1
    assert slots.length(name(5)) == 0


@pytest.mark.parametrize(
    ("shape", "rows", "positions", "grown"),
    [
        (Shape(0, 0), 1, 1, Shape(1, FIRST_CAPACITY)),
        (Shape(1, FIRST_CAPACITY), 1, FIRST_CAPACITY, Shape(1, FIRST_CAPACITY)),
        (Shape(1, FIRST_CAPACITY), 1, FIRST_CAPACITY + 1, Shape(1, 2 * FIRST_CAPACITY)),
        (Shape(2, 256), 3, 10, Shape(4, 256)),
        (Shape(4, 256), 5, 10, Shape(6, 256)),
        (Shape(1, 512), 1, 1001, Shape(1, 1001)),
    ],
)
def test_growth_doubles_up_to_the_limits(shape: Shape, rows: int, positions: int, grown: Shape) -> None:
    assert KvSlots(6, 1000).grown(shape, rows, positions) == grown


@pytest.mark.parametrize(
    ("rows", "gap", "found"),
    [
        ([], 2, []),
        ([3], 2, [range(3, 4)]),
        ([0, 1, 2], 0, [range(3)]),
        ([0, 2], 0, [range(1), range(2, 3)]),
        ([0, 2], 1, [range(3)]),
        ([0, 3, 4, 9], 2, [range(5), range(9, 10)]),
    ],
)
def test_spans_bridge_small_gaps_only(rows: list[int], gap: int, found: list[range]) -> None:
    assert spans(rows, gap) == found


@pytest.mark.parametrize("seed", range(20))
def test_a_random_schedule_keeps_rows_dense_and_lengths_right(seed: int) -> None:
    rng = random.Random(seed)
    slots, model, rows = KvSlots(7, 50), {}, {}
    for _ in range(300):
        session = name(rng.randrange(12))
        if rng.random() < 0.4:
            move = slots.release(session)
            gone = rows.pop(session, None)
            model.pop(session, None)
            if move is not None:
                moved = next(key for key, row in rows.items() if row == move.source)
                assert (move.target, move.length) == (gone, model[moved])
                rows[moved] = move.target
        elif (row := slots.admit(session)) is None:
            assert len(model) == 7
            assert session not in model
        else:
            rows[session] = row
            model[session] = rng.randrange(51)
            slots.set_length(session, model[session])
        assert slots.lengths() == model
        assert {key: slots.row(key) for key in rows} == rows
        assert sorted(rows.values()) == list(range(len(slots)))
