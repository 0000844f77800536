"""Decides how long a solver of the benchmark took: in seconds of one processor, whatever else this machine does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

Figures = dict[str, Any]
Result = TypeVar("Result")
LOOK_S: Final = 0.2


def timed(call: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """The result, and the seconds of one processor that it took."""
    began = time.process_time()
    result = call(*arguments)
    return result, time.process_time() - began


@contextmanager
def stopped_after(cpu_s: float) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Gives what takes a way to stop, and stops once this process has used so many more seconds of processors."""
    ended, ends_at = threading.Event(), time.process_time() + cpu_s
    watching: list[threading.Thread] = []

    def watched(stop: Callable[[], None]) -> None:
        def look() -> None:
            while not ended.wait(LOOK_S):
                if time.process_time() >= ends_at:
                    stop()
                    return

        watching.append(threading.Thread(target=look))
        watching[-1].start()

    try:
        yield watched
    finally:
        ended.set()
        for thread in watching:
            thread.join()
