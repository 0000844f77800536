"""What a runtime asks of an execution of its stage: of one on this machine alone, or of one by a team of peers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from peer.runtime.execution import Row
from peer.runtime.kv_slots import KvSlots, Move
from peer.session.evidence import Floats


class StageExecution(Protocol):
    """The calls of peer.runtime.execution.Execution that a runtime makes; they mean the same here."""

    @property
    def has_embed(self) -> bool:
        """Whether the stage begins with the embedding."""

    @property
    def has_head(self) -> bool:
        """Whether the stage ends with the head."""

    @property
    def kv_bytes(self) -> int:
        """How many bytes the KV arrays take on this machine."""

    def ensure(self, slots: KvSlots, rows: int, positions: int) -> None:
        """Grows the KV arrays so that `rows` rows of `positions` fit; what is cached is kept."""

    def move(self, move: Move) -> None:
        """Copies rows of the KV arrays as `move` says."""

    def let_go(self, rows: int) -> None:
        """Rows from `rows` on have no session."""

    def holds(self, row: int, length: int) -> bool:
        """Whether `row` has what comes after its first `length` positions looks at."""

    def digest(self, row: int, first: int, stop: int) -> dict[str, str]:
        """By key and value array, the hash of what `row` caches at positions [first, stop)."""

    def copied(self, row: int, stop: int, names: Collection[str] | None) -> dict[str, Floats] | None:
        """What `row` caches at positions [0, stop) in these arrays (None: in all); None where it cannot be had."""

    def put(self, row: int, count: int, arrays: Mapping[str, Floats]) -> None:
        """Makes `arrays` what `row` caches. Raises ValueError where that cannot be."""

    def embed(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """tokens (T,) -> (T, hidden)."""

    def decode(self, hidden: Floats, span: range, lengths: list[int]) -> Floats:
        """One token for each row of `span`: (rows, hidden) -> (rows, hidden)."""

    def prompt(self, hidden: Floats, row: Row) -> Floats:
        """Tokens of one row: (T, hidden) -> (T, hidden)."""

    def head(self, hidden: Floats) -> Floats:
        """(rows, hidden) -> logits (rows, vocab)."""

    def close(self) -> None:
        """Lets go of sessions, arrays and weights."""
