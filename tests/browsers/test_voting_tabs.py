"""Tabs that vote and lead: whoever is killed or closed, the mesh goes on with its log, its plan and its answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from peer.member.joining import join
from peer.member.peer_options import PeerOptions
from peer.state.plan_record import route_of
from planner.model.store import Store
from signaling.server import ServerOptions, serve
from tests.browsers.harness import Browser, Driver, TabInBrowser, launch
from tests.browsers.voter_processes import MEMORY, Watch, processes
from tests.patience import WITHIN_S


async def lend(made: Browser, server: str, link: str) -> TabInBrowser:
    tab = await made.tab(server)
    status = await tab.join(link, lends=True, memory=MEMORY)
    assert status["state"] == "in", status
    return tab


async def tried(leads: TabInBrowser, others: set[str]) -> dict[str, str]:
    """What the tab that leads finds of all the others; an answer may be over before anything of it can be checked."""
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(WITHIN_S):
            while not others <= found.keys() or "unable" in found.values():
                found = await leads.run("shoal.tries()")
    except TimeoutError:
        pytest.fail(f"{others} should have been tried: {found}")
    return found


async def test_two_processes_and_a_tab_vote_and_each_may_be_killed(
    driver: Driver, harness: Path, tiny: tuple[Store, str], tmp_path: Path
) -> None:
    store, model = tiny
    async with (
        serve(ServerOptions(web_app=harness), store) as meeting,
        processes(store.root, tmp_path) as others,
    ):
        founding = ("found", model, meeting.url, str(MEMORY))
        link = await others.start("founder", *founding)
        joining = ("join", link, "other")
        await others.start("other", *joining)
        made = await launch(driver, "chromium", tmp_path / "profile")
        tab = await lend(made, meeting.url, link)
        asks = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        async with join(link, asks, store) as mesh:
            watch = Watch(mesh)
            await watch.until(lambda: watch.whole(3), "three voters")
            before = await tab.status()
            assert before["log"]["durable"], before
            assert before["me"] in watch.voters
            expected = await watch.tokens()
            names = {member.name: peer for peer, member in watch.state.members.items()}
            for name, again in (("founder", founding), ("other", joining)):
                lost = names[name]
                await watch.say(f"before-{name}")
                await others.kill(name)
                await watch.until(lambda lost=lost: watch.led_without(lost), f"a leader without {name}")
                assert await watch.tokens() == expected
                await others.start(name, *again)
                await watch.until(lambda: watch.whole(3), f"three voters after {name}")
            await watch.say("before-the-tab")
            await made.kill()
            lost = before["me"]
            await watch.until(lambda: watch.led_without(lost), "a leader without the tab")
            assert await watch.tokens() == expected
            made = await launch(driver, "chromium", tmp_path / "profile")
            tab = await lend(made, meeting.url, link)
            await watch.until(lambda: watch.whole(3), "three voters after the tab")
            after = await tab.status()
            assert after["me"] == lost
            assert after["log"]["incarnation"] == before["log"]["incarnation"]  # it kept its log
            said = {"before-founder", "before-other", "before-the-tab"}
            assert said <= watch.state.conversations.keys()
            assert said <= set(after["log"]["conversations"])
            assert await watch.tokens() == expected
        await made.close()


async def test_tabs_alone_keep_a_mesh_and_let_people_in(
    driver: Driver, harness: Path, tiny: tuple[Store, str], tmp_path: Path
) -> None:
    """The founder only introduces; it is killed, then the tab that leads is closed; then somebody new comes."""
    store, model = tiny
    async with (
        serve(ServerOptions(web_app=harness), store) as meeting,
        processes(store.root, tmp_path) as others,
    ):
        link = await others.start("founder", "found", model, meeting.url, "0")
        opened: dict[str, tuple[Browser, TabInBrowser]] = {}
        for browser, profile in (("chromium", "one"), ("firefox", "two"), ("chromium", "three")):
            made = await launch(driver, browser, tmp_path / profile)
            tab = await lend(made, meeting.url, link)
            opened[(await tab.status())["me"]] = made, tab
        asks = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        async with join(link, asks, store) as mesh:
            watch = Watch(mesh)
            await watch.until(lambda: watch.whole(3) and len(watch.voters & opened.keys()) == 2, "voters")
            expected = await watch.tokens()
            await watch.say("before-the-founder")
            lost = mesh.view.leader
            assert lost is not None
            assert lost not in opened
            await others.kill("founder")
            await watch.until(lambda: watch.led_without(lost), "a leader without the founder")
            leader = mesh.view.leader
            assert leader in opened
            assert await watch.tokens() == expected
            await watch.until(
                lambda: watch.whole(3) and watch.voters == opened.keys(), "three tabs that vote"
            )
            plan = watch.state.serving()
            assert plan is not None
            slower = route_of(plan)[0]
            await opened[slower][1].run("shoal.slower(50)")
            await watch.until(lambda: watch.relieved(slower), "relief of a slower tab")
            assert mesh.view.leader == leader
            assert await watch.tokens() == expected
            found = await tried(opened[leader][1], watch.standing() - {leader})
            assert set(found.values()) == {"same"}
            await watch.say("before-the-tab")

            made, tab = opened.pop(leader)
            await driver.call("closePage", page=tab.page)
            await watch.until(lambda: watch.led_without(leader), "a leader without the tab")
            assert mesh.view.leader in opened
            assert await watch.tokens() == expected
            late = await launch(driver, "chromium", tmp_path / "late")
            tab = await lend(late, meeting.url, link)
            await watch.until(lambda: watch.whole(3), "three voters again")
            status = await tab.until("s.serving && s.log.leader !== ''")
            assert {"before-the-founder", "before-the-tab"} <= set(status["log"]["conversations"])
            answer = await tab.run("shoal.complete('abc', 4)")
            assert len(answer["tokens"]) == 4
            assert await watch.tokens() == expected
        for made, _ in opened.values():
            await made.close()
        await late.close()
