"""The page itself in a real browser: what a person reads while joining, asking, and when things go wrong."""

from __future__ import annotations

from pathlib import Path

from .conftest import WITHIN_S, Driver, Models, founded, launch
from .page import SHOWN_WITHIN_S, Page

CUTS = (31,)  # two stages: the tab has to compute
MOST_BLOCKED_MS = 100  # of the page's thread while an answer streams and this tab computes
WATCH = (
    "globalThis.blockedMs = []; new PerformanceObserver((list) => list.getEntries().forEach("
    "(task) => blockedMs.push(task.duration))).observe({ type: 'longtask' })"
)
HOSTILE = "<img src=x onerror=alert(1)><script>document.title = 'owned'</script> Say hello."


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
