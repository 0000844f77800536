"""The page itself in a real browser: what a person reads while joining, asking, and when things go wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import WEB_PEER, WITHIN_S, Driver, Models, TabInBrowser, founded, launch

CUTS = (31,)  # two stages: the tab has to compute
MOST_BLOCKED_MS = 100  # of the page's thread while an answer streams and this tab computes
SHOWN_WITHIN_S = 10.0  # a state that a person waits for
WATCH = (
    "globalThis.blockedMs = []; new PerformanceObserver((list) => list.getEntries().forEach("
    "(task) => blockedMs.push(task.duration))).observe({ type: 'longtask' })"
)
HOSTILE = "<img src=x onerror=alert(1)><script>document.title = 'owned'</script> Say hello."


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app, built from the sources as they are."""
    vite = WEB_PEER / "node_modules" / ".bin" / "vite"
    if not vite.exists():
        pytest.fail("web_peer/node_modules is not there: run `make setup`, or set SHOAL_TEST_BROWSERS=none")
    folder = tmp_path_factory.mktemp("app")
    command = [str(vite), "build", "--outDir", str(folder), "--emptyOutDir", "--logLevel", "error"]
    subprocess.run(command, cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL)
    return folder


class Page:
    """One tab with the page, as a person sees it."""

    def __init__(self, tab: TabInBrowser) -> None:
        self.tab = tab

    async def run(self, expression: str) -> Any:
        return await self.tab.run(expression)

    async def text(self) -> str:
        shown: str = await self.run("document.body.innerText")
        return shown

    async def until(self, what: str, within_s: float = WITHIN_S) -> None:
        """Waits until the expression `what` is true."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if await self.run(f"Boolean({what})"):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"{what} did not come about within {within_s} s; the page says: {await self.text()}")

    async def until_says(self, words: str, within_s: float = SHOWN_WITHIN_S) -> None:
        await self.until(f"document.body.innerText.includes({json.dumps(words)})", within_s)

    async def ask(self, question: str) -> None:
        """Types into the field and presses Enter."""
        await self.until("document.querySelector('.composer textarea')")
        await self.run(
            "(() => { const field = document.querySelector('.composer textarea'); field.focus();"
            f"document.execCommand('insertText', false, {json.dumps(question)}); }})()"
        )
        await self.until("!document.querySelector('button[type=submit]').disabled")
        await self.run(
            "document.querySelector('.composer textarea').dispatchEvent("
            "new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }))"
        )

    async def press(self, label: str) -> None:
        await self.run(
            "[...document.querySelectorAll('button')]"
            f".find((button) => button.innerText.trim() === {json.dumps(label)}).click()"
        )


async def test_links_that_lead_nowhere(driver: Driver, app: Path, models: Models, tmp_path: Path) -> None:
    made = await launch(driver, "chromium", tmp_path / "profile")
    async with founded(models, app) as gone:
        assert gone.link is not None
        old = gone.link.url()
    async with founded(models, app) as mesh:
        assert mesh.link is not None
        page = Page(await made.tab(mesh.link.server))
        await page.until_says("One model, run together")
        page = Page(await made.tab(mesh.link.url()[:-3]))
        await page.until_says("This link cannot be right")
        page = Page(await made.tab(f"{mesh.link.server}/#{old.split('#')[1]}"))
        await page.until_says("This invite is not known here")
        assert await page.run("document.querySelector('.open input') !== null")
    await made.close()


async def test_joining_asking_and_the_end_of_the_mesh(
    driver: Driver, app: Path, models: Models, tmp_path: Path
) -> None:
    made = await launch(driver, "chromium", tmp_path / "profile")
    async with founded(models, app, cuts=CUTS) as mesh:
        assert mesh.link is not None
        page = Page(await made.tab(mesh.link.url()))
        await page.until("document.querySelector('.steps')", SHOWN_WITHIN_S)
        await page.until("document.querySelector('.lending.is-lending')")
        await page.until_says("2 here")

        await page.run(WATCH)
        await page.ask(HOSTILE)
        await page.until("document.querySelector('.turn .foot .facts')")
        blocked = await page.run("Math.max(0, ...blockedMs)")
        assert blocked < MOST_BLOCKED_MS
        assert await page.run("document.querySelector('.question').textContent") == HOSTILE
        assert await page.run("document.title") == "Shoal"
        assert await page.run("document.querySelectorAll('.turns img, .turns script').length") == 0

        second = Page(await made.tab(mesh.link.url()))
        await second.until_says("Another tab of this browser already computes")
        await second.ask("Say hello.")
        await second.until("document.querySelector('.turn .foot .facts')")

        await page.press("Pause lending")
        await page.until("document.querySelector('.lending.is-paused')")
        await page.press("Lend again")
        await page.until("document.querySelector('.lending.is-lending')")
        await page.until_says("3 here", WITHIN_S)
    await page.until_says("The mesh has ended")
    await second.until("document.querySelector('.trouble')", SHOWN_WITHIN_S)  # it may have tried to take over
    await made.close()
