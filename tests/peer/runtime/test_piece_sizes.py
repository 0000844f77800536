"""How large pieces of prompts are: as large as can be, but for what answers under way wait."""

from __future__ import annotations

import pytest

from peer.runtime.piece_sizes import AWAY_S, KEPT, LEAST_TOKENS, PIECE_TOKENS, PieceSizes

A, B = b"a" * 16, b"b" * 16


def paced(batch_s: float, interval_s: float, token_s: float) -> tuple[PieceSizes, float]:
    """After some batches of an answer, and pieces before them; and the time then."""
    made, now_s = PieceSizes(), 0.0
    for _ in range(KEPT):
        made.ran(B, PIECE_TOKENS, PIECE_TOKENS * token_s)
    for _ in range(KEPT + 1):
        made.decoded(now_s, now_s + batch_s, [A])
        now_s += interval_s
    return made, now_s


def test_a_piece_is_as_large_as_pieces_get_while_nobody_decodes() -> None:
    made, now_s = paced(0.01, 0.02, 0.002)
    assert PieceSizes().next(0.0) == PIECE_TOKENS
    assert made.next(now_s) < PIECE_TOKENS
    assert made.next(now_s + AWAY_S) == PIECE_TOKENS  # it waits for its next question
    made, now_s = paced(0.01, 0.02, 0.002)
    made.released(A)
    assert made.next(now_s) == PIECE_TOKENS


@pytest.mark.parametrize(
    ("batch_s", "interval_s", "token_s", "size"),
    [
        (0.010, 0.022, 0.002, 8),  # two batches, 20 ms
        (0.010, 0.012, 0.002, 4),  # the interval, 12 ms: this stage is most of the gap
        (0.003, 0.080, 0.0005, 8),  # far peers: two batches, and not the time of the network
        (0.100, 0.110, 0.001, 64),
        (0.001, 0.001, 0.050, LEAST_TOKENS),  # prompts go on, however slow
    ],
)
def test_a_gap_at_most_doubles(batch_s: float, interval_s: float, token_s: float, size: int) -> None:
    made, now_s = paced(batch_s, interval_s, token_s)
    assert made.next(now_s) == size
    assert size == LEAST_TOKENS or batch_s + size * token_s <= 2 * interval_s


def test_slow_answers_are_waited_for() -> None:
    made, now_s = paced(0.2, 0.7, 0.01)
    assert made.next(now_s + 1.0) == 32


def test_what_pieces_take_is_learned_anew() -> None:
    made, now_s = paced(0.010, 0.022, 0.020)
    assert made.next(now_s) == LEAST_TOKENS
    for _ in range(KEPT):
        made.ran(B, LEAST_TOKENS, LEAST_TOKENS * 0.001)
    assert made.next(now_s) == 16
