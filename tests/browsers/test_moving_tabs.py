"""A tab asks while the plan changes: its answer moves to the new stages, and its tokens are those of one that stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

from peer.asking import Delta, Settings
from peer.joining import join
from peer.options import PeerOptions

from .conftest import PLEDGE, WITHIN_S, Driver, Models, founded, launch

PROMPT = "A long walk through the old town begins at"
CONTEXT = 2048
MOST = 2000
MORE = 8  # tokens on each way
CUTS = ((31,), (21,), (31,))


async def test_a_tabs_running_answer_moves_and_moves_back(
    driver: Driver, harness: Path, models: Models, tmp_path: Path
) -> None:
    second = PeerOptions("second", PLEDGE, 1, "cpu", "aiortc", ("127.0.0.1",))
    async with founded(models, harness, cuts=CUTS[0], context=CONTEXT) as mesh:
        assert mesh.link is not None
        async with join(mesh.link.url(), second, models.store, compute=True):
            await mesh.until_serving(WITHIN_S)
            made = await launch(driver, "chromium", tmp_path / "profile")
            tab = await made.tab(mesh.link.server)
            status = await tab.join(mesh.link.url(), lends=False)
            assert status["state"] == "in", status
            answer = asyncio.create_task(tab.run(f"shoal.complete({PROMPT!r}, {MOST})"))
            enough = f"(s.asked.ways.at(-1)?.tokens ?? 0) >= {MORE}"
            for move, cuts in enumerate(CUTS):
                if move:
                    mesh.set_cuts(cuts)
                    await mesh.node.until(
                        lambda state, cuts=cuts: (
                            (plan := state.serving()) is not None and plan.stages[0].stop == cuts[0]
                        ),
                        WITHIN_S,
                    )
                serving = mesh.node.state.serving()
                assert serving is not None
                await tab.until(
                    f"s.asked.tokens === {MOST} || (s.asked.ways.at(-1)?.plan >= {serving.version} && {enough})"
                )
            ways = (await tab.status())["asked"]["ways"]
            await tab.run("shoal.stop()")
            tokens = (await answer)["tokens"]
            assert len({way["plan"] for way in ways}) >= len(CUTS), ways
            # One second session at least took it over; a busy machine may have had others given up, or gone round one.
            assert ways[-1]["session"] > ways[0]["session"], ways
            assert len({way["session"][:-8] for way in ways}) == 1
            stays = mesh.conversation()
            pieces = stays.complete(PROMPT, Settings(max_tokens=len(tokens), ignore_end=True))
            assert tokens == [p.token async for p in pieces if isinstance(p, Delta) and p.token >= 0]
            stays.close()
            await tab.run("shoal.leave()")
            await made.close()
