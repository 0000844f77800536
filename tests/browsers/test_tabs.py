"""Tabs of real browsers as members: asking, computing, and what they show when things go wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from peer.member.mesh_member import MeshMember
from tests.browsers.harness import Driver, Models, founded, launch, tokens_of, visit
from tests.patience import WITHIN_S, soon

PROMPT = "The capital of France is"
TOKENS = 24
ANSWER_TOKENS = 64
MOST_BLOCKED_S = 0.1  # of the page's thread, while it computes and shows an answer
ANSWERS = 4  # to look at: what the page itself does comes back with each, what the machine does need not
LEAVES_WITHIN_S = 5.0  # a closed tab says goodbye


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_tab_asks_a_python_mesh(driver: Driver, harness: Path, models: Models, browser: str) -> None:
    async with founded(models, harness) as mesh:
        assert mesh.link is not None
        await mesh.until_serving(WITHIN_S)
        expected = await tokens_of(mesh, PROMPT, TOKENS)
        made = await visit(driver, browser)
        tab = await made.tab(mesh.link.server)
        status = await tab.join(mesh.link.url(), lends=False)
        assert status["state"] == "in", status
        answer = await tab.run(f"shoal.complete({PROMPT!r}, {TOKENS})")
        assert answer["tokens"] == expected
        await made.close()


async def voting(mesh: MeshMember, count: int) -> None:
    """Waits until so many members vote."""
    replica = mesh.view.replica
    assert replica is not None
    async with asyncio.timeout(WITHIN_S):
        while len(replica.config.voters) != count:  # noqa: ASYNC110 - nothing tells of a change of the group
            await asyncio.sleep(0.05)


async def test_tabs_compute_what_python_computes(
    driver: Driver, harness: Path, models: Models, tmp_path: Path
) -> None:
    """A stage on a process, one on each browser; all three ask."""
    async with founded(models, harness, weights="f32", cuts=(20, 41)) as mesh:
        assert mesh.link is not None
        opened = []
        for browser in ("chromium", "firefox"):
            made = await launch(driver, browser, tmp_path / browser)
            tab = await made.tab(mesh.link.server)
            opened.append((made, tab))
            status = await tab.join(mesh.link.url(), lends=True)
            assert status["state"] == "in", status
        await mesh.until_serving(WITHIN_S)
        assert len({stage.primary for stage in mesh.view.state.plan.stages}) == 1 + len(opened)
        right = await alone(models, PROMPT, ANSWER_TOKENS)
        assert await tokens_of(mesh, PROMPT, ANSWER_TOKENS) == right
        for _, tab in opened:
            blocked: list[float] = []
            most_ms = 1000 * soon(MOST_BLOCKED_S)
            while not blocked or (blocked[-1] >= most_ms and len(blocked) < ANSWERS):
                answer = await tab.run(f"shoal.complete({PROMPT!r}, {ANSWER_TOKENS})")
                assert answer["tokens"] == right
                blocked.append((await tab.status())["longestBlockMs"])
            assert blocked[-1] < most_ms, blocked
        await voting(mesh, 3)  # two that go are most of the voters
        for left, (made, _) in enumerate(opened, 1):
            await made.close()
            rest = 1 + len(opened) - left
            gone = await mesh.view.until(
                lambda state, rest=rest: len(state.members) == rest, soon(LEAVES_WITHIN_S)
            )
            assert gone, [(member.name, member.status) for member in mesh.view.state.members.values()]
        await voting(mesh, 1)
        assert mesh.view.leader == mesh.links.me


async def test_tabs_alone_are_a_mesh(driver: Driver, harness: Path, models: Models) -> None:
    """Chromium and Firefox hold the model; the Python founder introduces and coordinates only."""
    async with founded(models, harness, weights="f32", cuts=(31,), memory=0) as mesh:
        assert mesh.link is not None
        opened = []
        for browser in ("chromium", "firefox"):
            made = await visit(driver, browser)
            opened.append(made)
            tab = await made.tab(mesh.link.server)
            status = await tab.join(mesh.link.url(), lends=True)
            assert status["state"] == "in", status
        await mesh.until_serving(WITHIN_S)
        assert len({stage.primary for stage in mesh.view.state.plan.stages} - {mesh.me}) == 2
        answer = await tab.run(f"shoal.complete({PROMPT!r}, {ANSWER_TOKENS})")
        assert answer["tokens"] == await alone(models, PROMPT, ANSWER_TOKENS)
        for made in opened:
            await made.close()


async def alone(models: Models, prompt: str, count: int) -> list[int]:
    """The answer of one Python peer."""
    if prompt not in _ALONE:
        async with founded(models, models.store.root / "nowhere", weights="f32") as mesh:
            await mesh.until_serving(WITHIN_S)
            _ALONE[prompt] = await tokens_of(mesh, prompt, count)
    return _ALONE[prompt]


_ALONE: dict[str, list[int]] = {}
