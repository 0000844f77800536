"""A mesh on one machine, for demos, benchmarks and tests: peers in processes of their own, and the memory they lend."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import accumulate, pairwise

from peer.launch.terminal import Interrupts
from peer.member.peer_options import Lent
from planner.cost import evaluator
from planner.model.manifest import Manifest
from planner.types import PlanRequest

QUESTION = "What is the capital of France? Tell me about it in a paragraph."
SESSIONS = 4
STOP_WITHIN_S = 10.0


def unit_bytes(manifest: Manifest, context: int, sessions: int = SESSIONS) -> list[int]:
    """What each unit needs on its peer, beside the peer's own overhead, as plans count it."""
    units = manifest.planner_units()
    request = PlanRequest(units, (), (), context, sessions)
    return [sum(evaluator.unit_bytes(request, unit)) for unit in units]


def needed_bytes(manifest: Manifest, context: int, sessions: int = SESSIONS) -> int:
    """What all peers together need beside their own overhead."""
    return sum(unit_bytes(manifest, context, sessions))


def even_cuts(sizes: Sequence[int], peers: int) -> tuple[int, ...]:
    """Borders that give each of `peers` units, at least one, of about the same bytes."""
    cuts: list[int] = []
    sums = list(accumulate(sizes))
    for place in range(1, peers):
        fair = bisect_left(sums, sums[-1] * place / peers) + 1
        least, most = (cuts[-1] if cuts else 0) + 1, len(sizes) - peers + place
        cuts.append(min(max(fair, least), most))
    return tuple(cuts)


def largest_stage(sizes: Sequence[int], cuts: Sequence[int]) -> int:
    """The most bytes that a stage between two neighbouring cuts needs."""
    return max(sum(sizes[first:stop]) for first, stop in pairwise((0, *cuts, len(sizes))))


def room(sizes: Sequence[int], peers: int, cuts: Sequence[int] | None = None) -> Lent:
    """What each of `peers` lends beside what its program occupies, which only itself can measure, so that all of them
    are needed: midway between the needs of N and of N - 1 peers, but enough for the largest stage, where `cuts` say
    which there are, or of those that the same bytes for each peer give.
    """
    needed = sum(sizes)
    borders = even_cuts(sizes, min(peers, len(sizes))) if cuts is None else cuts
    largest = largest_stage(sizes, borders)
    return Lent(max((needed // peers + needed // max(1, peers - 1)) // 2, largest), beside_program=True)


@asynccontextmanager
async def joined(
    args: argparse.Namespace, link: str, name: str, memory: Lent, ctrl: Interrupts | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A peer in a process of its own, with a key that nobody keeps, which leaves politely at the end."""
    command = [sys.executable, "-m", "peer.cli.main", "join", "-", "--name", name, "--memory", memory.words]
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
