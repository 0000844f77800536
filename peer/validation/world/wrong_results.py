"""Decides how a peer that `shoal validate` started gives wrong results, so that others find it out.

Only validation imports this: a peer of people cannot be made to lie by a setting, a frame or a request.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, assert_never

import numpy as np

from peer.runtime.stage_runtime import StageRuntime, Step
from peer.session.evidence import Floats
from peer.stage import unit_host

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


def wrong(
    lie: Lie, random: np.random.Generator, given: Floats | None, result: Floats, earlier: Floats
) -> Floats:
    """What is handed on instead of `result`, which was made of the rows `given` (None: of tokens)."""
    match lie:
        case Lie.NOISE:
            size = float(np.sqrt(np.mean(np.square(result))))
            return random.normal(0, size, result.shape).astype(np.float32)
        case Lie.SLIGHTLY:
            return (result * (1 + SLIGHTLY * random.uniform(-1, 1, result.shape))).astype(np.float32)
        case Lie.REPLAY:
            return earlier.copy()
        case Lie.IDLE:
            return result if given is None else given.copy()
        case _:
            assert_never(lie)


class LyingRuntime(StageRuntime):
    """Computes as it should, and hands on something else. `lie` and `lies` are set by `let_lie`."""

    lie: Lie = Lie.NOISE
    _rows: Floats | None = None  # the first result of one token, and the first logits
    _logits: Floats | None = None

    def lies(self) -> bool:
        """Whether the next result is wrong."""
        return True

    def _finish(self, step: Step, result: Floats, logits: Floats | None) -> None:
        if len(result) == 1:
            self._rows = result.copy() if self._rows is None else self._rows
        if logits is not None:
            self._logits = logits.copy() if self._logits is None else self._logits
        if self.lies():
            random = np.random.default_rng(step.position)
            given = self._input(step)
            if logits is not None and self._logits is not None:
                idle = self._execution.head(given[-1:])[0] if self.lie is Lie.IDLE else None
                logits = wrong(self.lie, random, idle, logits, self._logits)
            if len(result) == 1 and self._rows is not None:
                result = wrong(self.lie, random, given, result, self._rows)
        super()._finish(step, result, logits)


def let_lie(lie: Lie, lies: Callable[[], bool] = lambda: True) -> None:
    """All results of this process are wrong from now on, while `lies()`."""
    setattr(LyingRuntime, "lies", lambda _: lies())  # noqa: B010 - a method, which is a constant to the checker
    LyingRuntime.lie = lie
    setattr(unit_host, "StageRuntime", LyingRuntime)  # noqa: B010 - a module, whose name is a type to the checker
