"""Compute peers as processes of their own, which can be killed, frozen and started again as the same peers.

Edge. A process is ended by its id, and none outlives the block that made it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil

from peer.errors import CannotServe
from peer.launch.browsers import OpenTab, TabOptions, open_tab
from peer.member.peer_options import Lent
from peer.validation.world.injection import Injection, leave_order

STOP_WITHIN_S: Final = 10.0
COMPLAINT_CHARS: Final = 2000  # of what a peer wrote last, shown when it ended by itself
_LINK: Final = re.compile(r"(?m)^http://\S+/#\S+$")


@dataclass(frozen=True, slots=True)
class How:
    """What every started peer is given. `relay` "": peers reach each other directly."""

    link: str
    store: Path
    folder: Path
    memory: Lent
    threads: int
    transport: str
    relay: str


class Child(Protocol):
    """A compute peer that can be hurt."""

    name: str

    async def start(self) -> None:
        """Starts it, the first time or again, as the same peer."""

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process that computes; nothing when it is gone."""

    def order(self, what: str) -> None:
        """Leaves an order for its runtime (peer.validation.world.injection)."""

    async def gone(self) -> None:
        """Waits until it ended, for a while; then ends it."""

    async def end(self) -> None:
        """Ends it, whatever it does."""

    @property
    def pid(self) -> int | None:
        """The process that computes; None while it does not run."""

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""

    def complaint(self) -> str:
        """What it wrote last, for people."""


class JoinedProcess:
    """`shoal join` with a state folder of its own: started again, it is the same peer."""

    def __init__(self, name: str, how: How) -> None:
        self.name = name
        self._how = how
        self.state = how.folder / name.replace(" ", "-")
        self.state.mkdir()
        self.wrote = self.state / "wrote"
        self._orders = self.state / "orders"
        self._inject = self.state / "inject"
        self._inject.write_text(Injection(self._orders, how.relay, name).to_json())
        self._process: asyncio.subprocess.Process | None = None

    def program(self) -> tuple[str, ...]:
        """The module that is run, and what it wants to know before the command."""
        return ("peer.cli.main",)

    def words(self) -> tuple[str, ...]:
        """The command, as one types it."""
        return ("join", "-", "--quiet")

    def typed(self) -> str:
        """What it reads first."""
        return self._how.link + "\n"

    async def start(self) -> None:
        """Starts the process, which joins by itself."""
        how = self._how
        self._orders.unlink(missing_ok=True)
        command: Sequence[str] = (
            *(sys.executable, "-m", *self.program(), *self.words(), "--name", self.name),
            *("--memory", how.memory.words, "--threads", str(how.threads)),
            *("--transport", how.transport, "--bind", "127.0.0.1"),
            *("--store", str(how.store), "--state", str(self.state), "--inject", str(self._inject)),
            "--until-stdin-closes",
        )
        with self.wrote.open("ab") as wrote:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=wrote,
                stderr=wrote,
                start_new_session=True,  # Ctrl-C in the terminal is for this program, which then ends its peers
            )
        assert self._process.stdin is not None
        self._process.stdin.write(self.typed().encode())  # and left open: its end is this program's

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, where the process runs."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def order(self, what: str) -> None:
        """Leaves an order, which the process finds by itself."""
        leave_order(self._orders, what)

    async def gone(self) -> None:
        """Waits for the end of the process; kills it after STOP_WITHIN_S."""
        if self._process is not None:
            try:
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._process.wait()
            except TimeoutError:
                await self.end()

    async def end(self) -> None:
        """Kills the process, a frozen one too, and waits for its end."""
        if self._process is None:
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        await self._process.wait()

    @property
    def pid(self) -> int | None:
        """The id of the process; None: it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    def complaint(self) -> str:
        """The last of what the process wrote."""
        with suppress(OSError):
            return self.wrote.read_text(errors="replace")[-COMPLAINT_CHARS:].strip()
        return ""


class LyingProcess(JoinedProcess):
    """A peer that computes as it should until `begin`, and then gives wrong results in one way."""

    def __init__(self, name: str, how: How, lie: str) -> None:
        super().__init__(name, how)
        self._lie = lie
        self._begun = self.state / "lies"

    def program(self) -> tuple[str, ...]:
        """The module to run, with the lie and the file that says when it begins."""
        return ("peer.cli.validate_liar_process", self._lie, str(self._begun))

    def begin(self) -> None:
        """From its next result on."""
        self._begun.touch()


class FoundingProcess(JoinedProcess):
    """`shoal serve --keep`: founds the mesh, and started again it is one voter among others."""

    def __init__(self, name: str, how: How, meet: str, model_id: str, more: Sequence[str]) -> None:
        super().__init__(name, how)
        self._words = ("serve", model_id, "--signaling", meet, "--keep", "--no-history", "--no-qr", *more)

    def words(self) -> tuple[str, ...]:
        """The words of the command line."""
        return self._words

    def typed(self) -> str:
        """Nothing: it comes by no link."""
        return ""

    async def link(self) -> str:
        """The invite that it prints. Raises CannotServe when it ends before that."""
        while (found := _LINK.search(self.wrote.read_text())) is None:
            if not self.running:
                raise CannotServe(f"{self.name} ended by itself: {self.complaint()}")
            await asyncio.sleep(0.05)
        return found[0]


class Tab:
    """A browser with one tab of the mesh's page. Signals go to the tab's own process, not to the browser's."""

    def __init__(self, name: str, browser: str, link: str, memory_bytes: int, folder: Path) -> None:
        self.name = name
        self._browser = browser
        self._link = link
        self._options = TabOptions(True, memory_bytes, name, folder / name.replace(" ", "-"))
        self._stack: AsyncExitStack | None = None
        self._tab: OpenTab | None = None
        self._killed = False

    async def start(self) -> None:
        """Opens the tab with the link, in the browser that is there."""
        await self.end()  # a browser stays when its tab was killed
        stack = AsyncExitStack()
        self._tab = await stack.enter_async_context(open_tab(self._browser, self._link, self._options))
        self._stack, self._killed = stack, False

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process that runs the tab."""
        if (pid := self.pid) is not None:
            self._killed = self._killed or number in (signal.SIGKILL, signal.SIGINT)
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def order(self, what: str) -> None:
        """Raises CannotServe: a tab takes no orders."""
        raise CannotServe(f"{self.name}: a tab takes no orders of validation, got {what!r}")

    async def gone(self) -> None:
        """Closes the tab."""
        await self.end()

    async def end(self) -> None:
        """Closes the tab, where one is open."""
        stack, self._stack, self._tab = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    @property
    def pid(self) -> int | None:
        """The renderer that occupies most: Chromium keeps others for its own pages."""
        if self._tab is None or self._killed:
            return None  # Chromium may still have a renderer in reserve
        found: list[tuple[int, int]] = []
        with suppress(psutil.Error):
            for process in psutil.Process(self._tab.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if _is_renderer(process.cmdline()):
                        found.append((process.memory_info().rss, process.pid))
        return max(found)[1] if found else None

    @property
    def running(self) -> bool:
        """Whether the tab is open, was not killed, and its browser runs."""
        # Not by its renderer, which a browser that just started does not have yet.
        return self._tab is not None and not self._killed and self._tab.process.returncode is None

    def complaint(self) -> str:
        """Nothing: a tab leaves no text."""
        return ""


def _is_renderer(command: Sequence[str]) -> bool:
    return any(word in ("--type=renderer", "-contentproc", "tab") for word in command)
