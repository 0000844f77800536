"""Decides the pseudo-random numbers of searches: the same from the same seed, on every machine and version."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TypeVar

Item = TypeVar("Item")
_MASK = 2**64 - 1


class Draws:
    """SplitMix64 (Steele, Lea, Flood 2014)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """64 of them."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        """From 0 to limit - 1. The bias of the remainder is under limit / 2**64."""
        return self.bits() % limit

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Returns a number from `low` up to, but without, `high`."""
        return low + (high - low) * (self.bits() >> 11) * 2.0**-53

    def choice(self, items: Sequence[Item]) -> Item:
        """Returns one of the items, all equally likely."""
        return items[self.below(len(items))]

    def shuffle(self, items: MutableSequence[Item]) -> None:
        """Puts the items into a random order, in place."""
        for at in range(len(items) - 1, 0, -1):
            other = self.below(at + 1)
            items[at], items[other] = items[other], items[at]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """Returns `count` different items in a random order."""
        pool = list(items)
        self.shuffle(pool)
        return pool[:count]

    def normal(self) -> float:
        """Mean 0, variance 1, by the sum of twelve: tails end at 6."""
        return sum(self.uniform() for _ in range(12)) - 6.0
