"""Decides what rounds with a lying peer show: after how many tokens it was convicted, and what followed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peer.state.work_ledger import Ledger
from peer.validation.scenarios.figures import percentile

SCENARIO: Final = "liars"
WITHIN_STEPS: Final = 200
MOST_STEPS: Final = 1000  # who is not convicted by then counts as not found


@dataclass(frozen=True, slots=True)
class Lied:
    """One round. `steps`: tokens from the liar's first wrong result until it was convicted; None: it never was."""

    lie: str
    stage: int
    steps: int | None
    lost_milli: int  # of what it had earned
    kept_milli: int
    marked: int  # sessions that it computed, named in the log
    accused: int  # others that were convicted, or found wrong by somebody
    balanced: bool  # what was earned and lost adds up to what was spent
    answered: bool  # afterwards, without the liar, and as before it lied
    trouble: str = ""

    @property
    def found(self) -> bool:
        """Convicted in time, and all that follows from it."""
        return (
            self.steps is not None
            and self.steps <= WITHIN_STEPS
            and self.lost_milli > 0
            and not self.kept_milli
            and self.marked > 0
        )

    @property
    def held(self) -> bool:
        """Found, while nobody else came to harm."""
        return self.found and not self.accused and self.balanced and self.answered and not self.trouble


def balances(ledger: Ledger, lost_milli: int) -> bool:
    """Whether nothing was earned that nobody spent, and the other way round."""
    each = ledger.balances.values()
    return sum(one.earned for one in each) + lost_milli == sum(one.spent for one in each)


def figures(rounds: Sequence[Lied], wanted: int) -> dict[str, Any]:
    """Of the rounds of one kind of lie. Held: there were so many, and each was."""
    steps = [one.steps for one in rounds if one.steps is not None]
    return {
        "held": len(rounds) == wanted and all(one.held for one in rounds),
        "rounds": len(rounds),
        "found": sum(one.found for one in rounds),
        "steps": [one.steps for one in rounds],
        "stages": [one.stage for one in rounds],
        "steps_p50": percentile([float(count) for count in steps], 0.5),
        "steps_worst": max(steps, default=None),
        "lost_milli": [one.lost_milli for one in rounds],
        "marked": [one.marked for one in rounds],
        "accused": sum(one.accused for one in rounds),
        "balanced": sum(one.balanced for one in rounds),
        "answered": sum(one.answered for one in rounds),
        "troubles": [one.trouble for one in rounds if one.trouble],
    }


def all_held(shown: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every kind of lie was found in every round."""
    return bool(shown) and all(each["held"] for each in shown.values())
