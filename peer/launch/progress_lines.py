"""Progress as lines of text, where there is no terminal for bars: what is going on, bytes, percent and their rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peer.member.byte_sizes import bytes_text

LINE_EVERY_S: Final = 5.0  # a log stays readable, and a person sees that it goes on


class ProgressLines:
    """Lines such as "import tiny as 4bit: 1.2 GiB of 2.4 GiB, 50%, 310.0 MiB/s" or "cut tiny: 3 of 12 borders, 25%", at
    most one in LINE_EVERY_S, whatever goes on meanwhile; the first at once.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._what = ""
        self._begun = (0.0, 0)  # when, and how many bytes were done then
        self._said_s: float | None = None

    def __call__(self, what: str, done: int, total: int, unit: str = "") -> None:
        """`done` of `total` bytes of `what`, or of what `unit` says; what was done before it began is not told."""
        now = self._clock()
        if what != self._what:
            self._what, self._begun = what, (now, done)
            if done >= total:
                return
        if self._said_s is not None and now - self._said_s < LINE_EVERY_S:
            return
        self._said_s = now
        percent = 100 * done // max(total, 1)
        if unit:
            self._say(f"{what}: {done} of {total} {unit}, {percent}%")
            return
        begun_s, before = self._begun
        rate = f", {bytes_text((done - before) / (now - begun_s))}/s" if now > begun_s else ""
        self._say(f"{what}: {bytes_text(done)} of {bytes_text(total)}, {percent}%{rate}")
