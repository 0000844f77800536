"""Decides what a run shows: recovery times, equal tokens, slowdown, and the figures over many runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

LEAST_GAPS: Final = 3  # before a fault: fewer do not say what is usual in this run
PAUSE_TIMES: Final = 2  # of the usual gap, and
PAUSE_S: Final = 0.15  # more: so long may an answer pause that moves to other peers
GAPS_AFTER: Final = 2  # a token that was sampled already may still come after the fault


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer as its asker saw it: when it was asked, when each token came; `error` "" when it ended well."""

    tokens: tuple[int, ...]
    asked_s: float
    at_s: tuple[float, ...]
    error: str = ""
    route: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """From the question to the last token."""
        return self.at_s[-1] - self.asked_s if self.at_s else 0.0

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """From one token to the next, the question before the first."""
        return tuple(zip((self.asked_s, *self.at_s), self.at_s, strict=False))


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer of a disturbed run against the undisturbed one."""

    completed: bool
    first_difference: int  # -1: the tokens are equal as far as both go
    equal: bool
    recovery_s: float | None  # None: the fault did not hit it
    longest_gap_s: float  # after the fault, whatever made it
    slowdown: float  # time of the whole answer, over the undisturbed one's


def judge(undisturbed: Stream, seen: Stream, first_fault_s: float | None, last_fault_s: float) -> Judged:
    """`first_fault_s` None: no fault came. Recovery is as long as the longest of the gaps around the faults, less the
    usual gap: that of this answer before them, or of the undisturbed answer where there are too few.
    """
    equal = seen.tokens == undisturbed.tokens
    recovery = longest = None
    if first_fault_s is not None and seen.at_s and seen.at_s[-1] > first_fault_s >= seen.asked_s:
        after = [gap for gap in seen.gaps if gap[1] > first_fault_s]
        around = [gap for gap in after if gap[0] <= last_fault_s]
        later = [gap for gap in after if gap[0] > last_fault_s][: GAPS_AFTER - 1]
        recovery = max(
            0.0,
            max(_length(gap) - _usual(undisturbed, seen, first_fault_s, gap) for gap in around + later),
        )
        longest = max(map(_length, after))
    return Judged(
        completed=not seen.error and len(seen.tokens) == len(undisturbed.tokens),
        first_difference=-1 if equal else difference(undisturbed.tokens, seen.tokens),
        equal=equal,
        recovery_s=recovery,
        longest_gap_s=longest or 0.0,
        slowdown=seen.seconds / undisturbed.seconds if undisturbed.seconds else 1.0,
    )


def pause(undisturbed: Stream, seen: Stream, after_s: float) -> tuple[float, float]:
    """The longest gap between two tokens after `after_s`, and how long it may be when an answer moves."""
    gaps = [gap for gap in seen.gaps[1:] if gap[1] > after_s]
    if not gaps:
        return 0.0, 0.0
    usual = _usual(undisturbed, seen, after_s, gaps[0])
    return max(map(_length, gaps)), PAUSE_TIMES * usual + PAUSE_S


def _length(gap: tuple[float, float]) -> float:
    return gap[1] - gap[0]


def _usual(undisturbed: Stream, seen: Stream, before_s: float, gap: tuple[float, float]) -> float:
    if gap[0] == seen.asked_s:  # the wait for the first token
        return _length(undisturbed.gaps[0])
    earlier = [_length(g) for g in seen.gaps[1:] if g[1] <= before_s]
    if len(earlier) < LEAST_GAPS:
        earlier = [_length(g) for g in undisturbed.gaps[1:]]
    return median(earlier) if earlier else 0.0


def difference(a: Sequence[int], b: Sequence[int]) -> int:
    """The first place at which `a` and `b` differ, one of them ending included."""
    for place, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return place
    return min(len(a), len(b))


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least value that `share` of the values do not exceed (nearest rank); None of nothing."""
    ranked = sorted(values)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)] if ranked else None


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: the answers judged, what caches showed (None: not compared), what was replayed, and how it went on."""

    judged: tuple[Judged, ...]
    primary_hit: bool
    kv_equal: bool | None
    replayed_bytes: int
    restored_s: float | None  # until every stage had its standby again; None: it never had
    trouble: str = ""  # what went wrong outside of the answers
    notes: tuple[str, ...] = field(default=())
    moved: int | None = None  # answers that went over to another plan while they ran; None: there was none
    pauses_over: int = 0  # of answers that moved: how many paused for too long
    uncovered: int = 0  # units that were counted on and not held, over all entries of the log


@dataclass(frozen=True, slots=True)
class Figures:
    """One scenario over its runs; shares from 0 to 1, None where nothing was measured."""

    runs: int
    answers: int
    completed: float
    equal: float
    kv_equal: float | None
    recovery_p50_ms: float | None
    recovery_p95_ms: float | None
    slowdown: float | None
    replayed_bytes: int
    restored_p50_s: float | None
    moved: int | None
    pauses_over: int
    uncovered: int
    held: bool


def figures(runs: Sequence[Ran], within_ms: float | None = None) -> Figures:
    """Held: every answer completed, all tokens and caches equal, the mesh whole again; and with `within_ms` the 95th
    percentile of recovery within that; no pause too long and no unit uncovered where answers move. Recovery counts
    answers that needed the peer which was hit.
    """
    judged = [answer for run in runs for answer in run.judged]
    hit = [
        answer.recovery_s * 1000
        for run in runs
        if run.primary_hit
        for answer in run.judged
        if answer.recovery_s is not None
    ]
    kv = [run.kv_equal for run in runs if run.kv_equal is not None]
    p95 = percentile(hit, 0.95)
    restored = [run.restored_s for run in runs if run.restored_s is not None]
    completed = _share([answer.completed for answer in judged])
    equal = _share([answer.equal for answer in judged])
    whole = all(run.restored_s is not None and not run.trouble for run in runs)
    fast = within_ms is None or p95 is None or p95 <= within_ms
    over, uncovered = sum(run.pauses_over for run in runs), sum(run.uncovered for run in runs)
    slowdowns = [answer.slowdown for answer in judged if answer.completed]
    return Figures(
        runs=len(runs),
        answers=len(judged),
        completed=completed,
        equal=equal,
        kv_equal=_share(kv) if kv else None,
        recovery_p50_ms=percentile(hit, 0.5),
        recovery_p95_ms=p95,
        slowdown=median(slowdowns) if slowdowns else None,
        replayed_bytes=sum(run.replayed_bytes for run in runs),
        restored_p50_s=percentile(restored, 0.5),
        moved=sum(run.moved or 0 for run in runs) if any(run.moved is not None for run in runs) else None,
        pauses_over=over,
        uncovered=uncovered,
        held=bool(runs) and completed == equal == 1.0 and all(kv) and whole and fast and not over + uncovered,
    )


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
