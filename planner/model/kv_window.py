"""How many positions of a session are kept where attention looks at a window of them, and where what is kept begins.
Pure.

Older positions are dropped whole blocks at a time, so that the kernels add up what is left in the same order as if
everything were there: results are equal to the bit. `docs/numerics.md` says why blocks are so large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

REWIND: Final = 64  # positions behind the window that stay, for a session that takes tokens back
LEAST: Final = 128  # positions that stay in any case: kernels treat fewer of them otherwise
CALL: Final = 96  # positions that one call may add: a piece of a prompt and its company
BLOCK: Final = 512  # positions that are dropped at a time: a multiple of what kernels add up in one go
BLOCK_NUMBERS: Final = 1 << 14  # of a block of one head, at least: small heads are added up in longer runs


@dataclass(frozen=True, slots=True)
class KvWindow:
    """`tokens`: a token looks at so many last ones, itself included. `block`: so many positions go at a time."""

    tokens: int
    block: int

    @property
    def kept(self) -> int:
        """The last positions that always stay."""
        return max(self.tokens - 1 + REWIND, LEAST)

    @property
    def capacity(self) -> int:
        """The most positions that a session occupies."""
        return self.kept + self.block - 1 + CALL

    def first_kept(self, length: int) -> int:
        """The first position that stays of `length`: 0 or a multiple of `block`."""
        return max(length - self.kept, 0) // self.block * self.block

    def holds(self, first: int, length: int) -> bool:
        """Whether a session of `length` positions can go on where those before `first` were dropped."""
        return first == 0 or length - first >= self.kept - REWIND


def window_of(states: Iterable[tuple[int, int | None]]) -> KvWindow | None:
    """Of a model whose states have heads of such a size and such a window (None: none); None where none has one.

    One for all states with a window: the largest.
    """
    windows = [(size, window) for size, window in states if window is not None]
    if not windows:
        return None
    block = max(BLOCK, BLOCK_NUMBERS // min(size for size, _ in windows))
    return KvWindow(max(window for _, window in windows), -(-block // BLOCK) * BLOCK)
