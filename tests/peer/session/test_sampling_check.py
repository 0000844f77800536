"""Which tokens a check takes for drawn from logits that it computed again."""

from __future__ import annotations

import numpy as np
import pytest

from peer.session.evidence import SAME
from peer.session.sampling import Sampling, sample
from peer.session.sampling_check import fits

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(0, 8, 500).astype(np.float32)
WARM = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.1, seed=7)
HISTORY = (3, 4, 5)


def order() -> list[int]:
    return [int(token) for token in np.argsort(-LOGITS)]


def greedy(token: int, logits: np.ndarray[tuple[int], np.dtype[np.float32]] = LOGITS) -> bool:
    return fits(logits, token, Sampling(), 9, (), (), most=SAME, repeated=False)


def test_the_likeliest_token_fits_and_one_about_as_likely() -> None:
    first, second = order()[:2]
    assert greedy(first)
    assert not greedy(second)
    close = LOGITS.copy()
    close[second] = close[first] - np.float32(SAME * np.std(LOGITS))
    assert greedy(second, close)


def test_two_tokens_are_about_equally_likely_with_their_penalties() -> None:
    """Of which only one was said before: before its penalty it was far likelier."""
    said, other = order()[:2]
    settings = Sampling(repetition_penalty=1.25)
    close = np.minimum(LOGITS, np.float32(5))
    close[said], close[other] = 12.5, 10.001
    assert sample(close, settings, 9, (said,), ()) == other
    assert fits(close, said, settings, 9, (said,), (), most=SAME, repeated=False)
    assert not fits(close, said, Sampling(repetition_penalty=1.5), 9, (said,), (), most=SAME, repeated=False)


@pytest.mark.parametrize("token", [-1, 500, 1 << 31])
def test_no_token_of_the_vocabulary_never_fits(token: int) -> None:
    assert not greedy(token)


def test_where_bits_are_repeated_chance_draws_the_same_token() -> None:
    for position in range(50):
        drawn = sample(LOGITS, WARM, position, HISTORY, ())
        for token in order()[:4]:
            same = fits(LOGITS, token, WARM, position, HISTORY, (), most=SAME, repeated=True)
            assert same == (token == drawn)


def test_where_they_are_not_only_a_token_that_is_never_drawn_tells() -> None:
    def may(token: int) -> bool:
        return fits(LOGITS, token, WARM, 11, HISTORY, (), most=SAME, repeated=False)

    assert all(may(token) for token in order()[:4])
    assert not any(may(token) for token in order()[-100:])
    noisy = LOGITS + RNG.normal(0, 1e-4, 500).astype(np.float32)
    for position in range(200):
        drawn = sample(noisy, WARM, position, HISTORY, ())
        assert fits(LOGITS, drawn, WARM, position, HISTORY, (), most=SAME, repeated=False)
