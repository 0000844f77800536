"""Decides when a peer is made slower, for how long it runs in turns, and what that shows over many runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from peer.validation.scenarios.faults import pick
from peer.validation.scenarios.figures import Judged, percentile

PEER_SLOWED: Final = "peer_slowed"
MEANING: Final = "a primary runs a quarter of the time, for 2 s in one answer and for good in the next"
SLOWER: Final = 4  # times
BRIEF_S: Final = 2.0  # a slowness that must change nothing
WITHIN_S: Final = 20.0  # from the slowing until no answer needs the slow peer as it did
ALLOWED_PLANS: Final = 1  # since a peer became slower: more is flapping
STOPPED_S: Final = 0.03  # of one turn, the shortest and
LONGEST_STOP_S: Final = 0.15  # the longest: a peer that stands still for longer counts as silent
ANSWER_S: Final = 20.0  # an undisturbed answer takes so long, so that it runs on for twice that when slowed
EARLY: Final = 6  # the slowness begins in the first of so many parts of an answer
LEAST_TOKENS: Final = 48


class Turns:
    """How long a process stands still next, so that it runs for 1/`slower` of the time whatever the timers do."""

    def __init__(self, slower: int = SLOWER) -> None:
        self._slower = slower
        self._ran_s = self._stopped_s = 0.0

    @property
    def share(self) -> float:
        """Of the time so far that it ran."""
        whole = self._ran_s + self._stopped_s
        return self._ran_s / whole if whole else 1.0

    @property
    def run_s(self) -> float:
        """How long it is to run before it is stopped again."""
        due_s = self._stopped_s / (self._slower - 1) - self._ran_s
        return min(max(due_s, STOPPED_S / self._slower), STOPPED_S)

    @property
    def stop_s(self) -> float:
        """How long it is to stand still then."""
        due_s = self._ran_s * (self._slower - 1) - self._stopped_s
        return min(max(due_s, STOPPED_S), LONGEST_STOP_S)

    def ran(self, seconds: float) -> None:
        """It ran for so long."""
        self._ran_s += seconds

    def stopped(self, seconds: float) -> None:
        """It stood still for so long."""
        self._stopped_s += seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """Stage `stage`'s primary becomes slower with token number `after_token` of answer number `session`."""

    stage: int
    session: int
    after_token: int


def moment(stages: int, sessions: int, tokens: int, draw: Callable[[], float]) -> Moment:
    """`draw()` is uniform in [0, 1)."""
    stage, session = pick(draw, range(stages)), pick(draw, range(sessions))
    return Moment(stage, session, 1 + int(draw() * max(1, tokens // EARLY)))


def tokens_for(seconds: float, tokens: int, room: int) -> int:
    """As many tokens as take ANSWER_S where `tokens` took `seconds`, within `room`."""
    return min(room, max(LEAST_TOKENS, round(ANSWER_S * tokens / seconds)))


@dataclass(frozen=True, slots=True)
class Slowed:
    """One run. Times are from the slowing on; None: it never came."""

    judged: tuple[Judged, ...]  # answers of both slownesses
    share: float  # of the time that the slow peer ran
    noticed_s: float | None  # the log says that it became slower
    planned_s: float | None  # a plan serves that asks less of it
    relieved_s: float | None  # no answer goes over an older plan
    moved: int  # answers that went over to it while they ran
    plans: int  # that came to serve since
    brief_changes: int  # plans, and words of slower peers, of the brief slowness and after it
    uncovered: int = 0  # units that were counted on and not held, over all entries of the log
    trouble: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def held(self) -> bool:
        """Whether answers stayed right, relief came in time, and brief turns changed no plan."""
        answers = all(answer.completed and answer.equal for answer in self.judged)
        in_time = self.relieved_s is not None and self.relieved_s <= WITHIN_S
        calm = self.plans <= ALLOWED_PLANS and not self.brief_changes
        return bool(self.judged) and answers and in_time and calm and not self.uncovered and not self.trouble


def figures(runs: Sequence[Slowed]) -> dict[str, Any]:
    """Held: every answer completed with the right tokens, the peer relieved in time by one plan, nothing changed by
    the brief slowness, no unit uncovered.
    """
    judged = [answer for run in runs for answer in run.judged]
    found: dict[str, Any] = {
        "held": bool(runs) and all(run.held for run in runs),
        "runs": len(runs),
        "answers": len(judged),
        "completed": sum(answer.completed for answer in judged),
        "equal": sum(answer.equal for answer in judged),
    }
    for name in ("noticed_s", "planned_s", "relieved_s"):
        times = [time for run in runs if (time := getattr(run, name)) is not None]
        found[f"{name[:-2]}_p50_s"] = round(median(times), 2) if times else None
        found[f"{name[:-2]}_worst_s"] = round(max(times), 2) if len(times) == len(runs) and runs else None
    shares = [run.share for run in runs if run.share < 1]
    return found | {
        "moved": sum(run.moved for run in runs),
        "plans_over": sum(run.plans > ALLOWED_PLANS for run in runs),
        "brief_changes": sum(run.brief_changes for run in runs),
        "uncovered": sum(run.uncovered for run in runs),
        "ran_share": round(median(shares), 3) if shares else None,
        "longest_pause_p95_ms": _ms(percentile([answer.longest_gap_s for answer in judged], 0.95)),
    }


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value * 1000, 1)
