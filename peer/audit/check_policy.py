"""Decides how often an asker has its answers checked, which stages first, and who checks them.

Pure; the same in web_peer/src/audit/check_policy.ts. Chance comes in as `roll`, a number in [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from peer.session.evidence import TABS, Computes, limit, rounding
from planner.model.arithmetic_class import same_bits

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


def most_between(weights: str, judge: Computes, theirs: Computes) -> float:
    """The largest distance of two honest results, where `judge` computes again what one that computes as `theirs` did.

    A tab computes all positions together, so that it repeats no bits, whatever its class. A process repeats the order,
    and loads the units as it must (peer.audit.recomputation): of a tab without rounding, since bits are no matter then.
    """
    kind = rounding(weights, theirs)
    if judge.provider in TABS:
        return limit("plain", kind)
    if theirs.provider in TABS:
        return limit(kind, kind)
    return limit(kind, kind, (judge.arithmetic, theirs.arithmetic))


def judges_of(
    holders: Sequence[tuple[str, Computes]], weights: str, theirs: Computes, me: str, near: Collection[str]
) -> list[str]:
    """Who is asked to check, the best first: those that find slight errors, of these the class of the peer in question
    (`theirs`), then others than this peer itself, then those who have no part in the step. `holders` in any order.
    """

    def rank(holder: tuple[str, Computes]) -> tuple[float, bool, bool, bool]:
        peer, judge = holder
        alike = same_bits(judge.arithmetic, theirs.arithmetic)
        return most_between(weights, judge, theirs), not alike, peer == me, peer in near

    return [peer for peer, _ in sorted(holders, key=rank)]
