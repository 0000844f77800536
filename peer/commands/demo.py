"""`shoal demo`: a mesh of three peers on this machine answers a question, then takes yours."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from peer.asking import Delta, Finished, Settings
from peer.chat_template import Message
from peer.commands.asking import converse, summary
from peer.commands.members import follow
from peer.commands.models import find_or_import
from peer.commands.terminal import interrupts, out, reporting, say, write
from peer.joining import Founding, found
from peer.measure import measure_units
from peer.mesh import Mesh
from peer.options import MeshOptions, PeerOptions, bytes_text
from planner.manifest import decode_manifest
from planner.store import Store
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

QUESTION = "What is the capital of France? Tell me about it in a paragraph."
CONTEXT, SESSIONS = 2048, 4
SERVE_WITHIN_S = 120.0
STOP_WITHIN_S = 10.0


async def demo(args: argparse.Namespace) -> int:
    """Serve, two joined peers in processes of their own, one question; then questions of a person unless --once."""
    store = Store(args.store)
    model_id = await asyncio.to_thread(find_or_import, store, args.model, args.weights)
    manifest = decode_manifest(store.manifest_bytes(model_id))
    say("measuring this machine")
    times = await asyncio.to_thread(measure_units, manifest, "cpu", args.threads)
    units = manifest.planner_units()
    needed = sum(unit.weight_bytes + unit.kv_bytes_per_token * CONTEXT * SESSIONS for unit in units)
    share = pledge(needed, times.overhead_bytes, args.peers)
    say(
        f"the model needs {bytes_text(needed)} with room for {SESSIONS} answers; each of the {args.peers} peers lends "
        f"{bytes_text(share - times.overhead_bytes)} of it, so none could answer alone"
    )
    options = PeerOptions("founder", share, args.threads, "cpu", args.transport, ("127.0.0.1",))
    promise = Founding(
        model_id, MeshOptions(CONTEXT, SESSIONS, "latency", None), ServerOptions(port=args.port)
    )
    async with AsyncExitStack() as stack:
        report = stack.enter_context(reporting())
        asked = stack.enter_context(interrupts())
        key = identity_from_seed(os.urandom(SEED_BYTES))
        mesh = await stack.enter_async_context(found(promise, options, store, key, report))
        follow(mesh)
        assert mesh.link is not None
        for number in range(1, args.peers):
            await stack.enter_async_context(joined(args, mesh.link.url(), f"peer {number}", share))
        await _serving(mesh, asked)
        if not asked.is_set():
            await _first_answer(mesh, asked)
        if args.once or asked.is_set():
            return 0
        out.print(f"\nothers join with:  {mesh.link.url()}", markup=False)
        say("ask something; Ctrl-C stops an answer, Ctrl-C again ends the demo")
        await converse(mesh, Settings(), "")
    return 0


def pledge(needed: int, overhead: int, peers: int) -> int:
    """What each of `peers` lends so that all of them are needed: midway between what N and N - 1 peers would each need."""
    return overhead + (needed // peers + needed // max(1, peers - 1)) // 2


@asynccontextmanager
async def joined(
    args: argparse.Namespace, link: str, name: str, memory: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A peer in a process of its own, which leaves politely at the end."""
    command = [sys.executable, "-m", "peer.cli", "join", "-", "--name", name, "--memory", str(memory)]
    command += ["--threads", str(args.threads), "--transport", args.transport]
    command += ["--store", str(args.store), "--bind", "127.0.0.1", "--quiet"]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    process.stdin.write(link.encode() + b"\n")
    process.stdin.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _serving(mesh: Mesh, asked: asyncio.Event) -> None:
    ready = asyncio.ensure_future(mesh.until_serving(SERVE_WITHIN_S))
    stop = asyncio.ensure_future(asked.wait())
    await asyncio.wait({ready, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if ready.done():
        ready.result()
    ready.cancel()
    await asyncio.gather(ready, stop, return_exceptions=True)


async def _first_answer(mesh: Mesh, asked: asyncio.Event) -> None:
    out.print(f"\n[bold]{QUESTION}[/bold]")
    conversation = mesh.conversation()
    async for piece in conversation.chat([Message("user", QUESTION)], Settings(max_tokens=120)):
        match piece:
            case Delta(shown, _):
                write(shown)
            case Finished():
                write("\n")
                say(f"[{summary(piece)}]")
        if asked.is_set():
            break
    conversation.close()
