"""Decides how often an asker has its answers checked, which stages first, and who checks them.

Pure; the same in web_peer/src/check_choices.ts. Chance comes in as `roll`, a number in [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from peer.evidence import ALIKE, SAME, TABS, limit, rounding

SOONER: Final = 8  # times as many checks while somebody has found a peer of the route wrong
SOON: Final = (
    4  # tokens until the next check, after one that nobody could make; each further one waits twice as long
)
MOST_DOUBLED: Final = 8
MILLION: Final = 1_000_000
Roll = Callable[[], float]


@dataclass(slots=True)
class NextCheck:
    """How many tokens are left until the next check."""

    left: int | None = None
    hurried: bool = False  # checks come sooner
    unable: int = 0  # checks in a row of which some stage could not be checked

    def token(self, ppm: int, roll: Roll, *, suspected: bool, busy: bool) -> bool:
        """A token came, of a route with a `suspected` peer or not. Whether a check is due; one that comes while this
        asker is `busy` with another one is left out.
        """
        left = (self.left if self.left else pause(ppm, 1, roll)) - 1
        if suspected and not self.hurried:
            left = min(left, pause(ppm, SOONER, roll))
        self.left, self.hurried = left, suspected
        if left > 0 or busy:
            return False
        self.left = pause(ppm, SOONER if suspected else 1, roll)
        return True

    def checked(self, *, unable: bool) -> None:
        """A check is over; `unable`: of some stage nobody could say anything."""
        self.unable = self.unable + 1 if unable else 0
        if self.left is not None and unable:
            self.left = min(self.left, SOON << min(self.unable - 1, MOST_DOUBLED))


def pause(ppm: int, times: int, roll: Roll) -> int:
    """Tokens until the next check, for `times` as many as usual: from half of the usual number to three halves, so that
    nobody knows which.
    """
    share = max(1, ppm) * times
    usual = max(1, (MILLION + share // 2) // share)
    return max(1, usual // 2 + int(roll() * usual))


def in_order(stages: Sequence[int], route: Sequence[str], suspects: Collection[str]) -> list[int]:
    """Which of `stages`, in any order, are checked first: those of suspects."""
    return sorted(stages, key=lambda stage: route[stage] not in suspects)


def most_between(weights: str, judge: str, theirs: str) -> float:
    """The largest distance of two honest results, where a peer with the provider `judge` computes again what one with
    `theirs` did: a tab computes as it does for itself, a process loads the units as it must (peer.recomputing).
    """
    kind = rounding(weights, theirs)
    if judge in TABS:
        return limit("plain", kind)
    return ALIKE if kind == "unknown" else SAME


def judges_of(
    holders: Sequence[tuple[str, str]], weights: str, theirs: str, me: str, near: Collection[str]
) -> list[str]:
    """Who is asked to check, the best first: those that find slight errors, then others than this peer itself, then
    those who have no part in the step. `holders`: peers and their providers, in any order; `theirs`: the provider of
    the peer in question.
    """
    ranked = sorted(
        holders, key=lambda each: (most_between(weights, each[1], theirs), each[0] == me, each[0] in near)
    )
    return [peer for peer, _ in ranked]
