"""What a tab occupies, against what its plan says: private memory of the browser process that runs it (Linux).

`python -m tests.browsers.memory GGUF` prints the table of docs/benchmarks.md. No developer tools are attached: they
keep a copy of everything that a page fetches.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peer.launch.browsers import TabOptions, open_tab
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.origin.answer_stream import Delta, Settings
from peer.state.generated.commands import PlanStage
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from planner.types import WeightFormat
from signaling.app_files import built_app
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.patience import WITHIN_S

LOOK_S: Final = 0.05
PROMPT: Final = "The capital of France is "
LONG: Final = 60  # times the prompt, 300 tokens: the cache of all sessions grows to its full length
ROWS: Final = 4
TOKENS: Final = 12
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Occupied:
    """Bytes: of the plan's stage, and of the tab at its fullest until it served, and while it computed."""

    planned: int
    loading: int
    computing: int


def processes(root: int) -> Iterator[int]:
    """`root` and what it started, and what that started."""
    yield root
    try:
        for task in Path(f"/proc/{root}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from processes(int(child))
    except OSError:
        return  # it ended


def private_bytes(pid: int) -> int:
    """What would be free if the process ended; 0 when it has."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def tab_bytes(browser: int) -> int:
    """Of the process that runs the page, the largest of those that run pages."""
    return max((private_bytes(pid) for pid in processes(browser) if _runs_pages(pid)), default=0)


def _runs_pages(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"--type=renderer" in command or (b"-contentproc" in command and command.endswith(b"tab\0"))


class Watch:
    """The largest value of `tab_bytes` since `most` was set to 0."""

    def __init__(self, browser: int) -> None:
        self.most = 0
        self._browser = browser

    async def run(self) -> None:
        while True:
            self.most = max(self.most, await asyncio.to_thread(tab_bytes, self._browser))
            await asyncio.sleep(LOOK_S)


async def occupied(
    store: Store, model: str, app: Path, browser: str, *, cuts: tuple[int, ...], founder: int, pledge: int
) -> Occupied:
    """A tab that pledged `pledge` loads its part of the model and answers ROWS questions at once, one of them long."""
    async with AsyncExitStack() as stack:
        promise = Founding(model, MeshOptions(512, ROWS, "latency", cuts), ServerOptions(web_app=app))
        options = PeerOptions("founder", founder, 1, "cpu", "auto", ("127.0.0.1",))
        mesh = await stack.enter_async_context(
            found(promise, options, store, identity_from_seed(os.urandom(32)))
        )
        assert mesh.link is not None
        wishes = TabOptions(headless=True, memory_bytes=pledge, name="tab")
        tab = await stack.enter_async_context(open_tab(browser, mesh.link.url(), wishes))
        joined = await mesh.view.until(lambda state: len(state.members) == 2, WITHIN_S)
        assert joined, f"the tab did not join; the browser's status is {tab.process.returncode}"
        watch = Watch(tab.process.pid)  # from here on: the page loads no weights before
        looking = asyncio.create_task(watch.run())
        served = await mesh.view.until(lambda state: state.serving() is not None, WITHIN_S)
        assert served, [
            (member.name, member.status, member.held) for member in mesh.view.state.members.values()
        ]
        stage = _stage_of_tab(mesh)
        loading, watch.most = watch.most, 0
        await asyncio.gather(_answer(mesh, LONG), *(_answer(mesh, 1) for _ in range(ROWS - 1)))
        looking.cancel()
        return Occupied(stage.weight_bytes + stage.kv_bytes + stage.overhead_bytes, loading, watch.most)


def _stage_of_tab(mesh: MeshMember) -> PlanStage:
    plan = mesh.view.state.plan
    assert plan is not None
    return next(stage for stage in plan.stages if stage.primary != mesh.me)


async def _answer(mesh: MeshMember, times: int) -> None:
    conversation = mesh.conversation()
    pieces = conversation.complete(PROMPT * times, Settings(max_tokens=TOKENS, ignore_end=True))
    assert [piece async for piece in pieces if isinstance(piece, Delta)]
    conversation.close()


async def table(gguf: Path) -> None:
    cases: tuple[tuple[str, WeightFormat, tuple[int, ...], int], ...] = (
        ("chromium", "8bit", (), 0),
        ("chromium", "4bit", (), 0),
        ("chromium", "f32", (), 0),
        ("chromium", "8bit", (31,), 4 << 30),
        ("chromium", "8bit", (51,), 4 << 30),
        ("firefox", "8bit", (), 0),
    )
    app = built_app()
    if app is None:
        raise SystemExit("no built page: run `make setup`")
    print(
        "| browser | weights | cut | plan, MiB | loading | computing |\n| --- | --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as folder:
        store, source = Store(Path(folder)), open_gguf(gguf, "smollm2-135m")
        for browser, weights, cuts, founder in cases:
            model = build_model(source, weights, store)
            seen = await occupied(store, model, app, browser, cuts=cuts, founder=founder, pledge=1500 * MIB)
            sizes = [round(size / MIB) for size in (seen.planned, seen.loading, seen.computing)]
            cut = ", ".join(map(str, cuts)) or "whole"
            print(f"| {browser} | {weights} | {cut} | {sizes[0]} | {sizes[1]} | {sizes[2]} |", flush=True)


if __name__ == "__main__":
    asyncio.run(table(Path(sys.argv[1])))
