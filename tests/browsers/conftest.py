"""Real browsers on 127.0.0.1, driven through one Node process, and the headless harness of the web peer.

Where a browser or Node is not installed the tests fail and say so, unless SHOAL_TEST_BROWSERS=none.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peer.joining import Founding, found
from peer.mesh import Mesh
from peer.options import MeshOptions, PeerOptions
from planner.importers.gguf import open_gguf
from planner.store import Store
from planner.types import WeightFormat
from planner.units import build_model
from signaling.invites import Role
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.patience import WITHIN_S, soon

from ..planner.conftest import TinyModel  # noqa: TID252
from .numerics import Cut

WEB_PEER = Path(__file__).parents[2] / "web_peer"
CONTEXT = 512
PLEDGE = 4 << 30
BINARIES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}
LINE_BYTES = 16 << 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SHOAL_TEST_BROWSERS") == "none":
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="SHOAL_TEST_BROWSERS=none: no browser was tested"))


def binary(browser: str) -> str:
    """Its path; the test fails when it is not installed."""
    for name in BINARIES[browser]:
        if (path := shutil.which(name)) is not None:
            return path
    pytest.fail(
        f"{browser} is not installed, so this was NOT tested: install it, or accept that by SHOAL_TEST_BROWSERS=none"
    )


@pytest.fixture(scope="session")
def harness() -> Path:
    """The harness page, built from the sources as they are."""
    vite = WEB_PEER / "node_modules" / ".bin" / "vite"
    if not vite.exists():
        pytest.fail("web_peer/node_modules is not there: run `make setup`, or set SHOAL_TEST_BROWSERS=none")
    command = [str(vite), "build", "-c", "vite.harness.config.ts", "--logLevel", "error"]
    subprocess.run(command, cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL)
    return WEB_PEER / "build" / "harness"


def built(folder: Path) -> Path:
    """The app in `folder`, built from the sources as they are."""
    vite = WEB_PEER / "node_modules" / ".bin" / "vite"
    if not vite.exists():
        pytest.fail("web_peer/node_modules is not there: run `make setup`, or set SHOAL_TEST_BROWSERS=none")
    command = [str(vite), "build", "--outDir", str(folder), "--emptyOutDir", "--logLevel", "error"]
    subprocess.run(command, cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app, built from the sources as they are."""
    return built(tmp_path_factory.mktemp("app"))


class Driver:
    """The Node process: `await driver.call("launch", ...)`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    async def call(self, op: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n")
        return await future

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), soon(20))
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"])
            if future.done():
                continue
            if "error" in answer:
                future.set_exception(RuntimeError(answer["error"]))
            else:
                future.set_result(answer["result"])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeError("the browser driver ended"))


@asynccontextmanager
async def driving() -> AsyncIterator[Driver]:
    """The Node process that drives browsers, until the block ends."""
    node = shutil.which("node")
    if node is None:
        pytest.fail(
            "Node is not installed, so browsers were NOT tested: install it, or set SHOAL_TEST_BROWSERS=none"
        )
    process = await asyncio.create_subprocess_exec(
        node,
        str(WEB_PEER / "tests" / "e2e" / "driver.js"),
        cwd=WEB_PEER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
    )
    made = Driver(process)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async with driving() as made:
        yield made


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


class Browser:
    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.number = number

    async def tab(self, server: str, **how: Any) -> TabInBrowser:
        """A new tab; `how`: width, height, and `early`, an expression evaluated before the page's scripts."""
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


@dataclass(frozen=True, slots=True)
class Models:
    store: Store
    ids: dict[WeightFormat, str]


@pytest.fixture(scope="session")
def models(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder)
    source = open_gguf(smollm2_gguf, "smollm2-135m")
    formats: tuple[WeightFormat, ...] = ("8bit", "f32")
    yield Models(store, {weights: build_model(source, weights, store) for weights in formats})
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.fixture(scope="session")
def two_blocks(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The first two blocks of the real model, float32: it computes nonsense, everywhere the same, and soon."""
    store = Store(tmp_path_factory.mktemp("two-blocks"))
    source = Cut(open_gguf(smollm2_gguf, "smollm2-135m"), 2)
    return Models(store, {"f32": build_model(source, "f32", store)})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    """A store with a model that every browser and process loads at once, and its id; float32: the same everywhere."""
    home = tmp_path_factory.mktemp("tiny")
    store = Store(home / "store")
    return store, build_model(open_gguf(TinyModel().write_gguf(home / "tiny.gguf"), "tiny"), "f32", store)


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
) -> AsyncIterator[Mesh]:
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
