"""Progress of joining and lending, as people read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """What is going on, and how far (0, 0: no measure)."""

    what: str
    done: int
    total: int


Report = Callable[[Phase], None]


def silent(_: Phase) -> None:
    """Reports to nobody."""
