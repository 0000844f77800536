"""`shoal bench abuse`: what ten clients that mean harm cost others, one kind of abuse after the other.

Edge. A founder with the whole model, two voters beside, and ten clients in a process of their own that stands behind
all others. This process asks as anybody would: one answer after the other over HTTP, whether the gateway is healthy,
and as a member of the mesh who leads, over the same data channel that carries heartbeats. Figures of the time under
each kind of abuse stand beside those of the time when nobody did anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil

from peer.bench.abuse.kinds import KINDS, unknown
from peer.errors import BadCommand, CannotServe, PeerError
from peer.launch.local_mesh import needed_bytes
from peer.launch.model_import import find_or_import
from peer.launch.terminal import say
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, PeerOptions
from peer.state.mesh_state import MeshState
from peer.validation.scenarios.figures import percentile
from peer.validation.world.child_processes import How, JoinedProcess
from peer.wire.generated.requests import LEADER
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.invites import parse_link

CONTEXT: Final = 2048
SESSIONS: Final = 4
VOTERS: Final = 3
VOTER_BYTES: Final = 64 << 20  # of those that hold nothing of the model
READY_S: Final = 300.0  # ten members join in a process that stands behind all others
CALM_S: Final = 1.5  # after everybody is there, and after each kind
END_S: Final = 10.0  # for the clients to say what they were answered
TRY_S: Final = 20.0  # of one question about health or of one beat: a longer one counts as this long
EVERY_S: Final = 0.05  # between two of them
ANSWER_TOKENS: Final = 400
QUESTION: Final = "Tell me a long story about the sea and everybody who lives in it."
MEMORY_EVERY_S: Final = 0.5
OWN_KEY: Final = "who-asks"
THEIR_KEY: Final = "who-abuses"
QUIET: Final = "quiet"


class Serving(JoinedProcess):
    """`shoal serve` with a gateway beside."""

    def __init__(self, how: How, model_id: str, keys: Path) -> None:
        super().__init__("founder", how)
        self._model_id = model_id
        self._keys = keys

    def words(self) -> tuple[str, ...]:
        """The words of the command line."""
        promised = ("--context", str(CONTEXT), "--sessions", str(SESSIONS))
        return (
            "serve",
            self._model_id,
            "--keep",
            "--no-history",
            "--port",
            "0",
            "--api",
            "0",
            "--api-key-file",
            str(self._keys),
            "--no-qr",
            *promised,
        )

    def typed(self) -> str:
        """Nothing: it comes by no link."""
        return ""

    async def told(self, pattern: str) -> str:
        """The first group of `pattern` in what it wrote. Raises CannotServe when that does not come."""
        deadline = time.monotonic() + READY_S
        while (found := re.search(pattern, self.wrote.read_text(errors="replace"))) is None:
            if not self.running or time.monotonic() > deadline:
                raise CannotServe(f"the founder does not serve: {self.complaint()}")
            await asyncio.sleep(0.05)
        return found[1]


@dataclass(slots=True)
class Seen:
    """What this process saw, each with when it was over: seconds, terms of the log, bytes."""

    gaps: list[tuple[float, float]] = field(default_factory=list)  # from one token to the next
    firsts: list[tuple[float, float]] = field(default_factory=list)  # from a question to its first token
    health: list[tuple[float, float]] = field(default_factory=list)
    beats: list[tuple[float, float]] = field(default_factory=list)
    terms: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    failed: list[tuple[float, str]] = field(default_factory=list)  # answers, and what of them


@dataclass(frozen=True, slots=True)
class Window:
    """A time of one kind: from, to."""

    kind: str
    begun: float
    ended: float


def figures_of(seen: Seen, windows: Sequence[Window]) -> dict[str, Any]:
    """What was seen within some windows of one kind, in milliseconds."""

    def within(samples: Sequence[tuple[float, float]]) -> list[float]:
        return [value for at, value in samples if any(w.begun <= at <= w.ended for w in windows)]

    gaps, health, beats = within(seen.gaps), within(seen.health), within(seen.beats)
    terms, memory = within(seen.terms), within(seen.memory)
    failed = [what for at, what in seen.failed if any(w.begun <= at <= w.ended for w in windows)]
    return {
        "gap_p50_ms": _ms(percentile(gaps, 0.5)),
        "gap_p95_ms": _ms(percentile(gaps, 0.95)),
        "gap_max_ms": _ms(max(gaps, default=None)),
        "first_p50_ms": _ms(percentile(within(seen.firsts), 0.5)),
        "health_p95_ms": _ms(percentile(health, 0.95)),
        "health_max_ms": _ms(max(health, default=None)),
        "beat_p95_ms": _ms(percentile(beats, 0.95)),
        "beat_max_ms": _ms(max(beats, default=None)),
        "tokens": len(gaps),
        "failed": len(failed),
        "failures": sorted(set(failed))[:3],
        "elections": round(max(terms) - min(terms)) if terms else None,
        "memory_mib": round(max(memory) / 2**20) if memory else None,
    }


def over_quiet(figures: dict[str, Any], quiet: dict[str, Any]) -> dict[str, float | None]:
    """How many times as much as when it was quiet; None where something is missing."""
    found: dict[str, float | None] = {}
    for name in quiet:
        if name.endswith("_ms"):
            mine, base = figures[name], quiet[name]
            found[name.removesuffix("_ms")] = round(mine / base, 2) if mine is not None and base else None
    return found


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value * 1000, 1)


def bench_abuse(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name. Raises BadCommand for a kind that there is not."""
    kinds: Sequence[str] = args.kinds or [*KINDS]
    if wrong := unknown(kinds):
        raise BadCommand(f"expected some of {', '.join(KINDS)}, with commas, got {wrong[0]!r}")
    store = Store(args.store)
    model_id = find_or_import(store, args.model, "8bit")
    return asyncio.run(_bench(store, model_id, kinds, args.each))


async def _bench(store: Store, model_id: str, kinds: Sequence[str], each_s: float) -> dict[str, Any]:
    manifest = decode_manifest(store.manifest_bytes(model_id))
    memory = Lent(needed_bytes(manifest, CONTEXT, SESSIONS), beside_program=True)
    seen, windows, answered = Seen(), list[Window](), dict[str, dict[str, int]]()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-bench-")))
        how = How("", store.root, folder, memory, 1, "auto", "")
        keys = folder / "keys"
        keys.write_text(f"{OWN_KEY}\n{THEIR_KEY}\n")
        founder = Serving(how, model_id, keys)
        stack.push_async_callback(founder.end)
        say("starting a founder and two voters")
        await founder.start()
        link = await founder.told(r"(?m)^(http://\S+/#\S+)$")
        api = await founder.told(r"programs may ask at (http://\S+)/v1")
        for number in range(2, VOTERS + 1):
            voter = JoinedProcess(
                f"peer {number}", How(link, store.root, folder, Lent(VOTER_BYTES), 1, "auto", "")
            )
            stack.push_async_callback(voter.end)
            await voter.start()
        mesh = await stack.enter_async_context(
            join(link, PeerOptions("asker", 0, 1, "cpu", "auto", ("127.0.0.1",)), store)
        )
        await _until_whole(mesh)
        leader = mesh.view.leader or ""
        http = await stack.enter_async_context(
            aiohttp.ClientSession(api, headers={"Authorization": f"Bearer {OWN_KEY}"})
        )
        server = parse_link(link).server
        assert founder.pid is not None
        async with _seeing(mesh, http, manifest.name, leader, founder.pid, seen):
            await asyncio.sleep(CALM_S)
            windows.append(await _window(QUIET, each_s))
            say(_line(QUIET, figures_of(seen, windows), {}))
            for kind in kinds:  # each between two quiet times
                async with _abused(kind, manifest.name, api, server, link) as told:
                    windows.append(await _window(kind, each_s))
                answered[kind] = dict(told)
                say(_line(kind, figures_of(seen, windows[-1:]), told))
                await asyncio.sleep(CALM_S)
                windows.append(await _window(QUIET, each_s))
    return _figures(seen, windows, answered, each_s)


def _figures(
    seen: Seen, windows: Sequence[Window], answered: dict[str, dict[str, int]], each_s: float
) -> dict[str, Any]:
    quiet = figures_of(seen, [window for window in windows if window.kind == QUIET])
    cases = []
    for before, window, after in zip(windows[::2], windows[1::2], windows[2::2], strict=False):
        figures, around = figures_of(seen, [window]), figures_of(seen, [before, after])
        counts = answered[window.kind]
        cases.append(
            {"kind": window.kind, **figures, "times": over_quiet(figures, around), "answered": counts}
        )
    worst = {
        name: max((case["times"][name] or 0.0 for case in cases), default=None)
        for name in ("gap_p50", "gap_p95", "gap_max", "health_p95", "health_max", "beat_p95", "beat_max")
    }
    return {
        "seconds_each": each_s,
        "quiet": quiet,
        "cases": cases,
        "worst_times": worst,
        "elections": sum(case["elections"] or 0 for case in cases),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _line(kind: str, figures: dict[str, Any], answered: dict[str, int]) -> str:
    told = ", ".join(f"{count} {what}" for what, count in answered.items())
    return (
        f"{kind}: gaps {figures['gap_p50_ms']}, {figures['gap_p95_ms']} and {figures['gap_max_ms']} ms, "
        f"health {figures['health_p95_ms']} and {figures['health_max_ms']} ms, "
        f"beats {figures['beat_p95_ms']} and {figures['beat_max_ms']} ms" + (f" ({told})" if told else "")
    )


async def _window(kind: str, seconds: float) -> Window:
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    return Window(kind, begun, time.perf_counter())


async def _until_whole(mesh: MeshMember) -> None:
    await mesh.until_serving(READY_S)

    def voted(_: MeshState) -> bool:
        replica = mesh.view.replica
        return replica is not None and len(replica.config.voters) == VOTERS

    if not await mesh.view.until(voted, READY_S):
        raise CannotServe(f"not all of {VOTERS} peers vote within {READY_S:.0f} s")


# --- the clients that mean harm


@asynccontextmanager
async def _abused(kind: str, model: str, api: str, server: str, link: str) -> AsyncIterator[dict[str, int]]:
    """While the block runs, ten clients do their worst; at its end the yielded counts say what they were answered."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "peer.bench.abuse.clients", kind, model, api, THEIR_KEY, server, link),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this program, which then ends them
    )
    assert process.stdin is not None
    assert process.stdout is not None
    counts: dict[str, int] = {}
    try:
        try:
            async with asyncio.timeout(READY_S):
                word = await process.stdout.readline()
        except TimeoutError:
            raise CannotServe(f"the clients of {kind} are not ready within {READY_S:.0f} s") from None
        if word != b"ready\n":
            raise CannotServe(f"the clients of {kind} ended early")
        process.stdin.write(b"\n")
        yield counts
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                counts.update(json.loads(await process.stdout.readline() or b"{}"))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# --- everybody else


@asynccontextmanager
async def _seeing(
    mesh: MeshMember, http: aiohttp.ClientSession, model: str, leader: str, founder: int, seen: Seen
) -> AsyncIterator[None]:
    running = [
        asyncio.ensure_future(step)
        for step in (
            _answers(http, model, seen),
            _health(http, seen.health),
            _beats(mesh, leader, seen),
            _memory(founder, seen.memory),
        )
    ]
    try:
        yield
        for each in running:
            if each.done():
                each.result()  # a defect
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _answers(http: aiohttp.ClientSession, model: str, seen: Seen) -> None:
    """One answer after the other, as a stream."""
    body = {
        "model": model,
        "stream": True,
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
        "messages": [{"role": "user", "content": QUESTION}],
    }
    while True:
        before, first = time.perf_counter(), True
        try:
            async with http.post("/v1/chat/completions", json=body) as response:
                if response.status != 200:
                    raise CannotServe(f"HTTP {response.status}: {(await response.text())[:200]}")
                async for line in response.content:
                    if b'"error"' in line:
                        raise CannotServe(line.decode(errors="replace")[:200])
                    if b'"content"' not in line or b'"role"' in line:
                        continue
                    now = time.perf_counter()
                    (seen.firsts if first else seen.gaps).append((now, now - before))
                    before, first = now, False
        except (aiohttp.ClientError, CannotServe, TimeoutError) as error:
            seen.failed.append((time.perf_counter(), f"{type(error).__name__}: {error}"[:200]))
            await asyncio.sleep(EVERY_S)


async def _every(sample: Callable[[], Any], into: list[tuple[float, float]]) -> None:
    """How long each call of `sample` takes; TRY_S where it fails."""
    while True:
        begun = time.perf_counter()
        took_s = TRY_S
        with suppress(aiohttp.ClientError, PeerError, TimeoutError):
            async with asyncio.timeout(TRY_S):
                await sample()
                took_s = time.perf_counter() - begun
        into.append((time.perf_counter(), took_s))
        await asyncio.sleep(EVERY_S)


async def _health(http: aiohttp.ClientSession, into: list[tuple[float, float]]) -> None:
    async def once() -> None:
        async with http.get("/healthz") as response:
            await response.read()

    await _every(once, into)


async def _beats(mesh: MeshMember, leader: str, seen: Seen) -> None:
    """Asks the founder who leads: as heartbeats do, over the control channel of its connection and through its loop."""

    async def once() -> None:
        found = await mesh.links.ask(leader, LEADER, None)
        seen.terms.append((time.perf_counter(), float(found.term)))

    await _every(once, seen.beats)


async def _memory(founder: int, into: list[tuple[float, float]]) -> None:
    """What the founder and its processes occupy."""
    process = psutil.Process(founder)
    while True:
        total = 0
        with suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    total += each.memory_info().rss
        into.append((time.perf_counter(), float(total)))
        await asyncio.sleep(MEMORY_EVERY_S)
