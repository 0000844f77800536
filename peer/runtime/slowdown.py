"""Decides whether this peer computes as fast as it did: how much longer its steps take than they took at first.

Pure. Steps are counted while any of them is under way, so that waiting for others is not taken for being slow; what
they should take comes from this peer's own measurement. The first samples say how real steps compare with it, and those
that follow say so better, for as long as nothing changed. A
change is told when it is large and held for some checks: a short slowness, or one that wavers, is not. A peer that was
told slower and then got nothing to do could never show that it is as fast again: after a while it is taken to be, for
longer each time that it was not.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Final

CHECK_S: Final = 1.0  # between two looks
LEARNED: Final = 5  # looks with work in them that say how fast this peer is,
SURE: Final = 20  # and as many that say it better: the first ones are mostly of prompts
LEAST_S: Final = 0.05  # of work between two looks; less says nothing
RECENT_S: Final = 15.0  # what was seen before work paused for longer says nothing of now
FORGOTTEN_S: Final = 30.0  # a step under way for longer will not come back
# How many times slower or faster than told last, how many looks say so (a slowness of 2 s has no more than 3), and of
# how many: on a busy machine one look among those of a slow peer may be as fast as ever. A smaller change has to last.
CHANGES: Final = ((1.8, 4, 6), (1.5, 8, 10))
LARGE: Final = max(times for times, _, _ in CHANGES)
LEAST_CHANGE: Final = min(times for times, _, _ in CHANGES)
MOST_LOOKS: Final = max(of for _, _, of in CHANGES)
MOST: Final = 64.0  # times slower that are believed
FORGIVEN_S: Final = (
    300.0  # without work, after which a slower peer counts as fast as at first, for the first time
)
LONGEST_S: Final = 7200.0  # the same after many times
MILLI: Final = 1000
Step = tuple[tuple[int, int], bytes, int, int]  # run of units, session, epoch, position


class Pace:
    """`told_milli`: thousandths of the first time that steps take now, as it was told last."""

    def __init__(self) -> None:
        self.told_milli = MILLI
        self._open: dict[Step, tuple[float, float]] = {}  # steps under way: since when, what each should take
        self._since = 0.0  # since when some step was under way
        self._busy_s = self._work_s = 0.0
        self._looked = 0.0
        self._first: list[float] = []
        self._base = 0.0
        self._row: deque[tuple[float, float]] = deque(
            maxlen=MOST_LOOKS
        )  # the last looks: when, and busy to work
        self._before_milli = MILLI
        self._worked = float("-inf")
        self._forgiven_s = FORGIVEN_S

    @property
    def learned(self) -> bool:
        """Whether it is known how fast this peer is; before, nothing is told."""
        return len(self._first) >= LEARNED

    def steady(self, now: float) -> bool:
        """Whether steps take about what they took at first, as far as anybody knows."""
        told = 1 / LEAST_CHANGE <= self.told_milli / MILLI <= LEAST_CHANGE
        return told and all(1 / LARGE <= pace <= LARGE for pace in self._recent(now))

    def begun(self, now: float, step: Step, should_s: float) -> None:
        """A step was handed to the model."""
        if not self._open:
            self._since = now
        self._open[step] = now, should_s
        self._worked = now

    def ended(self, now: float, step: Step, *, ran: bool = True) -> None:
        """It came back; one that did not run counts for nothing."""
        found = self._open.pop(step, None)
        if found is None:
            return
        self._busy_s += now - self._since
        self._since = now
        if ran:
            self._work_s += found[1]

    def dropped(self, now: float, run: tuple[int, int], session: bytes) -> None:
        """The steps of a session were given up."""
        for step in [step for step in self._open if step[:2] == (run, session)]:
            self.ended(now, step, ran=False)

    def look(self, now: float) -> int | None:
        """Called often; what is to be told now in thousandths of the first time, or None."""
        if now - self._looked < CHECK_S:
            return None
        self._looked = now
        for step in [step for step, (since, _) in self._open.items() if now - since > FORGOTTEN_S]:
            del self._open[step]
        if self.told_milli >= MILLI * LEAST_CHANGE and now - self._worked >= self._forgiven_s:
            self._forgiven_s = min(2 * self._forgiven_s, LONGEST_S)
            return self._tell(MILLI)
        busy_s, work_s = self._busy_s, self._work_s
        if busy_s < LEAST_S or work_s <= 0:
            return None  # little to do, or a long step under way
        self._busy_s = self._work_s = 0.0
        ratio = busy_s / work_s
        told = self.told_milli / MILLI
        if not self.learned or (told == 1.0 and len(self._first) < SURE and self._is_like(ratio)):
            self._first.append(ratio)
            self._base = statistics.median(self._first)
            if not self.learned:
                return None
        self._row.append((now, ratio))
        row = self._recent(now)
        is_slower = row[-1] > told
        for times, held, of in CHANGES:
            last = row[-of:]
            differs = [each for each in last if (each > told * times if is_slower else each < told / times)]
            if len(differs) < held:
                continue
            if not is_slower:
                self._forgiven_s = FORGIVEN_S
            return self._tell(max(1, round(statistics.median(differs) * MILLI)))
        return None

    def _is_like(self, ratio: float) -> bool:
        """Whether it is no sign of a change."""
        return self._base / LARGE <= ratio <= self._base * LARGE

    def _recent(self, now: float) -> list[float]:
        """The paces of the last looks."""
        return [min(each / self._base, MOST) for since, each in self._row if now - since < RECENT_S]

    def unheard(self) -> None:
        """Nobody heard what was told last: it is told again when it still holds."""
        self.told_milli = self._before_milli

    def lost(self) -> None:
        """The log has the first pace, whatever was told last."""
        self.told_milli = MILLI

    def _tell(self, milli: int) -> int:
        self._before_milli, self.told_milli = self.told_milli, milli
        self._row.clear()
        return milli


def should_take(
    kinds: Mapping[str, int], decode_ns: Mapping[str, int], prefill_ns: Mapping[str, int], tokens: int
) -> float:
    """Seconds that a step of `tokens` tokens should take; `kinds`: how many units of each kind there are."""
    table = decode_ns if tokens == 1 else prefill_ns
    return sum(count * table.get(kind, 0) for kind, count in kinds.items()) * tokens / 1e9


def at_pace(table: Mapping[str, int], milli: int) -> dict[str, int]:
    """Times at that pace."""
    return {kind: ns * milli // MILLI for kind, ns in table.items()}
