"""Two of three voters are gone for good: the page of the third says so, warns, and goes on without them."""

from __future__ import annotations

from pathlib import Path

from peer.member.joining import join
from peer.member.peer_options import PeerOptions
from planner.model.store import Store
from signaling.server import ServerOptions, serve
from tests.browsers.harness import Driver, visit
from tests.browsers.page import Page
from tests.browsers.voter_processes import MEMORY, Watch, processes
from tests.patience import WITHIN_S

SAID = "before-the-loss"
RECOVERED = "Epoch 2 of the mesh begins here"


async def test_the_page_goes_on_without_a_lost_majority(
    driver: Driver, app: Path, tiny: tuple[Store, str], tmp_path: Path
) -> None:
    store, model = tiny
    made = await visit(driver, "chromium")
    async with serve(ServerOptions(web_app=app), store) as meeting, processes(store.root, tmp_path) as others:
        link = await others.start("founder", "found", model, meeting.url, str(MEMORY))
        await others.start("other", "join", link, "other")
        page = Page(await made.tab(link, width=1280, height=800))
        asks = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        async with join(link, asks, store) as mesh:
            watch = Watch(mesh)
            await watch.until(lambda: watch.whole(3), "three voters")
            await watch.say(SAID)
        await page.until_says(SAID, WITHIN_S)
        for name in list(others.running):
            await others.kill(name)

        await page.until_says("1 of 3 voters are here, 2 are needed", WITHIN_S)
        await page.until_says("If they are gone for good, this tab can go on without them", WITHIN_S)
        await page.press("Go on without them")
        await page.until_says("Do this only when they never come back")
        assert RECOVERED not in await page.text()  # it asks first
        await page.press("Yes, go on without them")
        await page.until_says(RECOVERED, WITHIN_S)
        await page.until("document.querySelector('.coordination:not(.is-without)')")
        await page.until_says(SAID, WITHIN_S)  # what this tab knew is kept
        assert "voters are here" not in await page.text()

        await others.start("other", "join", link, "other")  # who comes back takes over what is here
        await page.until("document.querySelector('.pill.is-ready')")
        await page.until_says("2 here", WITHIN_S)
        await page.until_says(SAID, WITHIN_S)
    await made.close()
