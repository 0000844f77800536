"""Rows that stand in the place of a prompt's token ids: what a picture became, as the first block is to read it. Pure.

The prompt has token ids at these positions, too (the id of a picture's place holder): lengths and penalties count them.
What the first stage gets there is rows, float32 (count, hidden), in place of what the embedding would make.

Where places of tokens have axes, those of a picture stand beside and below one another, and what follows it is nearer
than its rows are many: the last numbers of each row are by how much its places differ from its position, and ids that
follow are told with that shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from peer.session.activation_log import rows
from peer.session.evidence import Floats
from peer.wire.tensors import Tensor, tensor_of
from planner.model.manifest import SHIFT_COLUMNS, SHIFT_STEP

MAX_SHIFT: Final = 1 << 24  # places


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows, float32 (count, hidden), for positions from `first` on. Those of one prompt rise and do not overlap.
    `lost`: by how many places less than its rows those behind move on.
    """

    first: int
    tensor: Tensor
    lost: int = 0

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


def shift_at(given: Sequence[GivenRows], position: int) -> int:
    """By how much the place of the token at `position` differs from it."""
    return -sum(each.lost for each in given if each.stop <= position)


def shifted_ids(ids: Sequence[int], shift: int) -> Tensor:
    """A step of token ids: int32 (count,), or (count, 2) with the shift of each."""
    made = np.asarray(ids, np.int32)
    return tensor_of(made if not shift else np.stack([made, np.full(len(made), shift, np.int32)], axis=1))


def ids_of(tensor: Tensor) -> tuple[npt.NDArray[np.int64], int] | None:
    """The ids and the shift of a step; None for one of another form."""
    array = tensor.array().astype(np.int64)
    if array.ndim == 1:
        return array, 0
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        return None
    shift = int(array[0, 1])
    return (array[:, 0], shift) if (array[:, 1] == shift).all() and abs(shift) <= MAX_SHIFT else None


def shifted(made: Floats, shift: int) -> Floats:
    """Rows of an embedding, float32 (count, hidden), with the shift of their tokens."""
    if shift:
        made = made.copy()
        made[:, -SHIFT_COLUMNS:-1], made[:, -1] = shift * SHIFT_STEP, 0
    return made
