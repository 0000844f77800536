"""A mesh on one machine, for demos, benchmarks and tests: peers in processes of their own, and the memory they lend."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from peer.launch.terminal import Interrupts
from planner.model.manifest import Manifest

QUESTION = "What is the capital of France? Tell me about it in a paragraph."
SESSIONS = 4
STOP_WITHIN_S = 10.0


def even_cuts(units: int, peers: int) -> tuple[int, ...]:
    """Borders that give each of `peers` about the same number of units."""
    return tuple(units * place // peers for place in range(1, peers))


def needed_bytes(manifest: Manifest, context: int, sessions: int = SESSIONS) -> int:
    """What all peers together need beside their own overhead."""
    units = manifest.planner_units()
    return sum(unit.weight_bytes + unit.kv_bytes(context) * sessions for unit in units)


def pledge(needed: int, overhead: int, peers: int) -> int:
    """What each of `peers` lends so that all of them are needed: midway between the needs of N and of N - 1 peers."""
    return overhead + (needed // peers + needed // max(1, peers - 1)) // 2


@asynccontextmanager
async def joined(
    args: argparse.Namespace, link: str, name: str, memory: int, ctrl: Interrupts | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A peer in a process of its own, with a key that nobody keeps, which leaves politely at the end."""
    command = [sys.executable, "-m", "peer.cli.main", "join", "-", "--name", name, "--memory", str(memory)]
    command += ["--threads", str(args.threads), "--transport", args.transport, "--bind", "127.0.0.1"]
    state = tempfile.TemporaryDirectory(prefix="shoal-peer-")
    command += ["--store", str(args.store), "--state", state.name, "--quiet", "--until-stdin-closes"]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )

    def kill() -> None:
        with suppress(ProcessLookupError):
            process.kill()

    if ctrl is not None:
        ctrl.last_words += [kill, state.cleanup]
    try:
        assert process.stdin is not None
        process.stdin.write(link.encode() + b"\n")  # and left open: its end is this program's
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await process.wait()
        except TimeoutError:
            kill()
            await process.wait()
        state.cleanup()
