"""A tab that is hidden, frozen, offline or low on battery says so to the coordinator, and lends again afterwards.

Real Chromium: tabs go to the back of their window, the page is frozen by the browser, the network is gone for it. Only
what the battery says is made up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from peer.cli.status_plan import snapshot
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.origin.answer_stream import Delta, Settings
from peer.state.failure_domains import hazard_milli
from peer.state.plan_record import route_of
from peer.wire.generated.requests import MEASURE, MeasureRequest
from planner.model.store import Store
from tests.browsers.harness import PLEDGE, Browser, Driver, Models, TabInBrowser, founded, launch
from tests.patience import WITHIN_S

PROMPT = "The capital of France is"
TOKENS = 12
BATTERY = """
globalThis.battery = Object.assign(new EventTarget(), { level: 1, charging: true });
Object.defineProperty(Navigator.prototype, 'getBattery', { value: async () => globalThis.battery });
globalThis.setBattery = (level, charging) => {
  Object.assign(battery, { level, charging });
  battery.dispatchEvent(new Event('levelchange'));
  battery.dispatchEvent(new Event('chargingchange'));
};
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """The tab that lends, and another one of the same window."""

    browser: Browser
    tab: TabInBrowser
    other: TabInBrowser

    async def do(self, op: str, **arguments: object) -> None:
        await self.tab.driver.call(op, page=self.tab.page, **arguments)

    async def look_away(self) -> None:
        await self.other.driver.call("front", page=self.other.page)

    async def look_back(self) -> None:
        await self.do("front")

    async def freeze(self) -> None:
        await self.do("lifecycle", state="frozen")

    async def thaw(self) -> None:
        await self.do("lifecycle", state="active")
        await self.look_away()  # the browser froze it as a hidden page, but believes that it is in front
        await self.look_back()

    async def unplug(self) -> None:
        await self.do("offline", offline=True)

    async def plug_in(self) -> None:
        await self.do("offline", offline=False)

    async def run_down(self) -> None:
        await self.tab.run("setBattery(0.19, false)")

    async def charge(self) -> None:
        await self.tab.run("setBattery(0.19, true)")


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What comes over the tab and goes again; how the coordinator knows it meanwhile."""

    begins: Callable[[Machine], Awaitable[None]]
    ends: Callable[[Machine], Awaitable[None]]
    status: str
    reason: str


SURROUNDINGS = {
    "hidden": Surrounding(Machine.look_away, Machine.look_back, "draining", "the tab is hidden"),
    "battery": Surrounding(Machine.run_down, Machine.charge, "draining", "the battery is low"),
    "offline": Surrounding(Machine.unplug, Machine.plug_in, "paused", "the network is gone"),
    "frozen": Surrounding(Machine.freeze, Machine.thaw, "paused", "the browser froze the tab"),
}


async def tokens_of(mesh: MeshMember) -> list[int]:
    conversation = mesh.conversation()
    pieces = conversation.complete(PROMPT, Settings(max_tokens=TOKENS, ignore_end=True))
    found = [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
    conversation.close()
    return found


@asynccontextmanager
async def python_peer(mesh: MeshMember, store: Store) -> AsyncIterator[MeshMember]:
    """One that can hold the whole model; it leaves politely."""
    assert mesh.link is not None
    options = PeerOptions("python", PLEDGE, 1, "cpu", "aiortc", ("127.0.0.1",))
    async with join(mesh.link.url(), options, store, compute=True) as peer:
        yield peer
        await peer.leave()


async def stands(mesh: MeshMember, peer: str, status: str, reason: str = "") -> None:
    """Waits until `shoal status` shows that the coordinator knows `peer` so."""
    found: tuple[str, str] | None = None
    try:
        async with asyncio.timeout(WITHIN_S):
            while found != (status, reason):
                shown = [one for one in (await snapshot(mesh))["members"] if one["peer"] == peer]
                found = (shown[0]["status"], shown[0]["reason"]) if shown else None
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"expected the tab as {status!r}, {reason!r}, it is {found}")


async def measures_again(mesh: MeshMember, peer: str) -> None:
    """Asks `peer` as a coordinator does whose history says too little of it; what it finds is in the log then."""
    model, before = mesh.view.state.model, mesh.view.state.members[peer].profile
    assert model is not None
    assert before is not None
    async with asyncio.timeout(WITHIN_S):
        while True:
            said = await mesh.links.call(peer, MEASURE, MeasureRequest(model.model), WITHIN_S)
            if said.measured:
                break
            assert said.busy
            await asyncio.sleep(0.1)
    now = mesh.view.state.members[peer].profile
    assert now is not None
    assert now.decode_ns.keys() == before.decode_ns.keys()
    assert now.decode_ns != before.decode_ns
    assert before.arithmetic == ""  # the harness stands for the first measurement
    assert re.fullmatch(r"wasm/simd128/wide/[0-9a-f]{16}", now.arithmetic)
    assert (now.memory_bytes, now.overhead_bytes) == (before.memory_bytes, before.overhead_bytes)


async def held_by(mesh: MeshMember, *peers: str) -> None:
    """Waits until a plan over exactly these serves."""

    def so() -> bool:
        plan = mesh.view.state.serving()
        return mesh.view.state.proposed is None and plan is not None and set(route_of(plan)) == set(peers)

    assert await mesh.view.until(lambda _: so(), WITHIN_S), mesh.view.state


def hazard_of(mesh: MeshMember, peer: str) -> int | None:
    profile = mesh.view.state.members[peer].profile
    return profile.surroundings.hazard_milli if profile is not None else None


@pytest.mark.parametrize("name", SURROUNDINGS)
async def test_a_tab_lends_less_while_it_must(
    driver: Driver, harness: Path, two_blocks: Models, tmp_path: Path, name: str
) -> None:
    surrounding = SURROUNDINGS[name]
    async with founded(two_blocks, harness, weights="f32", memory=0) as mesh:
        assert mesh.link is not None
        browser = await launch(driver, "chromium", tmp_path / "profile")
        other = await browser.tab(mesh.link.server)
        machine = Machine(browser, await browser.tab(mesh.link.server, early=BATTERY), other)
        status = await machine.tab.join(mesh.link.url(), lends=True)
        assert status["state"] == "in", status
        tab = status["me"]
        await held_by(mesh, tab)
        await stands(mesh, tab, "measured")
        right = await tokens_of(mesh)
        assert len(right) == TOKENS

        assert hazard_of(mesh, tab) == hazard_milli("tab", ())
        if name == "hidden":
            await measures_again(mesh, tab)
            assert await tokens_of(mesh) == right
        if name == "battery":
            await machine.tab.run("setBattery(0.9, false)")
            likelier = hazard_milli("tab", {"battery"})
            assert await mesh.view.until(lambda _: hazard_of(mesh, tab) == likelier, WITHIN_S)
            await held_by(mesh, tab)
        await surrounding.begins(machine)
        await stands(mesh, tab, surrounding.status, surrounding.reason)
        if surrounding.status == "draining":  # a mesh is never left without its only peer
            await held_by(mesh, tab)
            assert await tokens_of(mesh) == right
        else:
            assert mesh.view.state.serving() is None

        async with python_peer(mesh, two_blocks.store) as python:
            await held_by(mesh, python.me)
            if surrounding.status == "draining":
                await machine.tab.until("s.runs.length === 0 && s.lending === 'paused'")
            assert await tokens_of(mesh) == right
            await surrounding.ends(machine)
            await stands(mesh, tab, "measured")
            relayed = {
                link.relayed for link in mesh.view.state.links
            }  # those of a paused tab are measured again
            assert relayed == {False} if surrounding.status == "draining" else relayed <= {False}
        await held_by(mesh, tab)
        assert await tokens_of(mesh) == right
        await browser.close()
