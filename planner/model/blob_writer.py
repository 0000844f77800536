"""Blobs of a model that are computed and stored side by side, one thread for each core.

Edge. numpy and hashlib let other threads run while they work, and threads share the mapped source; nothing is stored
under its name before it is whole, so an error or Ctrl-C leaves whole blobs only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final

from planner.model.blob_plan import BlobPlan
from planner.model.store import BlobRef, Store

MOST_THREADS: Final = 8  # each holds some 20 MB of what it is at


class _Stopped(Exception):
    """Another blob failed, or a person pressed Ctrl-C."""


def put_blobs(
    store: Store, plans: Sequence[BlobPlan], progress: Callable[[int, int], None] | None = None
) -> list[BlobRef]:
    """Stores them all; `progress(done, total)` counts their bytes. Raises the error of the first that fails, in their
    order: ModelError or StoreError.
    """
    counter = _Counter(sum(tensor.bytes for plan in plans for tensor in plan.tensors), progress)
    stop = threading.Event()

    def put(plan: BlobPlan) -> BlobRef:
        def fill(write: Callable[[int, memoryview], None]) -> None:
            for chunk in plan.chunks():
                if stop.is_set():
                    raise _Stopped
                pieces = chunk()
                for offset, piece in pieces:
                    write(offset, piece)
                counter.add(sum(len(piece) for _, piece in pieces))

        return store.fill_blob(plan.bytes, fill)

    with ThreadPoolExecutor(min(_cores(), MOST_THREADS), "shoal-import") as pool:
        futures = [pool.submit(put, plan) for plan in plans]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    for error in _errors(futures):
        raise error
    return [future.result() for future in futures]


def _errors(futures: Sequence[Future[BlobRef]]) -> list[BaseException]:
    ended = [future.exception() for future in futures if not future.cancelled()]
    return [error for error in ended if error is not None and not isinstance(error, _Stopped)]


class _Counter:
    """Bytes done, told one at a time."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._progress is not None:
                self._progress(self._done, self._total)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
