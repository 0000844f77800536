"""A founder that is killed: the page and a Python member say so within 10 s, and what can be done about it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from peer.member.joining import join
from peer.member.peer_options import PeerOptions
from tests.browsers.harness import Driver, Models, visit
from tests.browsers.page import SHOWN_WITHIN_S, Page
from tests.patience import WITHIN_S, soon


@asynccontextmanager
async def founder_process(models: Models, web_app: Path) -> AsyncIterator[tuple[int, str]]:
    """Its process id, and the link."""
    command = (str(Path(__file__).with_name("founder_process.py")), models.store.root, models.ids["8bit"])
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *map(str, (*command, web_app))),
        stdin=asyncio.subprocess.PIPE,  # its end is this process's
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN_S):
            link = (await process.stdout.readline()).decode().strip()
        yield process.pid, link
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_killed_founder_is_said_at_once_and_looked_for(
    driver: Driver, app: Path, models: Models
) -> None:
    asks = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
    async with founder_process(models, app) as (pid, link), join(link, asks, models.store) as mesh:
        made = await visit(driver, "chromium")
        page = Page(await made.tab(link))
        await page.until("document.querySelector('.pill.is-ready')")
        lost = asyncio.Event()
        mesh.leader_watch.on_away(lost.set)
        within_s = soon(SHOWN_WITHIN_S)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(within_s):
            await lost.wait()
        assert mesh.away is not None
        assert "no answer meanwhile" in str(mesh.away)
        await page.until_says("it has to come back", killed + within_s - time.monotonic())
        await page.until_says("no answer meanwhile")
        await page.until_says("not answering now")
        await page.until("document.querySelector('.coordination.is-without')")
        await page.until_says("looking for it, try 2", WITHIN_S)
        async with asyncio.timeout(WITHIN_S):
            while "try 3" not in await page.text():
                await page.press("Try now")  # which is nothing while a try is under way
                await asyncio.sleep(0.2)
        await page.press("Leave")
        await page.until("document.querySelector('.sure')")
        await page.press("Leave")  # yes, really
        await page.until_says("You left the mesh")
        await made.close()
