"""Decides how well predicted times of plans hold, judged for peers of a class by the plans of other classes. Pure.

The interval of a plan is its prediction times what plans over *other* device classes took, over what was predicted for
them: their quantiles, a little wider where they are few (conformal prediction: Vovk and others, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

COVERAGE: Final = 0.90
LEAST_OTHERS: Final = 5  # plans that make an interval


@dataclass(frozen=True, slots=True)
class Compared:
    """One plan: the classes of its peers, and seconds for a token as predicted and as measured."""

    classes: str
    predicted_s: float
    measured_s: float

    @property
    def ln_residual(self) -> float:
        return math.log(self.measured_s / self.predicted_s)


def median_abs_error(plans: Sequence[Compared]) -> float | None:
    """Of the predictions, as a share of what was measured; None of nothing."""
    errors = [abs(plan.predicted_s - plan.measured_s) / plan.measured_s for plan in plans]
    return median(errors) if errors else None


def interval(plan: Compared, others: Sequence[Compared]) -> tuple[float, float] | None:
    """Seconds between which `plan` lies in COVERAGE of all cases, going by `others`; None where they are too few."""
    if len(others) < LEAST_OTHERS:
        return None
    residuals = sorted(other.ln_residual for other in others)
    tail = max(0.0, (1 - COVERAGE * (1 + 1 / len(residuals))) / 2)
    low, high = _quantile(residuals, tail), _quantile(residuals, 1 - tail)
    return plan.predicted_s * math.exp(low), plan.predicted_s * math.exp(high)


def coverage(plans: Sequence[Compared]) -> float | None:
    """The share of plans inside their intervals, each going by the plans over other classes; None without any."""
    inside = []
    for plan in plans:
        found = interval(plan, [other for other in plans if other.classes != plan.classes])
        if found is not None:
            inside.append(found[0] <= plan.measured_s <= found[1])
    return sum(inside) / len(inside) if inside else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
