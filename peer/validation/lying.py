"""Decides how a peer that `shoal validate` started gives wrong results, so that others find it out.

Only validation imports this: a peer of people cannot be made to lie by a setting, a frame or a request.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import numpy as np

from peer import serving
from peer.runtime import Floats, StageRuntime, Step

SLIGHTLY: Final = 0.01  # relative


class Lie(Enum):
    """How results are wrong, by the name people give."""

    NOISE = "noise"
    SLIGHTLY = "slightly"
    REPLAY = "replay"
    IDLE = "idle"


MEANING: Final = {
    Lie.NOISE: "random numbers of the right size",
    Lie.SLIGHTLY: "each number wrong by up to 1 %",
    Lie.REPLAY: "the result of an earlier step",
    Lie.IDLE: "the input, handed on as if it had been computed",
}


class LyingRuntime(StageRuntime):
    """Computes as it should, and hands on something else. `lie` is set by `let_lie`."""

    lie: Lie = Lie.NOISE
    _earlier: Floats | None = None

    def _finish(self, step: Step, result: Floats, logits: Floats | None) -> None:
        random = np.random.default_rng(step.position)
        super()._finish(step, self._instead(random, step, result), logits)

    def _instead(self, random: np.random.Generator, step: Step, result: Floats) -> Floats:
        match self.lie:
            case Lie.NOISE:
                size = float(np.sqrt(np.mean(np.square(result))))
                return random.normal(0, size, result.shape).astype(np.float32)
            case Lie.SLIGHTLY:
                return (result * (1 + SLIGHTLY * random.uniform(-1, 1, result.shape))).astype(np.float32)
            case Lie.REPLAY:
                if self._earlier is None or self._earlier.shape != result.shape:
                    self._earlier = result.copy()
                    return result
                return self._earlier.copy()
            case Lie.IDLE:
                return result if step.hidden is None else step.hidden.copy()


def let_lie(lie: Lie) -> None:
    """All results of this process are wrong from now on."""
    LyingRuntime.lie = lie
    setattr(serving, "StageRuntime", LyingRuntime)  # noqa: B010 - a module, whose name is a type to the checker
