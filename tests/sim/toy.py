"""Decides what a stand-in model computes: every token depends on all positions before it and on how each was run.

Each unit keeps one number per position, chained over its own cache: a position that is wrong, missing, doubled, out
of order, or run as a prompt when it was sampled changes every later one. Activations hide such a number in two
float32 that hold 24 bits each exactly, so real frames carry them. Where the model is cut makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from peer.session.sampling import Sampling, sample

UNITS = 6
VOCAB = 24
_MASK = (1 << 48) - 1
_LOW = (1 << 24) - 1
_SALTS = tuple(
    tuple((0x9E3779B97F4A7C15 * (2 * unit + given + 1)) & _MASK for unit in range(UNITS)) for given in (0, 1)
)
_LOGITS: npt.NDArray[np.float32] = (np.random.default_rng(7).standard_normal((1021, VOCAB)) * 2.0).astype(
    np.float32
)

Row = tuple[int, ...]  # one number per unit of a run
Floats = npt.NDArray[np.float32]


def through(before: Row, value: int, first: int, given: bool) -> list[int]:
    """The numbers of units `first` on for one position: `before` are theirs at the position before it."""
    salts = _SALTS[given]
    numbers = []
    for place, kept in enumerate(before):
        value = ((kept * 0x9E3779B1 + value * 0x85EBCA77) ^ salts[first + place]) & _MASK
        value ^= value >> 23
        numbers.append(value)
    return numbers


def logits_of(number: int) -> Floats:
    """The head's answer to the last unit's number."""
    row: Floats = _LOGITS[number % 1021]
    return row


def to_hidden(numbers: Sequence[int]) -> Floats:
    """(T,) numbers -> (T, 2) float32."""
    return np.array([(number >> 24, number & _LOW) for number in numbers], np.float32)


def from_hidden(hidden: Floats) -> list[int]:
    """The inverse of to_hidden."""
    return [(int(high) << 24) | int(low) for high, low in hidden.tolist()]


class Cache:
    """One session's numbers in the units [first, stop)."""

    __slots__ = ("_first", "rows", "zeros")

    def __init__(self, first: int, stop: int) -> None:
        self._first = first
        self.zeros: Row = (0,) * (stop - first)
        self.rows: list[Row] = []

    def run(self, position: int, values: Sequence[int], given: bool) -> list[int]:
        """Runs positions from `position` on, which forgets those that were there; returns the last unit's numbers."""
        del self.rows[position:]
        found = []
        for value in values:
            numbers = through(self.rows[-1] if self.rows else self.zeros, value, self._first, given)
            self.rows.append(tuple(numbers))
            found.append(numbers[-1])
        return found


@dataclass(slots=True)
class Reference:
    """One conversation as it goes when nothing happens: what a single peer with the whole model answers."""

    tokens: list[int] = field(default_factory=list)  # with keys and values that hold for the next turn
    _given: list[bool] = field(default_factory=list)  # how each of them was run
    _cache: Cache = field(default_factory=lambda: Cache(0, UNITS))

    def answer(
        self,
        prompt: Sequence[int],
        most: int,
        sampling: Sampling,
        end_tokens: Sequence[int],
    ) -> list[int]:
        """The tokens of one turn, until an end token or `most` tokens."""
        kept = _common(self.tokens, prompt)
        self._given = self._given[:kept] + [True] * (len(prompt) - kept)
        number = 0
        for position in range(min(kept, len(prompt) - 1), len(prompt)):
            given = self._given[position]
            number = self._cache.run(position, [prompt[position] + 1], given)[-1]
        history = list(prompt)
        made: list[int] = []
        while True:
            token = sample(logits_of(number), sampling, len(history), history, made)
            history.append(token)
            made.append(token)
            if token in end_tokens or len(made) >= most:
                break
            number = self._cache.run(len(history) - 1, [token + 1], False)[-1]
            self._given.append(False)
        self.tokens = history[:-1]
        return made

    def stopped(self, length: int) -> None:
        """The asker stopped the answer when prompt and answer were `length` tokens."""
        self.tokens = self.tokens[: length - 1]
        del self._cache.rows[length - 1 :], self._given[length - 1 :]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))
