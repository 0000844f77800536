"""What an answer waits for that moves while a tab computes half of the model: caches are copied, or computed anew.

`python -m tests.browsers.moving GGUF [--anew] [--moves N]` prints a line for each move of one answer.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.origin.answer_stream import Conversation, Delta, Settings
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from tests.browsers.harness import PLEDGE, WEB_PEER, Models, driving, founded, launch
from tests.patience import WITHIN_S

BORDERS = ((31,), (25,))  # three blocks go to the other peer, and come back
CONTEXT = 2048
TEXT = " ".join(
    f"Item {number} of the list is a small thing that people keep in a drawer." for number in range(40)
)
TOKENS = 1300
BETWEEN = 60  # tokens between two moves
USUAL = 40  # gaps of which the median is the usual one


async def moves_of(mesh: MeshMember, talk: Conversation, count: int) -> None:
    """Prints a line for each move."""
    at: list[float] = []
    changed = served = (
        0  # tokens there were when the borders were changed, and when a plan with the new ones served
    )
    moves, left, session = 0, BETWEEN, b""
    async for piece in talk.complete(TEXT, Settings(max_tokens=TOKENS, ignore_end=True)):
        if not isinstance(piece, Delta) or piece.token < 0:
            continue
        at.append(time.perf_counter())
        plan = mesh.view.state.serving()
        if plan is None or (plan.stages[0].stop,) != BORDERS[moves % 2]:
            continue
        served = served or len(at)
        if talk.plan != plan.version:
            continue  # it is on its way
        if moves and left == BETWEEN:
            gaps = [after - before for before, after in itertools.pairwise(at[served - 2 :])]
            past = at[changed - USUAL : changed]
            usual = [after - before for before, after in itertools.pairwise(past)]
            print(
                f"moved {at[-1] - at[served - 1]:.1f} s after the plan served, {len(at)} tokens so far; longest gap "
                f"{1e3 * max(gaps):.0f} ms, usual gap {1e3 * statistics.median(usual):.0f} ms"
                f"{'' if talk.session != session else '; not by a second session'}",
                flush=True,
            )
            if moves == count:
                return
        left -= 1
        if not left:
            moves, left, changed, served, session = moves + 1, BETWEEN, len(at), 0, talk.session
            mesh.set_cuts(BORDERS[moves % 2])
    print("the answer ended")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--anew", action="store_true", help="nobody copies")
    parser.add_argument("--moves", type=int, default=4)
    args = parser.parse_args()
    build = [str(WEB_PEER / "node_modules" / ".bin" / "vite"), "build", "-c", "vite.harness.config.ts"]
    await asyncio.to_thread(subprocess.run, build, cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL)
    options = PeerOptions("process", PLEDGE, 1, "cpu", "aiortc", ("127.0.0.1",))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = Store(home / "store")
        models = Models(store, {"8bit": build_model(open_gguf(args.gguf), "8bit", store)})
        app = WEB_PEER / "build" / "harness"
        founding = founded(models, app, cuts=BORDERS[0], context=CONTEXT, memory=0)
        with driving() as driver:
            async with founding as mesh:
                assert mesh.link is not None
                made = await launch(driver, "chromium", home / "profile")
                tab = await made.tab(mesh.link.server)
                await tab.join(mesh.link.url(), lends=True, memory=2 << 30)
                async with join(mesh.link.url(), options, store, compute=True) as process:
                    if args.anew:
                        assert process.stage.transfers is not None
                        process.stage.transfers.bring = lambda _: False  # type: ignore[method-assign]
                        await tab.run("shoal.copiesNothing()")
                    await mesh.until_serving(WITHIN_S)
                    talk = mesh.conversation()
                    await moves_of(mesh, talk, args.moves)
                    talk.close()
                await made.close()


if __name__ == "__main__":
    asyncio.run(main())
