"""The page itself in a real browser: what a person reads while joining, asking, and when things go wrong."""

from __future__ import annotations

import functools
from contextlib import aclosing
from pathlib import Path

import pytest

from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Settings
from peer.state.generated.commands import PlanWished
from tests.browsers.harness import Driver, Models, founded, visit
from tests.browsers.own_words import own
from tests.browsers.page import HELPED, Page
from tests.patience import WITHIN_S

CUTS = (31,)  # two stages: the tab has to compute
MOST_BLOCKED_MS = 100  # of the page's thread while an answer streams and this tab computes
WATCH = (
    "globalThis.blockedMs = []; new PerformanceObserver((list) => list.getEntries().forEach("
    "(task) => blockedMs.push(task.duration))).observe({ type: 'longtask' })"
)
WATCH_PICTURE = (
    "globalThis.saw = { busy: false, dot: false }; setInterval(() => {"
    " saw.busy ||= document.querySelectorAll('.peer.is-busy').length === 2;"
    " saw.dot ||= document.querySelector('.dot[opacity=\"1\"]') !== null; }, 20)"
)
MOST_TOKENS = 400  # of an answer asked elsewhere: pages look around once a second
LOOK_EVERY = 5
INSTALLABLE = (
    "fetch(document.querySelector('link[rel=manifest]').href).then((found) => found.json())"
    ".then(async ({ display, icons: [icon] }) =>"
    " [display, (await fetch(icon.src)).headers.get('content-type').split(';')[0]])"
)
WATCH_KEPT = (  # the ends of what is kept for a start without the network
    "setInterval(async () => { const found = await (await caches.open('shoal-page')).keys();"
    " globalThis.kept = found.map(({ url }) => url.split('/').at(-1).split('.').at(-1)); }, 50)"
)
HOSTILE = "<img src=x onerror=alert(1)><script>document.title = 'owned'</script> Say hello."


async def test_links_that_lead_nowhere(driver: Driver, app: Path, models: Models) -> None:
    made = await visit(driver, "chromium")
    async with founded(models, app) as gone:
        assert gone.link is not None
        old = gone.link.url()
    async with founded(models, app) as mesh:
        assert mesh.link is not None
        page = first = Page(await made.tab(mesh.link.server))
        await page.until_says("One model, run together")
        assert await page.run(INSTALLABLE) == ["standalone", "image/svg+xml"]
        await page.run(WATCH_KEPT)
        await page.until("['', 'js', 'css'].every((end) => globalThis.kept?.includes(end))")
        page = Page(await made.tab(mesh.link.url()[:-3]))
        await page.until_says("This link cannot be right")
        page = Page(await made.tab(f"{mesh.link.server}/#{old.split('#')[1]}"))
        await page.until_says("This invite is not known here")
        assert await page.run("document.querySelector('.open input') !== null")
    await driver.call("reload", page=first.tab.page)  # the server is gone
    await first.until_says("One model, run together")
    await made.close()


@pytest.mark.parametrize("browser", [pytest.param("chromium", marks=pytest.mark.quick), "firefox"])
async def test_joining_asking_and_a_founder_that_leaves(
    driver: Driver, app: Path, models: Models, browser: str
) -> None:
    made = await visit(driver, browser)
    async with founded(models, app, cuts=CUTS) as mesh:
        assert mesh.link is not None
        page = Page(await made.tab(mesh.link.url(), width=1280, height=800))
        await page.until("document.querySelector('.steps')")
        await page.until("document.querySelector('.lending.is-lending')")
        await page.until_says("2 here")

        await page.ask(HOSTILE)
        await page.until("document.querySelector('.turn .foot .facts')")
        assert await page.run("document.querySelector('.question').textContent") == HOSTILE
        assert await page.run("document.title") == "Shoal"
        assert await page.run("document.querySelectorAll('.turns img, .turns script').length") == 0
        if browser == "chromium":  # the one that tells of long tasks
            await expect_never_blocked(page)

        await wish_by_keys(mesh, page)
        await page.run(WATCH_PICTURE)
        helped = await page.run(HELPED)
        await asked_until(mesh, page, "saw.busy && saw.dot")
        await page.until(f"{HELPED} > {helped}")

        await page.sized(390, 844)
        for part in ("Mesh", "My part", "Chat"):
            await page.press(part)
            assert await page.run("document.documentElement.scrollWidth <= innerWidth"), part

        second = Page(await made.tab(mesh.link.url(), width=390, height=844))
        await second.until_says("Another tab of this browser already computes")
        await second.ask("Say hello.")
        await second.until("document.querySelector('.turn .foot .facts')")
        await second.run(WATCH_PICTURE)  # it sees an answer that it neither asked for nor helps with
        await asked_until(mesh, second, "saw.busy && saw.dot")

        await driver.call("front", page=page.tab.page)  # Firefox slows the clocks of a tab behind another
        await page.press("Pause lending")
        await page.until("document.querySelector('.lending.is-paused')")
        await page.press("Resume lending")
        await page.until("document.querySelector('.lending.is-lending')")
        await page.until_says("3 here", WITHIN_S)
    await page.until_says("The server that introduces people is away", WITHIN_S)
    await page.until("document.querySelector('.coordination:not(.is-without)')")  # the tab coordinates now
    await page.press("Leave")
    await page.until("document.querySelector('.sure')")
    await page.press("Leave")
    await page.until_says("You left the mesh")
    await second.until("document.querySelector('.trouble')", WITHIN_S)  # it may have tried to take over
    await made.close()


async def expect_never_blocked(page: Page) -> None:
    """While an answer streams and this tab computes. A task during which others have the processors is longer by the
    clock; then the processor time it took itself counts.
    """
    call = functools.partial(page.tab.driver.call, page=page.tab.page)
    await page.run(WATCH)
    await call("traceTasks")
    await page.key("Alt+KeyN")
    await page.ask("Tell me in three sentences what a shoal is.")
    await page.until("document.querySelector('.turn .foot .facts')")
    longest_ms = await call("longestTask")
    blocked_ms = await page.run("Math.max(0, ...blockedMs)")
    assert min(blocked_ms, longest_ms) < MOST_BLOCKED_MS, (blocked_ms, longest_ms)


async def wish_by_keys(mesh: MeshMember, page: Page) -> None:
    """An owner chooses another strategy on the page; its goal stays."""
    await own(mesh)
    await page.key("Alt+KeyP")
    await page.until("document.querySelector('dialog[open] .wish-form')")
    await page.run("document.querySelector('[name=wish-strategy]:checked').focus()")
    await page.key("ArrowDown")
    await page.key("Tab")  # to the goal
    await page.key("Tab")
    await page.key("Enter")
    await page.until_says("The borders are fixed by hand: no plan changes now.")
    await page.until(
        "document.querySelectorAll('.wishes .tag')[0].parentElement.innerText.startsWith('layer')"
    )
    assert mesh.view.state.wish == PlanWished("layer", "latency")
    await page.key("Escape")
    await page.until("document.querySelector('dialog') === null")


async def asked_until(mesh: MeshMember, page: Page, seen: str) -> None:
    """The founder asks, and `page` has seen it before the answer ends."""
    conversation = mesh.conversation()
    settings = Settings(max_tokens=MOST_TOKENS, ignore_end=True)
    tokens = 0
    async with aclosing(conversation.complete("The sea is", settings)) as pieces:
        async for _ in pieces:
            tokens += 1
            if tokens % LOOK_EVERY == 0 and await page.run(seen):
                conversation.close()
                return
    pytest.fail(f"{seen} did not come about in {tokens} tokens; the page says: {await page.text()}")
