"""A soak: many sessions opened, cancelled and killed on one mesh; what each process occupies then, and did before.

Edge. Sessions are killed together with their asker, a process of its own, as when somebody's machine goes down.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psutil

from peer.errors import CannotServe, PeerError
from peer.limits import SESSION_BYTES
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.session.sampling import GREEDY
from peer.validation.world.mesh import ASKER, Rig, Shape, rig
from planner.model.store import Store

WORKERS: Final = 8  # sessions at the same time
KILLED: Final = 4  # sessions of an asker that is killed
KILL_EVERY: Final = 160  # sessions between two such askers: they take seconds to start
# Before the first reading a tenth of all sessions, so many at least and at most: caches and arrays grow to their size.
WARM_SESSIONS: Final = (60, 400)
READINGS: Final = 20
ASKING_WITHIN_S: Final = 60.0
QUIET_WITHIN_S: Final = 90.0  # a session that nobody adopts is freed within its lease
GROWTH: Final = 0.05  # of memory, that allocators may keep
GROWTH_BYTES: Final = 16 << 20
DESCRIPTORS: Final = 2  # more or less: a socket may just be opened
TASKS: Final = 2  # the reading itself
Row = tuple[
    int, float, str, int, int, int, int
]  # sessions, seconds, process, RSS, descriptors, tasks, sessions held


@dataclass(slots=True)
class _Tally:
    """How the sessions ended so far."""

    opened: int = 0
    finished: int = 0
    cancelled: int = 0
    killed: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)


async def soak(
    shape: Shape,
    store: Store,
    sessions: int,
    minutes: float,
    seed: int,
    last_words: list[Callable[[], None]],
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], list[Row]]:
    """The figures by name with "held", and the readings."""
    shape = replace(shape, mesh=replace(shape.mesh, sessions=WORKERS + KILLED))
    tell(f"starting {shape.peers} peers")
    rows: list[Row] = []
    async with rig(shape, store, relayed=False, seed=seed, last_words=last_words) as made:
        tally = _Tally()
        least, most = WARM_SESSIONS
        await _some(made, max(least, min(most, sessions // 10)), tally, seed)
        await _lone_asker(made, store, tally)
        begun = time.monotonic()
        rows += await _quiet_reading(made, 0, 0.0)
        each = max(1, sessions // READINGS)
        tally = _Tally()
        next_killed = KILL_EVERY
        while tally.opened < sessions and time.monotonic() - begun < minutes * 60:
            await _some(made, min(each, KILL_EVERY, sessions - tally.opened), tally, seed)
            if tally.opened >= next_killed:
                next_killed += KILL_EVERY
                await _lone_asker(made, store, tally)
            if tally.opened // each > (len(rows) // (shape.peers + 1)) - 1:
                rows += await _reading(made, tally.opened, time.monotonic() - begun)
                why = f": {tally.reasons[-1]}" if tally.reasons else ""
                tell(f"{tally.opened} sessions, {tally.failed} failed{why}")
        rows += await _quiet_reading(made, tally.opened, time.monotonic() - begun)
    return left_over(rows, tally, seed), rows


async def _some(made: Rig, count: int, tally: _Tally, seed: int) -> None:
    """`count` sessions, WORKERS at a time: two of three end by themselves, one is cut off at some point."""
    numbers = iter(range(tally.opened, tally.opened + count))

    async def work() -> None:
        for number in numbers:
            await _one(made, tally, random.Random(f"{seed}/soak/{number}"))

    await asyncio.gather(*(work() for _ in range(min(WORKERS, count))))


async def _one(made: Rig, tally: _Tally, chance: random.Random) -> None:
    mesh = made.founder
    talk = Conversation(mesh.sessions, mesh.model.prompts, os.urandom(SESSION_BYTES))
    prompt = [chance.randrange(1000, 20000) for _ in range(chance.randrange(1, 14))]
    tokens = chance.randrange(1, 5)
    cut = chance.randrange(tokens + 1) if chance.random() < 1 / 3 else -1
    tally.opened += 1
    count = 0
    try:
        if cut == 0:
            asking = asyncio.ensure_future(_all(talk, prompt, tokens))
            await asyncio.sleep(chance.random() * 0.05)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        else:
            async with aclosing(talk.tokens(prompt, Settings(GREEDY, tokens, ignore_end=True))) as pieces:
                async for piece in pieces:
                    count += isinstance(piece, Delta) and piece.token >= 0
                    if count == cut:
                        break
        if cut >= 0:
            tally.cancelled += 1
        else:
            tally.finished += 1
    except PeerError as error:
        tally.failed += 1
        tally.reasons.append(str(error)[:200])
    finally:
        talk.close()


async def _all(talk: Conversation, prompt: list[int], tokens: int) -> None:
    async with aclosing(talk.tokens(prompt, Settings(GREEDY, tokens, ignore_end=True))) as pieces:
        async for _ in pieces:
            continue


async def _lone_asker(made: Rig, store: Store, tally: _Tally) -> None:
    """Sessions whose asker is killed while all of them are answered. Raises CannotServe when it never asked."""
    link = made.founder.link
    assert link is not None
    command = (
        "-m",
        "peer.validation.runs.lone_asker_process",
        str(store.root),
        str(KILLED),
        made.shape.transport,
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=pipe, stdout=pipe, start_new_session=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(link.url().encode() + b"\n")  # and left open: its end is this program's
        async with asyncio.timeout(ASKING_WITHIN_S):
            said = await process.stdout.readline()
        if said != b"asking\n":
            raise CannotServe("the asker that was to be killed ended by itself")
    except TimeoutError:
        raise CannotServe(f"the asker that was to be killed did not ask in {ASKING_WITHIN_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    tally.opened += KILLED
    tally.killed += KILLED


async def _quiet_reading(made: Rig, sessions: int, at_s: float) -> list[Row]:
    """A reading once nothing is left of any session, or when that takes too long."""
    deadline = time.monotonic() + QUIET_WITHIN_S
    fewest: tuple[int, int] | None = None
    while True:
        rows = await _reading(made, sessions, at_s)
        busy = sum(row[6] for row in rows), sum(row[4] for row in rows)
        members = len(made.state.members)
        if (
            busy[0] == 0 and members == len(made.children) + 1 and busy == fewest
        ) or time.monotonic() > deadline:
            return rows
        fewest = busy
        await asyncio.sleep(1.0)  # a lease runs out: there is nothing to wait for but time


async def _reading(made: Rig, sessions: int, at_s: float) -> list[Row]:
    reports = await made.founder.status()
    by_name = {member.name: reports.get(peer, {}) for peer, member in made.state.members.items()}
    rows: list[Row] = []
    for name, pid in [(ASKER, os.getpid()), *((name, child.pid) for name, child in made.children.items())]:
        report = by_name.get(name, {})
        process = psutil.Process(pid)
        rows.append(
            (
                *(sessions, at_s, name, process.memory_info().rss, process.num_fds()),
                *(int(report.get("tasks", 0)), int(report.get("sessions", 0))),
            )
        )
    return rows


def left_over(rows: list[Row], tally: _Tally, seed: int) -> dict[str, Any]:
    """What the last reading shows against the first, of the process that grew most."""
    names = list(dict.fromkeys(row[2] for row in rows))
    first = {row[2]: row for row in reversed(rows)}
    last = {row[2]: row for row in rows}
    grown = max(last[name][3] - first[name][3] for name in names)
    descriptors = max(last[name][4] - first[name][4] for name in names)
    tasks = max(last[name][5] - first[name][5] for name in names)
    held_sessions = sum(last[name][6] for name in names)
    small = all(last[n][3] - first[n][3] <= max(GROWTH_BYTES, GROWTH * first[n][3]) for n in names)
    return {
        "held": small
        and descriptors <= DESCRIPTORS
        and tasks <= TASKS
        and held_sessions == 0
        and tally.failed == 0,
        "sessions": tally.opened,
        "finished": tally.finished,
        "cancelled": tally.cancelled,
        "killed": tally.killed,
        "failed": tally.failed,
        "why_failed": sorted(set(tally.reasons))[:5],
        "grown_mib": round(grown / 2**20, 1),
        "memory_mib": {name: [round(first[name][3] / 2**20), round(last[name][3] / 2**20)] for name in names},
        "more_descriptors": descriptors,
        "more_tasks": tasks,
        "sessions_left": held_sessions,
        "seconds": round(rows[-1][1]),
        "seed": seed,
    }
