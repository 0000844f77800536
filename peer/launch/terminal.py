"""How commands talk to a person: one place for output, progress and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

try:
    import termios
except ImportError:  # Windows, which echoes nothing that nobody reads
    termios = None  # type: ignore[assignment]

from peer.errors import Interrupted
from peer.launch import json_lines
from peer.launch.progress_lines import ProgressLines
from peer.member.peer_options import INTERRUPTED
from peer.state.display_names import plain_lines

if TYPE_CHECKING:  # not at run time: it brings the whole runtime along, which not every command needs
    from peer.member.progress import Phase, Report

# Ctrl-C, an order to end, and a terminal that was closed (which Windows tells in other ways).
ENDING_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

_LOCAL_FLAGS: Final = 3  # in what termios.tcgetattr returns

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A line of progress; standard output stays free for answers and data."""
    if json_lines.chosen:
        json_lines.tell("info", plain_lines(text))
        return
    lines = plain_lines(text)
    err.print(_between_words(lines, err.width) if err.is_terminal else lines, markup=False, soft_wrap=True)


def _between_words(text: str, width: int) -> str:
    """Lines of at most `width` characters where words allow that: a link in two pieces leads nowhere."""
    return "\n".join(
        textwrap.fill(line, width, replace_whitespace=False, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


_lines: Final = ProgressLines(say, time.monotonic)


def whisper(_: str) -> None:
    """In place of `say`, for commands that were asked to be quiet."""


def write(text: str) -> None:
    """Part of an answer, at once. A terminal gets no control characters: other peers pick the tokens."""
    sys.stdout.write(plain_lines(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


@contextmanager
def reporting(*, quiet: bool = False) -> Iterator[Report]:
    """Shows phases of joining: a bar where there is a measure, a line otherwise; with `quiet` nothing."""
    if quiet:
        yield lambda _: None
        return
    progressing = Progressing(_bars())
    try:
        yield progressing
    finally:
        progressing.stop()


@contextmanager
def counting(what: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """Shows how much of something long is done: a bar, or a line every few seconds where there is no terminal. Counts
    bytes, whose rate it shows, too, or what `unit` says. What it yields is called with (done, total), from any thread
    but one at a time.
    """
    if not _has_bars():
        yield lambda done, total: _lines(what, done, total, unit)
        return
    with _bars() if not unit else _count_bars(unit) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _has_bars() -> bool:
    return err.is_terminal and not json_lines.chosen


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


def _count_bars(unit: str) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


class Progressing:
    """Takes `Phase` reports: a line when a phase begins, and bytes of one that has a measure."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._said = ""

    def __call__(self, phase: Phase) -> None:
        """Shows how far the phase is: as a bar at a terminal, else as lines."""
        if phase.total <= 1:
            if phase.what != self._said:
                self._said = phase.what
                say(phase.what)
            return
        if not _has_bars():
            _lines(phase.what, phase.done, phase.total)
            return
        self._progress.start()
        task = self._tasks.get(phase.what)
        if task is None:
            task = self._tasks[phase.what] = self._progress.add_task(phase.what, total=phase.total)
        self._progress.update(task, completed=phase.done)
        if phase.done >= phase.total:
            self._progress.remove_task(self._tasks.pop(phase.what))
            if not self._tasks:
                self.stop()

    def stop(self) -> None:
        """Takes the bars away. One that never started would leave an empty line."""
        if self._progress.live.is_started:
            self._progress.stop()


class Interrupts:
    """What Ctrl-C and SIGTERM do: first whatever is in front, then `asked`, then the end of the process."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.last_words: list[Callable[[], None]] = []  # done before the process ends at once
        self._fronts: list[Callable[[], None]] = []

    def pressed(self) -> None:
        """A person, or the system, wants this to end."""
        if self._fronts:
            self._fronts.pop()()
        elif not self.asked.is_set():
            self.asked.set()
        else:
            for word in self.last_words:
                word()
            os._exit(INTERRUPTED)

    @contextmanager
    def first(self, action: Callable[[], None]) -> Iterator[None]:
        """Within the block the next Ctrl-C does `action` only, such as stopping an answer."""
        self._fronts.append(action)
        try:
            yield
        finally:
            if action in self._fronts:
                self._fronts.remove(action)

    @contextmanager
    def cancelling(self) -> Iterator[None]:
        """Within the block Ctrl-C breaks off what the current task waits for. Raises Interrupted then."""
        with self._cancelling(self.asked.set):
            yield

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Around an answer: call what it yields once tokens come.

        Ctrl-C before that breaks off (raises Interrupted); after that it calls `stop`, and a second one breaks off and
        sets `asked`.
        """
        stopped = False

        def front() -> None:
            nonlocal stopped
            stopped = True
            stop()

        def begun() -> None:
            if not stopped and front not in self._fronts:
                self._fronts.append(front)

        def broken_off() -> None:
            if stopped:
                self.asked.set()

        try:
            with self._cancelling(broken_off):
                yield begun
        finally:
            if front in self._fronts:
                self._fronts.remove(front)

    @contextmanager
    def _cancelling(self, also: Callable[[], None]) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        pressed = False

        def cancel() -> None:
            nonlocal pressed
            pressed = True
            also()
            task.cancel()

        try:
            with self.first(cancel):
                if self.asked.is_set():
                    raise Interrupted
                yield
        except asyncio.CancelledError:
            if not pressed:
                raise
            task.uncancel()
            raise Interrupted from None


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Takes Ctrl-C, SIGTERM and SIGHUP from here on."""
    ctrl = Interrupts()
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    on_loop = True
    for number in before:
        try:
            loop.add_signal_handler(number, ctrl.pressed)
        except NotImplementedError:  # Windows
            on_loop = False
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(ctrl.pressed))
    try:
        yield ctrl
    finally:
        for number, handler in before.items():
            if on_loop:
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextmanager
def unechoed(ctrl: Interrupts) -> Iterator[None]:
    """Within the block keys show nothing at the terminal: they would stand in the middle of an answer. The next prompt
    has them. Does nothing where standard input is no terminal of this process.
    """
    restore = _without_echo()
    ctrl.last_words.append(restore)
    try:
        yield
    finally:
        ctrl.last_words.remove(restore)
        restore()


def _without_echo() -> Callable[[], None]:
    """Turns the echo of standard input off; what is returned turns it on again."""
    if termios is None or not sys.stdin.isatty():
        return lambda: None
    terminal = sys.stdin.fileno()
    if os.tcgetpgrp(terminal) != os.getpgrp():  # the system would stop this process in the background
        return lambda: None
    before = termios.tcgetattr(terminal)
    quiet = [*before]
    quiet[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    return lambda: termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def either(*events: asyncio.Event) -> None:
    """Waits until one of the events is set."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
