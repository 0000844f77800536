"""What `shoal bench abuse` sends and counts: bodies within what is taken, figures by their time, clients that end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from peer.bench.abuse.clients import CLIENTS
from peer.bench.abuse.kinds import KINDS, Messages, Posts, Requests, unknown
from peer.bench.abuse.measurement import Seen, Window, figures_of, over_quiet
from peer.gateway.incoming_bodies import MAX_BODY_BYTES
from peer.wire.generated.requests import PROPOSE
from planner.service.planning_service import decode_asked
from signaling.generated.messages import MAX_CLIENT_BYTES
from tests.patience import WITHIN_S

# Behind all others of a busy machine it would never come to its turn.
PROGRAM = "from peer.bench.abuse import clients as a; a.stand_behind = lambda: None; a.main()"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_is_within_what_is_taken(kind: str) -> None:
    """Beyond that it would be refused by its size alone, and show nothing."""
    abuse = KINDS[kind]("toy")
    if isinstance(abuse, Posts):
        assert all(len(abuse.body(number)) <= MAX_BODY_BYTES for number in range(4))
    elif isinstance(abuse, Messages):
        assert all(len(text) <= MAX_CLIENT_BYTES for text in abuse.texts)
    elif isinstance(abuse, Requests):
        assert all(len(body) <= PROPOSE.max_body_bytes for body in abuse.bodies)


def test_forms_and_plans_are_what_they_should_be() -> None:
    grammars, plans = KINDS["grammars"]("toy"), KINDS["plans"]("toy")
    assert isinstance(grammars, Posts)
    assert isinstance(plans, Posts)
    assert grammars.body(1) != grammars.body(2), "one that is known is not compiled again"
    assert len(decode_asked(plans.body(0)).request.peers) == 64
    assert unknown(["plans", "nonsense", "busy"]) == ["nonsense"]


def test_figures_are_of_their_time() -> None:
    seen = Seen()
    seen.gaps += [(1.0, 0.01), (2.0, 0.02), (5.0, 0.5), (9.0, 0.03)]
    seen.beats += [(5.5, 0.004)]
    seen.terms += [(4.5, 3.0), (5.5, 4.0), (9.5, 4.0)]
    seen.failed += [(5.1, "HTTP 503")]
    quiet = figures_of(seen, [Window("quiet", 0.0, 3.0), Window("quiet", 8.0, 10.0)])
    abused = figures_of(seen, [Window("plans", 4.0, 6.0)])
    assert (quiet["tokens"], quiet["gap_p50_ms"], quiet["gap_max_ms"]) == (3, 20.0, 30.0)
    assert (quiet["failed"], quiet["elections"]) == (0, 0)
    assert (abused["gap_max_ms"], abused["failures"], abused["elections"]) == (500.0, ["HTTP 503"], 1)
    times = over_quiet(abused, quiet)
    assert times["gap_p50"] == 25.0
    assert times["beat_p95"] is None, "there was none when it was quiet"


@asynccontextmanager
async def server(arrived: asyncio.Semaphore) -> AsyncIterator[str]:
    async def takes(request: web.Request) -> web.Response:
        arrived.release()
        return web.Response(text=str(len(await request.read())))

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/{path:.*}", takes)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_clients_begin_when_told_and_end_with_their_input() -> None:
    arrived = asyncio.Semaphore(0)
    async with server(arrived) as url, asyncio.timeout(WITHIN_S):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, "grammars", "toy", url, "key", url, ""),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"ready\n"
            process.stdin.write(b"\n")
            for _ in range(CLIENTS + 1):  # a client asks again once it was answered
                await arrived.acquire()
            process.stdin.close()
            counts = json.loads(await process.stdout.readline())
            assert set(counts) == {"200"}
            assert counts["200"] > 0
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
