"""How many of many items are done, for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from peer.launch import json_lines
from peer.launch.progress_lines import LINE_EVERY_S
from peer.launch.terminal import err, say


class Advance(Protocol):
    """Says that so many items more are done."""

    def __call__(self, items: int = 1) -> None:
        """Adds `items`."""


@contextmanager
def counting(what: str, total: int, done: int) -> Iterator[Advance]:
    """Progress of `total` items, of which `done` are: a bar, or a line every few seconds where there is no terminal."""
    if total == 1:
        yield lambda _=1: None
        return
    if err.is_terminal and not json_lines.chosen:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True) as progress:
            task = progress.add_task(what, total=total, completed=done)
            yield lambda items=1: progress.advance(task, items)
        return
    begun, said, here = time.monotonic(), 0.0, done

    def advance(items: int = 1) -> None:
        nonlocal said, here
        here += items
        now = time.monotonic()
        if now - said >= LINE_EVERY_S:
            said = now
            say(f"{what}: {here} of {total} items, {(here - done) / max(now - begun, 1e-3):.1f}/s")

    yield advance
