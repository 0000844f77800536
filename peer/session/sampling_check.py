"""Decides whether a token can have been drawn from logits that were computed again. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from peer.session.evidence import Floats
from peer.session.sampling import Sampling, exponential, penalize, sample

LOWEST: Final = -40.0  # an exponent below which a weight counts as none, as in peer.session.sampling
IMPOSSIBLE: Final = 1e-9  # share of all draws: less likely tokens are not drawn by chance


def fits(
    logits: Floats,
    token: int,
    sampling: Sampling,
    position: int,
    history: Any,
    answer: Any,
    *,
    most: float,
    repeated: bool,
) -> bool:
    """Whether `token` can be that of `position`. `history`, `answer`: tokens so far, of all and of this answer.

    Two tokens may be about equally likely: by `most` of the spread of the logits. Where bits are not `repeated` a draw
    by chance may fall on another token, so that only one that is hardly ever drawn tells.
    """
    own = sample(logits, sampling, position, history, answer)
    if token == own:
        return True
    if not 0 <= token < len(logits):
        return False
    row = penalize(logits, sampling, history, answer)
    if sampling.temperature > 0 and not repeated:
        return _share_up_to(row, token, sampling.temperature) >= IMPOSSIBLE
    gap = abs(float(row[own] - row[token]))
    return gap <= most * 2 * float(np.std(logits))


def _share_up_to(logits: Floats, token: int, temperature: float) -> float:
    """Of all draws, how many fall on a token that is at most as likely as `token`."""
    exponents = (logits.astype(np.float64) - float(np.max(logits))) / temperature
    weights = exponential(np.maximum(exponents, LOWEST))
    weights[exponents < LOWEST] = 0.0
    return float(weights[logits <= logits[token]].sum() / weights.sum())
