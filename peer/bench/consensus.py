"""`shoal bench consensus`: what a mesh of five voters costs while nothing happens, and what a long history costs.

Edge. Idle: processor time of each process, and bytes of datagrams on each link, which go through a relay that counts
them. History: messages of one conversation are proposed to a mesh that this process leads; then somebody new joins.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from peer.coordination.coordinator_service import Order
from peer.errors import CannotServe
from peer.launch.local_mesh import needed_bytes
from peer.launch.model_import import find_or_import
from peer.launch.terminal import say
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions, PeerOptions
from peer.state.generated.commands import ConversationStarted, MessageAdded
from peer.state.mesh_state import encode_state
from peer.state.protection import STANDARD
from peer.storage.peer_keys import kept_identity
from peer.validation.scenarios.figures import percentile
from peer.validation.world.child_processes import How, JoinedProcess
from peer.validation.world.mesh import ASKER, Shape
from peer.validation.world.voter_mesh import voters
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

VOTERS: Final = 5
CONTEXT: Final = 512
CALM_S: Final = 15.0  # after everybody is there, before anything is measured
TEXT: Final = (
    "What was said in message %d of this conversation, in about as many words as people take for it: "
    "a sentence or two, sometimes less and sometimes more than that."
)
UNDER_WAY: Final = 64  # messages that are not committed yet
WITHIN_S: Final = 120.0
CONVERSATION: Final = "bench"


def bench_consensus(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name."""
    store = Store(args.store)
    model_id = find_or_import(store, args.model, "8bit")
    return asyncio.run(_bench(store, model_id, args.seconds, args.messages))


async def _bench(store: Store, model_id: str, seconds: float, messages: int) -> dict[str, Any]:
    idle = await _idle(_shape(store, model_id), store, seconds) if seconds else {}
    return {**idle, **(await _history(_shape(store, model_id), store, messages) if messages else {})}


def _shape(store: Store, model_id: str) -> Shape:
    needed = needed_bytes(decode_manifest(store.manifest_bytes(model_id)), CONTEXT)
    memory = Lent(needed, beside_program=True)
    return Shape(model_id, MeshOptions(CONTEXT, 4, "latency", None, STANDARD), VOTERS, memory, 1, "auto")


# --- idle


async def _idle(shape: Shape, store: Store, seconds: float) -> dict[str, Any]:
    say(f"starting {VOTERS} voters")
    async with voters(shape, store, relayed=True, seed=1, protection=(), last_words=[]) as made:
        assert made.relay is not None
        await asyncio.sleep(CALM_S)
        leader = made.placed.name
        spent = {name: _cpu_s(child.pid) for name, child in made.children.items()}
        sent, begun, load = await made.relay.sent_bytes(), time.perf_counter(), os.getloadavg()[0]
        say(f"nothing happens for {seconds:.0f} s")
        await asyncio.sleep(seconds)
        over_s = time.perf_counter() - begun
        sent_after = await made.relay.sent_bytes()
        share = {
            name: (_cpu_s(child.pid) - spent[name]) / over_s * 100 for name, child in made.children.items()
        }
        if made.placed.name != leader:
            raise CannotServe("another peer coordinates since: this machine is too busy to measure idleness")
    per_s: dict[frozenset[str], float] = {}
    for (src, dst), count in sent_after.items():
        if ASKER not in (src, dst) and src != dst:
            link = frozenset((src, dst))
            per_s[link] = per_s.get(link, 0.0) + (count - sent.get((src, dst), 0)) / over_s
    led = [rate for link, rate in per_s.items() if leader in link]
    others = [rate for link, rate in per_s.items() if leader not in link]
    return {
        "idle_seconds": round(over_s, 1),
        "idle_load": round(load, 1),
        "idle_leader_cpu_percent": round(share[leader], 2),
        "idle_follower_cpu_percent": round(median(s for name, s in share.items() if name != leader), 2),
        "idle_worst_cpu_percent": round(max(share.values()), 2),
        "idle_leader_link_bytes_per_s": round(median(led)),
        "idle_other_link_bytes_per_s": round(median(others)),
        "idle_worst_link_bytes_per_s": round(max(per_s.values())),
    }


def _cpu_s(pid: int | None) -> float:
    if pid is None:
        raise CannotServe("a voter ended by itself")
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


# --- a long history


async def _history(shape: Shape, store: Store, messages: int) -> dict[str, Any]:
    say(f"starting {VOTERS} voters, of which this process is one")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-bench-")))
        key = identity_from_seed(os.urandom(SEED_BYTES))
        own = stack.enter_context(kept_identity(folder / "founder", key.id))
        options = PeerOptions(
            *("founder", shape.memory.bytes, 1, "cpu", shape.transport, ("127.0.0.1",)),
            beside_program=shape.memory.beside_program,
        )
        promise = Founding(shape.model_id, shape.mesh, ServerOptions())
        mesh = await stack.enter_async_context(found(promise, options, store, key, kept=own))
        assert mesh.link is not None
        link = mesh.link.url()
        how = How(link, store.root, folder, shape.memory, 1, shape.transport, "")
        children = [JoinedProcess(f"peer {number}", how) for number in range(2, VOTERS + 1)]
        stack.push_async_callback(_end, children)
        await asyncio.gather(*(child.start() for child in children))
        await _until_all_vote(mesh)
        begun = time.perf_counter()
        waits_s, most_bytes = await _say(mesh, messages, folder)
        said_s = time.perf_counter() - begun
        say("somebody new joins")
        begun = time.perf_counter()
        asks = PeerOptions("new", 0, 1, "cpu", shape.transport, ("127.0.0.1",))
        async with join(link, asks, store) as new:
            joined_s = time.perf_counter() - begun
            there = len(new.view.state.conversations[CONVERSATION].messages)
        if there != messages:
            raise CannotServe(f"who joined has {there} of {messages} messages")
        replica = mesh.view.replica
        assert replica is not None
        return {
            "messages": messages,
            "message_bytes": len(TEXT % messages),
            "messages_per_s": round(messages / said_s, 1),
            "committed_p50_ms": _ms(percentile(waits_s, 0.5)),
            "committed_p95_ms": _ms(percentile(waits_s, 0.95)),
            "log_bytes_most": most_bytes,
            "log_bytes_after": max(_log_bytes(folder)),
            "state_bytes": len(encode_state(replica.state)),
            "joined_s": round(joined_s, 2),
        }


async def _end(children: list[JoinedProcess]) -> None:
    await asyncio.gather(*(child.end() for child in children))


async def _until_all_vote(mesh: MeshMember) -> None:
    def vote() -> bool:
        replica = mesh.view.replica
        return replica is not None and len(replica.config.voters) == VOTERS

    deadline = time.monotonic() + WITHIN_S
    while not (vote() and mesh.view.state.serving() is not None):
        if time.monotonic() > deadline:
            raise CannotServe(f"not all of {VOTERS} peers vote within {WITHIN_S:.0f} s")
        await asyncio.sleep(0.1)


async def _say(mesh: MeshMember, messages: int, folder: Path) -> tuple[list[float], int]:
    """Messages one below the other, some under way at once; how long each took, and the most that a log had on disk."""
    me = mesh.me
    await mesh.propose(ConversationStarted(CONVERSATION, "bench", "", "", (), 0, me, "founder", "#3366cc"))
    waits_s: list[float] = []
    under_way: deque[tuple[float, asyncio.Future[Order]]] = deque()
    most, parent = 0, ""

    async def one() -> None:
        said_s, waiting = under_way.popleft()
        await waiting
        waits_s.append(time.perf_counter() - said_s)

    for number in range(messages):
        coordinating = mesh.leadership.current
        if coordinating is None:
            raise CannotServe("another peer coordinates since: this machine is too busy")
        if len(under_way) >= UNDER_WAY:
            await one()
        text = TEXT % number
        said_s = time.perf_counter()
        coordinating.submit(
            MessageAdded(CONVERSATION, f"m{number}", parent, me, "to-people", text, number, "", "", (), 0)
        )
        under_way.append((said_s, asyncio.ensure_future(coordinating.settled())))
        await asyncio.sleep(0)
        parent = f"m{number}"
        if number % 250 == 0:
            most = max(most, *_log_bytes(folder))
    while under_way:
        await one()
    return waits_s, max(most, *_log_bytes(folder))


def _log_bytes(folder: Path) -> list[int]:
    """What the log of each peer takes on disk, snapshots among it."""
    found = []
    for place in folder.rglob("*-log-*"):
        if place.is_dir():
            found.append(sum(file.stat().st_size for file in place.iterdir() if file.is_file()))
    return found or [0]


def _ms(value: float | None) -> float:
    return round((value or 0.0) * 1000, 1)
