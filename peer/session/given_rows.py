"""Rows that stand in the place of a prompt's token ids: what a picture became, as the first block is to read it. Pure.

The prompt has token ids at these positions, too (the id of a picture's place holder): lengths and penalties count them.
What the first stage gets there is rows, float32 (count, hidden), in place of what the embedding would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peer.session.activation_log import rows
from peer.wire.tensors import Tensor


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows, float32 (count, hidden), for positions from `first` on. Those of one prompt rise and do not overlap."""

    first: int
    tensor: Tensor

    @property
    def stop(self) -> int:
        """The position behind the last row."""
        return self.first + self.tensor.shape[0]


def cut_at(steps: Sequence[tuple[int, int]], given: Sequence[GivenRows]) -> list[tuple[int, int]]:
    """The steps [position, stop) cut where rows begin and end, so that each is of ids alone or of rows alone."""
    borders = sorted({border for each in given for border in (each.first, each.stop)})
    found: list[tuple[int, int]] = []
    for position, stop in steps:
        inside = [border for border in borders if position < border < stop]
        found += zip([position, *inside], [*inside, stop], strict=True)
    return found


def rows_at(given: Sequence[GivenRows], position: int, stop: int) -> Tensor | None:
    """The rows of a step [position, stop); None where it has token ids."""
    for each in given:
        if each.first <= position and stop <= each.stop:
            return rows(each.tensor, position - each.first, stop - each.first)
    return None


def alike_up_to(keep: int, before: Sequence[GivenRows], after: Sequence[GivenRows]) -> int:
    """How many of the first `keep` positions have the same rows, or none, in both prompts."""
    for position in sorted({each.first for each in (*before, *after) if each.first < keep}):
        old, new = (next((g.tensor for g in given if g.first == position), None) for given in (before, after))
        if old != new:
            return position
    return keep
