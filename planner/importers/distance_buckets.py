"""Which distances of two tokens share a bias of their scores, as T5 has it (Raffel et al., 2020, section 2.1). Pure.

Near ones are exact, far ones shared on a scale of logarithms.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Whole = npt.NDArray[np.int64]


def buckets_behind(buckets: int, far: int) -> Whole:
    """The bucket of each distance back from 0 to `far`, from which on all are one: (far + 1,)."""
    return _of_distance(np.arange(far + 1, dtype=np.int64), buckets, far)


def buckets_around(buckets: int, far: int, positions: int) -> Whole:
    """The bucket of each distance from 1 - positions to positions - 1: half of them for tokens behind, half for those
    ahead: (2 * positions - 1,).
    """
    ahead = np.arange(1 - positions, positions, dtype=np.int64)  # where the other token is, from here
    half = buckets // 2
    return np.where(ahead > 0, half, 0) + _of_distance(np.abs(ahead), half, far)


def _of_distance(away: Whole, buckets: int, far: int) -> Whole:
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        scaled = np.log(away.astype(np.float32) / np.float32(exact)) / np.float32(math.log(far / exact))
    shared = exact + np.nan_to_num(scaled * (buckets - exact), neginf=0.0).astype(np.int64)
    return np.where(away < exact, away, np.minimum(shared, buckets - 1))
