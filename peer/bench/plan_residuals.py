"""Decides how well predicted times of plans hold, judged for peers of a class by the plans of other classes. Pure.

From plans over *other* device classes is learned what theirs took: a factor on what was predicted, and so much for each
stage, which no part of a prediction has. Their spread around that is the interval, a little wider where they are few
(conformal prediction: Vovk and others, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

COVERAGE: Final = 0.90
LEAST_OTHERS: Final = 5  # plans that make an interval
LEARNT: Final = 2  # numbers of a residual
MIN_COUNTS: Final = 2  # different numbers of stages, to tell what a stage takes
SINGULAR: Final = 1e-6  # of a determinant: plans that are all alike


@dataclass(frozen=True, slots=True)
class Compared:
    """One plan: the classes of its peers, and seconds for a token as predicted and as measured."""

    classes: str
    predicted_s: float
    measured_s: float
    stages: int = 1

    @property
    def ln_residual(self) -> float:
        """The logarithm of measured over predicted; 0 where they agree."""
        return math.log(self.measured_s / self.predicted_s)


@dataclass(frozen=True, slots=True)
class Residual:
    """Seconds that a plan takes are `factor` times what was predicted, and `stage_s` for each stage."""

    factor: float = 1.0
    stage_s: float = 0.0

    def applied(self, plan: Compared) -> Compared:
        """The plan as it is predicted with that."""
        return replace(plan, predicted_s=self.factor * plan.predicted_s + self.stage_s * plan.stages)


def residual(plans: Sequence[Compared]) -> Residual:
    """What is learned from `plans`: least squares of the relative errors; a factor alone where stages say nothing."""
    if len(plans) < LEAST_OTHERS:
        return Residual()
    plain = Residual(math.exp(median(plan.ln_residual for plan in plans)))
    if len({plan.stages for plan in plans}) < MIN_COUNTS:
        return plain
    rows = [(plan.predicted_s / plan.measured_s, plan.stages / plan.measured_s) for plan in plans]
    pp, ps, ss = (sum(a * b for a, b in pairs) for pairs in _products(rows))
    p, s = sum(row[0] for row in rows), sum(row[1] for row in rows)
    whole = pp * ss - ps * ps
    if whole <= SINGULAR * pp * ss:
        return plain
    found = Residual((p * ss - s * ps) / whole, (s * pp - p * ps) / whole)
    return found if found.factor > 0 and found.stage_s >= 0 else plain


def _products(rows: Sequence[tuple[float, float]]) -> tuple[list[tuple[float, float]], ...]:
    return [(a, a) for a, _ in rows], [(a, b) for a, b in rows], [(b, b) for _, b in rows]


def median_abs_error(plans: Sequence[Compared]) -> float | None:
    """Of the predictions, as a share of what was measured; None of nothing."""
    errors = [abs(plan.predicted_s - plan.measured_s) / plan.measured_s for plan in plans]
    return median(errors) if errors else None


def learned(plans: Sequence[Compared]) -> list[Compared]:
    """The same plans, each predicted with what those over other classes show."""
    return [residual(_others(plan, plans)).applied(plan) for plan in plans]


def _others(plan: Compared, plans: Sequence[Compared]) -> list[Compared]:
    return [other for other in plans if other.classes != plan.classes]


def against_best(chosen: Sequence[float], others: Sequence[Sequence[float]]) -> float:
    """How many times longer the chosen plan took than the best one, itself included; times are by round.

    Plans are compared within a round, in which they ran one after the other: what the machine does beside is the same
    for both. Their times come from these rounds alone: a plan that was once lucky is not the best for that.
    """
    return max([1.0, *(median(a / b for a, b in zip(chosen, other, strict=True)) for other in others)])


def interval(plan: Compared, others: Sequence[Compared]) -> tuple[float, float] | None:
    """Seconds between which `plan` lies in COVERAGE of all cases, going by `others`; None where they are too few."""
    if len(others) < LEAST_OTHERS:
        return None
    found = residual(others)
    residuals = sorted(found.applied(other).ln_residual for other in others)
    tail = max(
        0.0, (1 - COVERAGE * (1 + (1 + LEARNT) / len(residuals))) / 2
    )  # they lie nearer to what they taught
    low, high = _quantile(residuals, tail), _quantile(residuals, 1 - tail)
    middle_s = found.applied(plan).predicted_s
    return middle_s * math.exp(low), middle_s * math.exp(high)


def coverage(plans: Sequence[Compared]) -> float | None:
    """The share of plans inside their intervals, each going by the plans over other classes; None without any."""
    inside = []
    for plan in plans:
        found = interval(plan, _others(plan, plans))
        if found is not None:
            inside.append(found[0] <= plan.measured_s <= found[1])
    return sum(inside) / len(inside) if inside else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
