"""The real `shoal` command as a process: run to its end, or left running and watched line by line."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.patience import WITHIN_S, soon

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """The lines of stderr by which the command says why it failed."""
        return [line for line in self.err.splitlines() if line.startswith("shoal: ")]


def command_line(*words: object) -> list[str]:
    return [sys.executable, "-m", "peer.cli.main", *map(str, words)]


def environment(home: Path) -> dict[str, str]:
    """Nothing of the person who runs the tests: caches and keys go under `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | {"HOME": str(home), "PYTHONPATH": path, "PYTHONWARNINGS": "default", "COLUMNS": "200"}


def run(
    home: Path,
    *words: object,
    typed: str | None = None,
    limits: Callable[[], None] | None = None,
    within_s: float = WITHIN_S,
    before: Sequence[str] = (),
) -> Result:
    """Runs a command to its end. `limits` is called in the process before the command begins; `before` starts it."""
    done = subprocess.run(
        [*before, *command_line(*words)],
        input=typed,
        stdin=subprocess.DEVNULL if typed is None else None,
        capture_output=True,
        text=True,
        timeout=within_s,
        env=environment(home),
        preexec_fn=limits,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


class Running:
    """A command that goes on. Leaving the block ends it; a test that wants its status calls `end`.

    One that is not typed to ends with this process, too, which may be killed.
    """

    def __init__(self, home: Path, words: Sequence[object], typed: bool, before: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [*before, *command_line(*words, *(() if typed else ("--until-stdin-closes",)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(home),
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out: list[str] = []
        self.err: list[str] = []
        self._news: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines))
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def until(self, pattern: str, within_s: float = WITHIN_S) -> re.Match[str]:
        """The first line of either stream that has the pattern, past or future."""
        while True:
            for line in [*self.out, *self.err]:
                if (match := re.search(pattern, line)) is not None:
                    return match
            if self._news.get(timeout=within_s) is None:
                raise AssertionError(f"ended without {pattern!r}: {self.out} {self.err}")

    def type(self, line: str) -> None:
        """Writes a line to standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, number: int = signal.SIGINT, within_s: float = WITHIN_S) -> Result:
        """Sends a signal (0: none) and waits for the end."""
        if number:
            self.process.send_signal(number)
        status = self.process.wait(within_s)
        for reader in self._readers:
            reader.join(within_s)
        return Result(status, "".join(self.out), "".join(self.err))

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(soon(15))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line)
            self._news.put(line)
        self._news.put(None)


@contextmanager
def running(home: Path, *words: object, typed: bool = False, before: Sequence[str] = ()) -> Iterator[Running]:
    with Running(home, words, typed, before) as process:
        yield process
