"""Progress of joining and lending, as people read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peer.member.byte_sizes import bytes_text


@dataclass(frozen=True, slots=True)
class Phase:
    """What is going on, and how far (0, 0: no measure)."""

    what: str
    done: int
    total: int


Report = Callable[[Phase], None]


def fetching(report: Report, units: str) -> Callable[[int, int], None]:
    """Tells `report` how far the fetching of `units` is, in bytes, and then that they are loaded."""

    def told(done: int, total: int) -> None:
        report(Phase(f"fetch {units}", done, total))
        if done >= total:
            report(Phase(f"load {units}, {bytes_text(total)} of weights", 0, 0))

    return told


def silent(_: Phase) -> None:
    """Reports to nobody."""
