"""Decides how likely a peer is to leave, from how long peers of its class stayed, with a prior for each platform.

Pure. Leaving is taken to be as likely at any moment, so `ended` stays over the time of all stays is the hazard; the
prior counts as PRIOR_STAYS stays (a Gamma prior of a Poisson rate). A peer in the background, throttled or on battery
has a higher prior, which what was measured under that condition overrides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from planner.history.facts import PeerClass

HOUR: Final = 3600.0
PRIOR_STAYS: Final = 2.0
PRIOR_STAY_S: Final = {"process": 48 * HOUR, "tab": 2 * HOUR, "phone": HOUR / 3}
CONDITIONS: Final = {  # times the hazard, until measured
    "background": 3.0,
    "throttled": 2.0,
    "battery": 2.0,
    "metered": 2.0,  # its person saves data
}
Z90: Final = 1.6449
StayCount = tuple[str, str, int, float]  # class, condition, how many ended, seconds of all


@dataclass(frozen=True, slots=True)
class Hazard:
    """Rate of leaving per second, and the interval that holds it in 90 %."""

    per_s: float
    low_per_s: float
    high_per_s: float
    ended: int  # stays that were measured
    why: str

    def leaves_within(self, seconds: float) -> float:
        """Probability of leaving within that time."""
        return -math.expm1(-self.per_s * seconds)


def platform(peer: PeerClass) -> str:
    if peer.device == "phone":
        return "phone"
    return "tab" if peer.provider in ("wasm", "webgpu") else "process"


def hazard(peer: PeerClass, counts: Iterable[StayCount], conditions: Sequence[str] = ()) -> Hazard:
    """How likely `peer` is to leave under `conditions` (of CONDITIONS; others count as none)."""
    found = {(name, condition): (ended, seconds) for name, condition, ended, seconds in counts}
    kind = platform(peer)
    ended, seconds = found.get((peer.name, ""), (0, 0.0))
    shape, time = PRIOR_STAYS + ended, PRIOR_STAYS * PRIOR_STAY_S[kind] + seconds
    told = [f"a {kind} stays {_span(PRIOR_STAY_S[kind])} by the prior"]
    if seconds:
        told.append(f"{ended} left in {_span(seconds)} measured")
    measured = ended
    for condition in sorted(set(conditions) & CONDITIONS.keys()):
        its_ended, its_seconds = found.get((peer.name, condition), (0, 0.0))
        rate = shape / time * CONDITIONS[condition]
        shape, time = PRIOR_STAYS + its_ended, PRIOR_STAYS / rate + its_seconds
        told.append(
            f"{condition}: {CONDITIONS[condition]:g} times by the prior, {its_ended} left in {_span(its_seconds)}"
        )
        measured += its_ended
    return Hazard(
        shape / time, _quantile(shape, -Z90) / time, _quantile(shape, Z90) / time, measured, "; ".join(told)
    )


def _quantile(shape: float, z: float) -> float:
    """Of a Gamma distribution of unit rate, by Wilson and Hilferty (1931)."""
    return float(shape * max(0.0, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3)


def _span(seconds: float) -> str:
    return f"{seconds / HOUR:.1f} h" if seconds >= HOUR else f"{seconds / 60:.0f} min"
