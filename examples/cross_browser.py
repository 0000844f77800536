"""A mesh of this program and a tab in each of two browsers: which browser holds what, an answer, each peer's figures.

    python examples/cross_browser.py MODEL_ID [chromium,firefox]

MODEL_ID is what `shoal import smollm2-135m` prints; the browsers are those installed here, opened without windows.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack

from peer.errors import PeerError
from peer.launch.browsers import TabOptions, open_tab
from peer.launch.defaults import cache_folder
from peer.launch.streams import take_any_text
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Finished, Settings
from planner.errors import PlannerError
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.app_files import built_app, no_app
from signaling.errors import SignalingError
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions

QUESTION = "Why is the sky blue?"
LENT_BYTES = 1_500_000_000


async def run(model_id: str, browsers: list[str]) -> None:
    """Founds a mesh, opens the tabs, asks once, closes everything."""
    store = Store(cache_folder())
    units = len(decode_manifest(store.manifest_bytes(model_id)).units)
    peers = 1 + len(browsers)
    cuts = tuple(units * place // peers for place in range(1, peers))  # a part for each
    founding = Founding(model_id, MeshOptions(1024, 2, "latency", cuts), ServerOptions(web_app=built_app()))
    options = PeerOptions("Python", LENT_BYTES, 1, "cpu", "auto", ("127.0.0.1",))
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(
            found(founding, options, store, identity_from_seed(os.urandom(32)))
        )
        assert mesh.link is not None
        for browser in browsers:
            wishes = TabOptions(headless=True, memory_bytes=LENT_BYTES, name=browser.capitalize())
            await stack.enter_async_context(open_tab(browser, mesh.link.url(), wishes))
        await mesh.until_serving(120)
        show_plan(mesh)
        await answer(mesh)
        await show_figures(mesh)


def show_plan(mesh: MeshMember) -> None:
    state = mesh.view.state
    plan = state.serving()
    assert plan is not None
    for stage in plan.stages:
        member = state.members[stage.primary]
        provider = member.profile.provider if member.profile is not None else "?"
        print(f"{member.name:10} holds units {stage.first}-{stage.stop - 1} on {provider}")


async def answer(mesh: MeshMember) -> None:
    conversation = mesh.conversation()
    print(f"\n{QUESTION}")
    async for piece in conversation.chat([Message("user", QUESTION)], Settings(max_tokens=60)):
        match piece:
            case Delta(text):
                print(text, end="", flush=True)
            case Finished() as end:
                print(f"\n[{end.tokens} tokens, {end.tokens_per_s:.1f} a second]\n")
    conversation.close()


async def show_figures(mesh: MeshMember) -> None:
    for report in sorted((await mesh.status()).values(), key=lambda report: str(report["name"])):
        millis = sorted(rtt / 1000 for rtt in report["rtt_us"].values())
        held = (report["weight_bytes"] + report["kv_bytes"]) / 1e6
        print(
            f"{report['name']:10} {report['steps']:5} steps  {held:6.0f} MB  "
            f"round trips {', '.join(f'{rtt:.1f}' for rtt in millis)} ms  {report['agent']}"
        )


def main() -> int:
    """Exit status 1 and one line when something is missing."""
    take_any_text()
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    browsers = (sys.argv[2] if len(sys.argv) == 3 else "chromium,firefox").split(",")
    if built_app() is None:
        print(no_app(), file=sys.stderr)
        return 1
    try:
        asyncio.run(run(sys.argv[1], browsers))
    except (PeerError, PlannerError, SignalingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
