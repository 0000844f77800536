"""How commands talk to a person: one place for output, progress, Ctrl-C and the folders of this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from peer.mesh import Phase

INTERRUPTED: Final = 130  # exit status after Ctrl-C, as shells expect
MEMORY_SHARE: Final = 0.5  # of what is free, pledged unless told otherwise: the machine belongs to its owner
LEAST_PLEDGE_BYTES: Final = 512 << 20

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def cache_folder() -> Path:
    """Where models live unless --store says otherwise: $XDG_CACHE_HOME/shoal or ~/.cache/shoal."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal"


def state_folder() -> Path:
    """Where the keys of founded meshes live: $XDG_STATE_HOME/shoal or ~/.local/state/shoal."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "shoal"


def default_pledge() -> int:
    """Bytes to pledge when nobody said how many: half of what is free now."""
    return max(LEAST_PLEDGE_BYTES, int(psutil.virtual_memory().available * MEMORY_SHARE))


def default_name() -> str:
    """What this machine is called."""
    return socket.gethostname()[:48] or "peer"


def say(text: str) -> None:
    """A line of progress; standard output stays free for answers and data."""
    err.print(text, markup=False)


def write(text: str) -> None:
    """Part of an answer, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def reporting() -> Iterator[Progressing]:
    """Shows phases of joining: a bar where there is a measure, a line otherwise."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=err, transient=True)
    progressing = Progressing(progress)
    try:
        yield progressing
    finally:
        progress.stop()


class Progressing:
    """Takes `Phase` reports. Without a terminal it prints one line when a phase begins."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._said = ""

    def __call__(self, phase: Phase) -> None:
        if phase.total <= 1 or not err.is_terminal:
            if phase.what != self._said:
                self._said = phase.what
                say(phase.what)
            return
        self._progress.start()
        task = self._tasks.get(phase.what)
        if task is None:
            task = self._tasks[phase.what] = self._progress.add_task(phase.what, total=phase.total)
        self._progress.update(task, completed=phase.done)
        if phase.done >= phase.total:
            self._progress.remove_task(self._tasks.pop(phase.what))
            if not self._tasks:
                self._progress.stop()


@contextmanager
def interrupts() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second one ends the process at once."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if asked.is_set():
            os._exit(INTERRUPTED)
        asked.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    with suppress(
        NotImplementedError
    ):  # Windows has no handlers on the loop: KeyboardInterrupt ends it there
        for number in signals:
            loop.add_signal_handler(number, stop)
    try:
        yield asked
    finally:
        with suppress(NotImplementedError):
            for number in signals:
                loop.remove_signal_handler(number)


async def either(*events: asyncio.Event) -> None:
    """Waits until one of the events is set."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
