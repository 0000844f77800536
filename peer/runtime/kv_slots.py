"""Which row of the KV arrays belongs to which session, how far it is filled, and when the arrays must grow.
Pure.

Rows of live sessions are 0..n-1 without holes, so that one call serves a contiguous range of them. Freeing a
row moves the last one into it. The arrays double in rows and in positions up to the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from peer.runtime.forms import FASTEST, Form

FIRST_CAPACITY: Final = 128  # positions per row at first; a short question and its answer


@dataclass(frozen=True, slots=True)
class Move:
    """Copy `length` positions of row `source` to row `target`."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Allocated rows and positions."""

    rows: int
    capacity: int


class KvSlots:
    """Sessions, their rows and lengths. `limit` sessions at most, `context` positions each; `form`: how calls are
    filled up with rows and positions that are nobody's.
    """

    def __init__(self, limit: int, context: int, form: Form = FASTEST) -> None:
        if limit < 1 or context < 1:
            raise ValueError(f"at least one slot and one position expected, got {limit} and {context}")
        self.limit = limit
        self.context = context
        self.rows = max(limit, form.body.filled(min(limit, form.body.most)))  # that the arrays may have
        self._spare_tokens = form.spare_tokens
        self._sessions: list[bytes] = []
        self._lengths: list[int] = []
        self._rows: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def row(self, session: bytes) -> int | None:
        """Returns the row of a session, or None."""
        return self._rows.get(session)

    def length(self, session: bytes) -> int:
        """Cached positions; 0 for an unknown session."""
        row = self._rows.get(session)
        return 0 if row is None else self._lengths[row]

    def length_of_row(self, row: int) -> int:
        """0 for a row without a session."""
        return self._lengths[row] if row < len(self._lengths) else 0

    def lengths(self) -> dict[bytes, int]:
        """Returns how many positions each session has cached."""
        return dict(zip(self._sessions, self._lengths, strict=True))

    def admit(self, session: bytes) -> int | None:
        """The session's row, given now if it had none; None when all slots are taken."""
        row = self._rows.get(session)
        if row is not None:
            return row
        if len(self._sessions) >= self.limit:
            return None
        self._sessions.append(session)
        self._lengths.append(0)
        self._rows[session] = len(self._sessions) - 1
        return len(self._sessions) - 1

    def set_length(self, session: bytes, length: int) -> None:
        """Sets how many positions a session has cached.

        Raises ValueError beyond the context, KeyError without a row.
        """
        row = self._rows[session]
        if not 0 <= length <= self.context:
            raise ValueError(f"a length from 0 to {self.context} expected, got {length}")
        self._lengths[row] = length

    def release(self, session: bytes) -> Move | None:
        """Forget the session; the move (if any) that keeps the rows without holes must be done before the
        next step.
        """
        row = self._rows.pop(session, None)
        if row is None:
            return None
        last = len(self._sessions) - 1
        moved, length = self._sessions.pop(), self._lengths.pop()
        if row == last:
            return None
        self._sessions[row], self._lengths[row] = moved, length
        self._rows[moved] = row
        return Move(last, row, length)

    def grown(self, shape: Shape, rows: int, positions: int) -> Shape:
        """The least shape, by doubling from `shape`, that holds `rows` rows of `positions` each.

        Positions beyond the context are allowed: one, so that a full row can sit idle inside another row's batch, or
        as many as calls of prompts are filled up with.
        """
        row_count, capacity = max(shape.rows, 1), max(shape.capacity, FIRST_CAPACITY)
        while row_count < rows:
            row_count *= 2
        while capacity < positions:
            capacity *= 2
        return Shape(min(row_count, self.rows), min(capacity, self.context + self._spare_tokens))


def spans(rows: list[int], gap_rows: int) -> list[range]:
    """Cover sorted `rows` by contiguous ranges; idle gaps of up to `gap_rows` rows ride along, cheaper than
    another call.
    """
    found: list[range] = []
    for row in rows:
        if found and row - found[-1].stop <= gap_rows:
            found[-1] = range(found[-1].start, row + 1)
        else:
            found.append(range(row, row + 1))
    return found
