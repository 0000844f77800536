"""`shoal demo`: a mesh of three peers on this machine, tabs of browsers among them if asked, answers a question, then
takes yours.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from peer.cli.chat import converse, drawn_seed, stream, summary
from peer.cli.serve_join import follow, protection
from peer.cli.status_plan import holders
from peer.cli.tabs import numbered
from peer.errors import CannotServe, NoPlan
from peer.launch.browsers import TabOptions, check_app, open_tab
from peer.launch.local_mesh import QUESTION, SESSIONS, even_cuts, joined, room, unit_bytes
from peer.launch.model_import import find_or_import
from peer.launch.terminal import Interrupts, interrupts, out, say, write
from peer.member.byte_sizes import bytes_text
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import INTERRUPTED, MeshOptions, PeerOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Settings
from peer.session.sampling import GREEDY, AskedSampling, sampling_for
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.app_files import built_app, no_app
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

CONTEXT = 2048
ANSWER_TOKENS = 120
SERVE_WITHIN_S = 120.0
TAB_BYTES = 1_500_000_000  # as much as a page lends at most


def demo(args: argparse.Namespace) -> int:
    """Serve, two joined peers in processes of their own, one question; then questions of a person unless --once."""
    check_app(args.browsers)
    store = Store(args.store)
    model_id = find_or_import(
        store, args.model, args.weights
    )  # before there is a loop: Ctrl-C ends it at once
    return asyncio.run(_demo(args, store, model_id))


async def _demo(args: argparse.Namespace, store: Store, model_id: str) -> int:
    manifest = decode_manifest(store.manifest_bytes(model_id))
    context = min(CONTEXT, manifest.context)
    async with AsyncExitStack() as stack:
        ctrl = stack.enter_context(interrupts())
        with ctrl.cancelling():
            sizes = unit_bytes(manifest, context)
            peers = max(args.peers, 1 + len(args.browsers))
            # A tab needs more memory for the same units: even shares make sure that each has a part to show.
            cuts = even_cuts(sizes, peers) if args.browsers else None
            share = room(sizes, peers, cuts)
            say(
                f"{manifest.name} needs {bytes_text(sum(sizes))} for weights and the memory of {SESSIONS} "
                f"conversations; {peers} peers share it"
            )
            options = PeerOptions(
                *("founder", share.bytes, args.threads, "cpu", args.transport, ("127.0.0.1",)),
                beside_program=share.beside_program,
            )
            say("measuring this machine")
            promise = Founding(
                model_id,
                MeshOptions(context, SESSIONS, "latency", cuts, protection(args)),
                ServerOptions(port=args.port, web_app=built_app()),
            )
            key = identity_from_seed(os.urandom(SEED_BYTES))
            mesh = await stack.enter_async_context(found(promise, options, store, key))
            assert mesh.link is not None
            link = mesh.link.url()
            processes = [
                await stack.enter_async_context(joined(args, link, f"peer {number}", share, ctrl))
                for number in range(1, peers - len(args.browsers))
            ]
            waited = [f"peer {number}" for number in range(1, len(processes) + 1)]
            for browser, label in zip(args.browsers, numbered(args.browsers), strict=True):
                wishes = TabOptions(args.headless, TAB_BYTES, label)
                tab = await stack.enter_async_context(open_tab(browser, link, wishes))
                processes.append(tab.process)
                waited.append(label)
            if processes:
                others = " and ".join(waited) if len(waited) < 3 else "the others"
                say(f"the founder waits for {others}, each in a process of its own")
            await _serving(mesh, processes, waited)
            out.print(holders(mesh))
            out.print(QUESTION, style="bold")
        stopped = await _first_answer(mesh, ctrl)
        if ctrl.asked.is_set() or (args.once and stopped):
            return INTERRUPTED
        if args.once:
            return 0
        out.print(f"\nothers join with:  {link}", markup=False)
        if built_app() is None:
            say(no_app())
        say("ask something; Ctrl-C stops an answer, at the prompt it ends the demo")
        follow(mesh, say, from_now=True)
        drawn = sampling_for(mesh.model.sampling_defaults, AskedSampling(), drawn_seed())
        await converse(mesh, mesh.conversation(), Settings(drawn), "", ctrl)
    return 0


async def _serving(
    mesh: MeshMember, processes: Sequence[asyncio.subprocess.Process], names: Sequence[str]
) -> None:
    """Waits for the plan. Raises NoPlan, or CannotServe as soon as a joined peer gives up or this one does."""
    waits = [asyncio.ensure_future(process.wait()) for process in processes]
    ended = asyncio.ensure_future(mesh.ended.wait())
    ready = asyncio.ensure_future(mesh.until_serving(SERVE_WITHIN_S))
    tasks: list[asyncio.Task[Any]] = [ready, ended, *waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if mesh.ended.is_set():
            raise CannotServe(mesh.why_ended)
        if ready.done():
            ready.result()
        else:
            gone = " and ".join(name for name, wait in zip(names, waits, strict=True) if wait.done())
            raise NoPlan(
                f"{gone} ended before the model was served: a peer says why above, a browser without a screen "
                "needs --headless"
            )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_answer(mesh: MeshMember, ctrl: Interrupts) -> bool:
    """Asks the question; whether a person stopped the answer."""
    conversation = mesh.conversation()
    greedy = Settings(GREEDY, ANSWER_TOKENS)  # the same words on every machine
    pieces = conversation.chat([Message("user", QUESTION)], greedy)
    _, finished = await stream(conversation, pieces, ctrl, write)
    conversation.close()
    write("\n")
    say(f"[{summary(finished)}]")
    return finished.why == "cancelled"
