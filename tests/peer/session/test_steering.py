"""Answers that are bent: masks, biases and probabilities, and how they travel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from peer.errors import BadSampling, NotFiniteLogits
from peer.session.ask import Ask
from peer.session.sampling import Sampling, sample
from peer.session.steering import (
    MAX_BIAS,
    STRAIGHT,
    Pick,
    Steering,
    from_wire,
    likely_pairs,
    mask_words,
    steered,
    to_wire,
)
from tests.peer.session.toy_mesh import VOCAB, World, as_route, plan_of

LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 0.5], np.float32)


def mask(*allowed: int, vocab: int = 5) -> tuple[int, ...]:
    flags = np.zeros(vocab, bool)
    flags[list(allowed)] = True
    return mask_words(np.packbits(flags, bitorder="little").tobytes(), vocab)


@pytest.mark.parametrize(
    ("steering", "token"),
    [
        (STRAIGHT, 1),
        (Steering(allowed=mask(0, 2, 3)), 2),
        (Steering(bias=((1, -MAX_BIAS),)), 2),
        (Steering(bias=((4, MAX_BIAS),)), 4),
        (Steering(bias=((4, MAX_BIAS),), allowed=mask(0, 3)), 0),
        (Steering(bias=((99, MAX_BIAS),)), 1),  # beyond the vocabulary
    ],
)
def test_a_steered_draw(steering: Steering, token: int) -> None:
    assert sample(steered(LOGITS, steering), Sampling(), 7) == token
    assert LOGITS[1] == 3.0  # the row itself stays


def test_what_lies_beyond_a_mask_is_not_allowed() -> None:
    wide = np.zeros(100, np.float32)
    assert np.isneginf(steered(wide, Steering(allowed=(0b101,)))).sum() == 98


def test_where_nothing_is_allowed_no_token_is_made_up() -> None:
    with pytest.raises(NotFiniteLogits):
        sample(steered(LOGITS, Steering(allowed=(0,))), Sampling(), 7)


@pytest.mark.parametrize(
    ("steering", "history"),
    [
        (STRAIGHT, ()),
        (STRAIGHT, (1, 2)),
        (Steering(0), (5,)),
        (Steering(20, ((0, -MAX_BIAS), (7, 250_000))), (1, 2, 3)),
        (Steering(None, ((3, 1),), mask(1, 64, vocab=70)), ()),
        (Steering(5, (), mask(30, 31, vocab=62)), (9,)),
    ],
)
def test_the_wire_brings_it_all(steering: Steering, history: tuple[int, ...]) -> None:
    sampling = Sampling(temperature=0.7, seed=9)
    settings, payload = to_wire(sampling, steering, history)
    assert from_wire(settings, payload) == (sampling, steering, history)
    assert len(settings) == (8 if steering == STRAIGHT else 11)


@pytest.mark.parametrize(
    ("more", "payload"),
    [
        ((0,), ()),
        ((0, 0, 0, 0), ()),
        ((22, 0, 0), ()),
        ((-1, 0, 0), ()),
        ((0, 1, 0), (3,)),
        ((0, 0, 2), (3,)),
        ((0, -1, 0), ()),
        ((0, 1, 0), (3, 2 * MAX_BIAS + 1)),
        ((0, 301, 0), (0, MAX_BIAS) * 301),
    ],
)
def test_the_wire_refuses(more: tuple[int, ...], payload: tuple[int, ...]) -> None:
    with pytest.raises(BadSampling):
        from_wire((*Sampling().to_wire(), *more), payload)


def test_probabilities_are_the_models_own() -> None:
    pick = Pick(Steering(3, ((1, -MAX_BIAS),), mask(0, 2, 3)), lambda row: sample(row, Sampling(), 7))
    assert pick(LOGITS) == 2
    pairs = likely_pairs(pick.body)
    total = sum(math.exp(x) for x in LOGITS.tolist())
    assert [token for token, _ in pairs] == [2, 1, 2, 0]
    for token, logprob in pairs:
        assert logprob == pytest.approx(math.log(math.exp(LOGITS[token]) / total), abs=1e-6)
    with pytest.raises(BadSampling):
        likely_pairs(pick.body[:-1])


def test_rows_with_nothing_but_one_token_still_tell_numbers() -> None:
    row = np.full(4, -np.inf, np.float32)
    row[2] = 1.0
    pick = Pick(Steering(2), lambda row: sample(row, Sampling(), 1))
    assert pick(row) == 2
    assert all(math.isfinite(logprob) for _, logprob in likely_pairs(pick.body))


@pytest.mark.parametrize(
    ("before", "keep", "sampled", "spans"),
    [
        ((), 0, 0, (6,)),
        ((3,), 3, 0, (6,)),
        ((3, 2), 4, 1, (3, 1, 1)),
        ((5,), 5, 1, (5,)),  # one token of a guided answer
        ((4, 1), 5, 2, (4,)),  # and the next
        ((), 0, 6, ()),
    ],
)
def test_tokens_that_were_sampled_before_count_as_such(
    before: tuple[int, ...], keep: int, sampled: int, spans: tuple[int, ...]
) -> None:
    assert Ask((1, 2, 3, 4, 5, 6), 9, Sampling(), (), sampled=sampled).spans_after(before, keep) == spans


FIRST, SECOND = plan_of(1, [3], ["p0", "p1"]), plan_of(2, [3], ["p0", "spare"])
SESSION = b"g" * 16
PROMPT = (5, 6, 7)


def held(lost_at: int | None, count: int = 24) -> tuple[list[int], World]:
    """An answer of which every token is asked for by itself; the tail is lost while token `lost_at` is made."""
    world = World(3, [FIRST, SECOND])
    sampling = Sampling(frequency_penalty=1.0, temperature=0.9, seed=5)
    made: list[int] = []
    for number in range(count):
        allowed = mask(*(token for token in range(VOCAB) if token % 3 == number % 3), vocab=VOCAB)
        ask = Ask((*PROMPT, *made), number + 1, sampling, (), Steering(2, allowed=allowed), number)
        moved = lost_at is not None and number > lost_at
        world.ask(SESSION, "asker", SECOND if moved else FIRST, ask)
        if number == lost_at:
            world.run(stop_after=2)
            core = world.origins[SESSION]
            world.gone.add("p1")
            world.from_origin(core, core.peer_gone(world.now, "p1", "left"))
            world.from_origin(core, core.reroute(world.now, as_route(SECOND)))
        world.run()
        assert world.outcome[SESSION] == "length"
        assert len(world.emitted[SESSION]) == 1
        made += world.emitted[SESSION]
    return made, world


def test_an_answer_under_masks_is_the_same_after_a_loss() -> None:
    made, world = held(None)
    assert all(token % 3 == number % 3 for number, token in enumerate(made))
    assert world.cores["p1"].steps_run == len(
        made
    )  # the prompt's one step, then one for each token: nothing twice
    for lost_at in (0, 1, 13, 23):
        assert held(lost_at)[0] == made
