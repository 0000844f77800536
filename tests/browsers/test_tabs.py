"""Tabs of real browsers as members: asking, computing, and what they show when things go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.asking import Delta, Settings
from peer.mesh import Mesh
from .conftest import Driver, Models, founded, launch

PROMPT = "The capital of France is"
TOKENS = 24


async def tokens_of(mesh: Mesh, prompt: str, count: int) -> list[int]:
    """What Python's asker gets."""
    conversation = mesh.conversation()
    pieces = conversation.complete(prompt, Settings(max_tokens=count, ignore_end=True))
    found = [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
    conversation.close()
    return found


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_tab_asks_a_python_mesh(
    driver: Driver, harness: Path, models: Models, tmp_path: Path, browser: str
) -> None:
    async with founded(models, harness) as mesh:
        assert mesh.link is not None
        await mesh.until_serving(60)
        expected = await tokens_of(mesh, PROMPT, TOKENS)
        made = await launch(driver, browser, tmp_path / "profile")
        tab = await made.tab(mesh.link.server)
        status = await tab.join(mesh.link.url(), lends=False)
        assert status["state"] == "in", status
        answer = await tab.run(f"shoal.complete({PROMPT!r}, {TOKENS})")
        assert answer["tokens"] == expected
        await made.close()
