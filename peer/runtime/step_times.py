"""Decides how long a token takes at each run of units here: the median of its last steps that ran by themselves.

Pure. A step of one token counts where no other was under way at any moment of it: so it is what one answer waits for
here, and comparable with what the plan predicts.
"""

from __future__ import annotations

from collections import deque
from typing import Final

KEPT: Final = 32  # steps of a run, the last ones
Run = tuple[int, int]
Step = tuple[Run, bytes, int, int]  # run of units, session, epoch, position


class StepTimes:
    """Is told when steps begin and end, in seconds of one clock."""

    def __init__(self) -> None:
        self._open: dict[
            Step, tuple[float, bool]
        ] = {}  # steps under way: since when, whether it counts so far
        self._times: dict[Run, deque[float]] = {}

    def begun(self, now: float, step: Step, *, counts: bool) -> None:
        """A step was handed to the model; `counts`: of one token, and somebody waits for it."""
        alone = not self._open
        for other, (since, _) in self._open.items():
            self._open[other] = since, False
        self._open[step] = now, counts and alone

    def ended(self, now: float, step: Step, *, ran: bool) -> None:
        """It came back."""
        since, counts = self._open.pop(step, (now, False))
        if ran and counts:
            self._times.setdefault(step[0], deque(maxlen=KEPT)).append(now - since)

    def dropped(self, run: Run, session: bytes) -> None:
        """The steps of a session were given up."""
        for step in [step for step in self._open if step[:2] == (run, session)]:
            del self._open[step]

    def unloaded(self, run: Run) -> None:
        """These units are here no more."""
        self._times.pop(run, None)
        for step in [step for step in self._open if step[0] == run]:
            del self._open[step]

    def medians_us(self) -> list[tuple[int, int, int]]:
        """(first, stop, microseconds of a token) of each run that computed one, sorted."""
        return sorted(
            (first, stop, int(sorted(times)[len(times) // 2] * 1e6 + 0.5))
            for (first, stop), times in self._times.items()
        )
