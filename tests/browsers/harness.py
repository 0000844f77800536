"""Real browsers on 127.0.0.1, driven through one Node process, and meshes that tabs join."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.origin.answer_stream import Delta, Settings
from planner.model.store import Store
from planner.types import WeightFormat
from signaling.invites import Role
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.patience import WITHIN_S, soon

WEB_PEER = Path(__file__).parents[2] / "web_peer"
CONTEXT = 512
PLEDGE = 4 << 30
BINARIES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}
ENDED = "the browser driver ended"


def binary(browser: str) -> str:
    """Its path; the test fails when it is not installed."""
    for name in BINARIES[browser]:
        if (path := shutil.which(name)) is not None:
            return path
    pytest.fail(
        f"{browser} is not installed, so this was NOT tested: install it, or accept that by SHOAL_TEST_BROWSERS=none"
    )


def built(folder: Path) -> Path:
    """The app in `folder`, built from the sources as they are."""
    vite = WEB_PEER / "node_modules" / ".bin" / "vite"
    if not vite.exists():
        pytest.fail("web_peer/node_modules is not there: run `make setup`, or set SHOAL_TEST_BROWSERS=none")
    command = [str(vite), "build", "--outDir", str(folder), "--emptyOutDir", "--logLevel", "error"]
    subprocess.run(command, cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL)
    return folder


class Driver:
    """The Node process: `await driver.call("launch", ...)`, from whatever event loop. A thread reads its answers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    async def call(self, op: str, **arguments: Any) -> Any:
        """What the driver answers. Raises RuntimeError with its words where it fails, or has ended."""
        assert self._process.stdin is not None
        future: Future[Any] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError(ENDED)
            number = next(self._ids)
            self._waiting[number] = future
            self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(soon(20))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["id"])
            if not future.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            if "error" in answer:
                future.set_exception(RuntimeError(answer["error"]))
            else:
                future.set_result(answer["result"])
        with self._lock:
            self._ended = True
        for future in self._waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(RuntimeError(ENDED))


@contextmanager
def driving() -> Iterator[Driver]:
    """The Node process that drives browsers, until the block ends."""
    node = shutil.which("node")
    if node is None:
        pytest.fail(
            "Node is not installed, so browsers were NOT tested: install it, or set SHOAL_TEST_BROWSERS=none"
        )
    process = subprocess.Popen(
        [node, str(WEB_PEER / "tests" / "e2e" / "driver.js")],
        cwd=WEB_PEER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    made = Driver(process)
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True, slots=True)
class TabInBrowser:
    """One tab with the harness."""

    driver: Driver
    page: int

    async def run(self, expression: str) -> Any:
        return await self.driver.call("evaluate", page=self.page, expression=expression)

    async def join(self, link: str, *, lends: bool, memory: int = 1 << 30) -> dict[str, Any]:
        text = f"shoal.start({json.dumps(link)}, {json.dumps(lends)}, {memory})"
        status: dict[str, Any] = await self.run(text)
        return status

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.run("shoal.status()")
        return found

    async def until(self, what: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """Waits until the expression `what` over `s`, the status, is true."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    found: dict[str, Any] | None = await self.run(
                        f"(() => {{ const s = shoal.status(); return ({what}) ? s : null; }})()"
                    )
                    if found is not None:
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            heard = await self.driver.call("heard", page=self.page)
            pytest.fail(
                f"{what} did not come about within {within_s} s: {await self.status()}; console: {heard}"
            )


TOLD_NO_NAME = (
    "try { localStorage['shoal.name'] ??= ''; } catch {}"  # refused where the page may store nothing
)


class Browser:
    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.number = number

    async def tab(self, server: str, **how: Any) -> TabInBrowser:
        """A new tab; `how`: width, height, and `early`, an expression evaluated before the page's scripts. Its person
        was asked for a name before, and told none.
        """
        how["early"] = f"{TOLD_NO_NAME}; {how.get('early', '')}"
        return TabInBrowser(
            self.driver, await self.driver.call("page", browser=self.number, url=server, **how)
        )

    async def close(self) -> None:
        await self.driver.call("close", browser=self.number)

    async def kill(self) -> None:
        await self.driver.call("kill", browser=self.number)


async def launch(driver: Driver, browser: str, profile: Path, flags: tuple[str, ...] = ()) -> Browser:
    number = await driver.call(
        "launch", browser=browser, executable=binary(browser), profile=str(profile), flags=list(flags)
    )
    return Browser(driver, number)


async def lending_tabs(
    driver: Driver, server: str, link: str, profiles: Path
) -> dict[str, tuple[Browser, TabInBrowser]]:
    """A tab of Chromium and one of Firefox that lend, each in a browser of its own, by their ids in the mesh."""
    opened: dict[str, tuple[Browser, TabInBrowser]] = {}
    for browser in ("chromium", "firefox"):
        made = await launch(driver, browser, profiles / browser)
        tab = await made.tab(server)
        status = await tab.join(link, lends=True)
        assert status["state"] == "in", status
        opened[status["me"]] = made, tab
    return opened


async def visit(driver: Driver, browser: str) -> Browser:
    """A place of its own, with storage that nobody else sees, in the one browser of that kind that tests share.

    It forgets everything when it is closed. Tests that come back, end a browser or give it flags `launch` their own.
    """
    number = await driver.call("visit", browser=browser, executable=binary(browser))
    return Browser(driver, number)


@dataclass(frozen=True, slots=True)
class Models:
    store: Store
    ids: dict[WeightFormat, str]


@asynccontextmanager
async def founded(
    models: Models,
    web_app: Path,
    *,
    cuts: tuple[int, ...] | None = None,
    weights: WeightFormat = "8bit",
    memory: int = PLEDGE,
    port: int = 0,
    context: int = CONTEXT,
    uses: int = 0,
    role: Role = Role.PEER,
) -> AsyncIterator[MeshMember]:
    """A founder in this process, whose server serves the harness as its app."""
    promise = Founding(
        models.ids[weights],
        MeshOptions(context, 4, "latency", cuts),
        ServerOptions(port=port, web_app=web_app),
        invite_uses=uses,
        invite_role=role,
    )
    options = PeerOptions("founder", memory, 1, "cpu", "aiortc", ("127.0.0.1",))
    key = identity_from_seed(os.urandom(32))
    async with found(promise, options, models.store, key) as mesh:
        yield mesh


async def tokens_of(mesh: MeshMember, prompt: str, count: int) -> list[int]:
    """What Python's asker gets."""
    conversation = mesh.conversation()
    pieces = conversation.complete(prompt, Settings(max_tokens=count, ignore_end=True))
    found = [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
    conversation.close()
    return found
