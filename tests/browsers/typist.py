"""A person at a terminal: `shoal chat LINK --in TITLE` as a process of its own behind a pseudo-terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from pathlib import Path

from tests.patience import soon

ROWS, COLUMNS = 40, 200
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z~]|\x1b[()][A-Z0-9]|\x1b[=>]")
WHERE, HERE = b"\x1b[6n", b"\x1b[1;1R"  # a program asks where the cursor is, and a terminal answers
READ_BYTES = 1 << 16


class Typist:
    """One terminal. What it shows is kept, less what moves the cursor."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.shown = ""
        self._news = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._master = -1

    async def start(self, link: str, title: str, *more: str) -> None:
        """Comes in, or back as the same peer."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        words = ("chat", link, "--in", title, "--name", self.name, "--bind", "127.0.0.1", *more)
        kept = ("--state", str(self.home / "state"), "--store", str(self.home / "store"))
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TERM": "xterm-256color",
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "peer.cli.main", *words, *kept),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)

    async def until_shows(self, words: str, within_s: float) -> None:
        """Waits until it has shown these words."""
        await self.until_matches(re.escape(words), within_s)

    async def until_matches(self, pattern: str, within_s: float) -> str:
        """What it has shown that the pattern fits, as soon as there is something."""
        try:
            async with asyncio.timeout(within_s):
                while (found := re.search(pattern, self.shown)) is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(
                f"{self.name} was not shown {pattern!r} in {within_s:.0f} s: {self.shown[-1500:]}"
            ) from None
        return found[0]

    def type(self, line: str) -> None:
        """Types a line and the Enter key."""
        os.write(self._master, f"{line}\r".encode())

    async def kill(self) -> None:
        """As by `kill -9`."""
        await self._ended(signal.SIGKILL)

    async def close(self) -> None:
        """Leaves as by Ctrl-C, or is ended."""
        await self._ended(signal.SIGINT)

    async def _ended(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(number)
        try:
            await asyncio.wait_for(process.wait(), soon(20))
        except TimeoutError:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            chunk = os.read(self._master, READ_BYTES)
        except OSError:  # the process ended
            asyncio.get_running_loop().remove_reader(self._master)
            return
        if WHERE in chunk:
            os.write(self._master, HERE)
        self.shown += CONTROLS.sub("", chunk.decode("utf-8", "replace"))
        self._news.set()
