"""A tab that computes on its GPU loses it: it goes on with WebAssembly, says so, and answers come out right.

Real Chromium with an adapter of software; its GPU process dies, as by a fault in a driver.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.origin.answer_stream import Delta, Settings
from peer.state.generated.commands import Member
from tests.browsers.harness import PLEDGE, Browser, Driver, Models, TabInBrowser, founded, launch
from tests.browsers.numerics import SOFTWARE_GPU
from tests.patience import WITHIN_S

PROMPT = "The capital of France is"
TOKENS = 8  # a GPU of software makes one or two in a second
SOON = 2  # tokens of an answer before the GPU goes
ON_GPU = (
    "globalThis.measuredAs = { provider: 'webgpu', unitNs: 1000 }"  # said to be so fast that plans prefer it
)


async def answer(mesh: MeshMember, count: int, crash: Browser | None = None) -> list[int]:
    """Tokens that the Python founder gets; the GPU process of `crash` dies while they come."""
    conversation = mesh.conversation()
    found: list[int] = []
    async for piece in conversation.complete(PROMPT, Settings(max_tokens=count, ignore_end=True)):
        if isinstance(piece, Delta) and piece.token >= 0:
            found.append(piece.token)
            if len(found) == SOON and crash is not None:
                await crash.driver.call("crashGpu", browser=crash.number)
    conversation.close()
    return found


async def on_gpu(driver: Driver, mesh: MeshMember, profile: Path) -> tuple[Browser, TabInBrowser, str]:
    """A tab that lends, and serves on WebGPU."""
    assert mesh.link is not None
    browser = await launch(driver, "chromium", profile, SOFTWARE_GPU)
    tab = await browser.tab(mesh.link.server, early=ON_GPU)
    status = await tab.join(mesh.link.url(), lends=True)
    assert status["state"] == "in", status
    await mesh.until_serving(WITHIN_S)
    assert (await tab.status())["provider"] == "webgpu"
    return browser, tab, status["me"]


def member(mesh: MeshMember, peer: str) -> Member:
    return mesh.view.state.members[peer]


async def falls_back(mesh: MeshMember, tab: TabInBrowser, me: str, before: Member) -> None:
    """Waits until the coordinator has the new profile, and a plan that serves."""

    def changed() -> bool:
        now = member(mesh, me)
        return now.status == "measured" and now.profile is not None and now.profile.provider == "wasm"

    assert await mesh.view.until(lambda _: changed(), WITHIN_S), member(mesh, me)
    old, new = before.profile, member(mesh, me).profile
    assert old is not None
    assert new is not None
    assert new.decode_ns != old.decode_ns
    assert new.prefill_ns != old.prefill_ns
    assert new.overhead_bytes != old.overhead_bytes
    assert new.memory_bytes == old.memory_bytes
    await mesh.until_serving(WITHIN_S)
    status = await tab.status()
    assert status["provider"] == "wasm"
    assert any("the GPU device is gone" in notice for notice in status["notices"]), status["notices"]


@pytest.mark.soak
async def test_the_next_answer_of_a_tab_that_lost_its_gpu_comes_out_right(
    driver: Driver, harness: Path, two_blocks: Models, tmp_path: Path
) -> None:
    """The tab holds the whole model and nobody else can: it comes back with WebAssembly."""
    async with founded(two_blocks, harness, weights="f32") as alone:
        right = await answer(alone, TOKENS)
    async with founded(two_blocks, harness, weights="f32", memory=0) as mesh:
        browser, tab, me = await on_gpu(driver, mesh, tmp_path / "profile")
        before, version = member(mesh, me), mesh.view.state.last_version
        assert await answer(mesh, SOON) == right[:SOON]
        await driver.call("crashGpu", browser=browser.number)
        assert await mesh.view.until(lambda state: state.members[me].status == "paused", WITHIN_S)
        assert "GPU" in member(mesh, me).reason
        assert mesh.view.state.serving() is None
        await falls_back(mesh, tab, me, before)
        assert mesh.view.state.last_version > version
        assert await answer(mesh, TOKENS) == right
        await browser.close()


def stands_by(mesh: MeshMember, primary: str, standby: str) -> bool:
    """Whether the plan that serves is all of `primary`, and `standby` holds the same."""
    plan = mesh.view.state.serving()
    if plan is None or [(stage.primary, stage.standbys) for stage in plan.stages] != [(primary, (standby,))]:
        return False
    return (plan.stages[0].first, plan.stages[0].stop) in member(mesh, standby).held


async def test_a_running_answer_survives_the_gpu_where_others_hold_the_model(
    driver: Driver, harness: Path, two_blocks: Models, tmp_path: Path
) -> None:
    """Another peer holds the units, too: the answer goes on there; the tab comes back with WebAssembly."""
    async with founded(two_blocks, harness, weights="f32") as alone:
        right = await answer(alone, TOKENS)
    async with founded(two_blocks, harness, weights="f32", memory=0) as mesh, AsyncExitStack() as stack:
        assert mesh.link is not None
        browser, tab, me = await on_gpu(driver, mesh, tmp_path / "profile")
        before = member(mesh, me)
        options = PeerOptions("python", PLEDGE, 1, "cpu", "aiortc", ("127.0.0.1",))
        python = await stack.enter_async_context(
            join(mesh.link.url(), options, two_blocks.store, compute=True)
        )
        other = python.me
        assert await mesh.view.until(lambda _: stands_by(mesh, me, other), WITHIN_S), mesh.view.state.plan
        assert await answer(mesh, TOKENS, browser) == right
        await falls_back(mesh, tab, me, before)
        assert await answer(mesh, TOKENS) == right
        await browser.close()
