"""Connections over real engines and loopback, every pair of them: order, bounds, goodbyes and losses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from peer.errors import (
    BindFailed,
    ConnectFailed,
    ConnectionLost,
    EngineMissing,
    SignalingFault,
    VersionMismatch,
    WrongField,
)
from peer.limits import LOWEST_VERSION, MAX_BUFFERED_BYTES, MAX_PROBE_BYTES, WINDOW_BYTES
from peer.transport.connection import ConnectionState, Times, fingerprint_of
from peer.transport.engines.choose import choose_engine
from peer.transport.engines.settings import EngineSettings
from peer.transport.heartbeat import HeartbeatTimes
from peer.wire.generated.frames import Channel, Hello, Probe, Request, Token
from tests.patience import WITHIN_S, soon

if TYPE_CHECKING:
    from tests.peer.transport.connected_pairs import Mesh

S = ConnectionState
SESSION = bytes(16)
LOOPBACK = EngineSettings(bind=("127.0.0.1",))
PATIENT = Times(close_s=60.0)  # these tests run on what time others leave
QUICK = Times(HeartbeatTimes(interval_s=0.05, suspect_s=0.15, lost_s=0.5), connect_s=60.0, close_s=5.0)
OFTEN = Times(HeartbeatTimes(interval_s=0.05, suspect_s=60.0, lost_s=120.0))


async def test_frames_arrive_both_ways(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines)
    assert (a.connection.peer, b.connection.peer) == ("b", "a")
    assert a.connection.remote == Hello(LOWEST_VERSION, "b", "B", "test")
    for n in range(50):
        a.connection.send(Token(SESSION, 0, n, n, 0))
        b.connection.send(Request(n, "m", b"{}"))
    a.connection.send(Probe(1, bytes(500_000)))
    await b.until(lambda: len(b.frames) == 51)
    await a.until(lambda: len(a.frames) == 50)
    assert b.frames[:50] == [Token(SESSION, 0, n, n, 0) for n in range(50)]
    assert b.frames[50] == Probe(1, bytes(500_000))
    assert a.frames == [Request(n, "m", b"{}") for n in range(50)]


async def test_bulk_is_bounded_and_control_goes_past_it(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines)
    most = 0
    send = a.connection._engine.send

    def watched(channel: Channel, data: bytes) -> None:
        nonlocal most
        send(channel, data)
        most = max(most, a.connection._engine.buffered_bytes(channel))

    a.connection._engine.send = watched  # type: ignore[method-assign]
    for n in range(5):
        a.connection.send(Probe(n, bytes([n]) * MAX_PROBE_BYTES))
    a.connection.send(Request(1, "m", b""))
    await b.until(lambda: Request(1, "m", b"") in b.frames)
    assert len(b.frames) < 6
    await a.connection.drained()
    await b.until(lambda: len(b.frames) == 6)
    assert [frame.nonce for frame in b.frames if isinstance(frame, Probe)] == list(range(5))
    assert most <= MAX_BUFFERED_BYTES


async def test_a_held_receiver_stops_the_sender(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines)
    b.connection.hold()
    for n in range(6):
        a.connection.send(Probe(n, bytes(MAX_PROBE_BYTES)))
    a.connection.send(Request(1, "m", b""))
    await b.until(lambda: len(b.frames) == 1 + WINDOW_BYTES // MAX_PROBE_BYTES - 1)
    b.connection.send(Request(2, "m", b""))
    await a.until(lambda: Request(2, "m", b"") in a.frames)
    assert a.connection.queued_bytes >= 2 * MAX_PROBE_BYTES
    b.connection.release()
    await b.until(lambda: len(b.frames) == 7)


async def test_close_lets_everything_queued_arrive(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines)
    for n in range(3):
        a.connection.send(Probe(n, bytes(MAX_PROBE_BYTES)))
    await a.connection.close("going home")
    await b.connection.wait_closed()
    assert [frame.nonce for frame in b.frames if isinstance(frame, Probe)] == list(range(3))
    assert a.states == b.states == [S.CONNECTING, S.OPEN, S.CLOSING, S.CLOSED]
    assert b.connection.reason == "going home"


async def test_both_may_close_at_once(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines, times=PATIENT)
    a.connection.send(Probe(1, bytes(100_000)))
    b.connection.send(Probe(2, bytes(100_000)))
    async with asyncio.timeout(2 * PATIENT.close_s):
        await asyncio.gather(a.connection.close("bye"), b.connection.close("bye"))
    assert (a.connection.state, b.connection.state) == (S.CLOSED, S.CLOSED)
    assert (a.frames, b.frames) == ([Probe(2, bytes(100_000))], [Probe(1, bytes(100_000))])


async def test_round_trip_is_measured(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, _ = await mesh.pair(engines, times=OFTEN)
    a.connection.send(Request(1, "m", b""))
    async with asyncio.timeout(WITHIN_S):
        while a.connection.rtt_s is None:
            await a.connection._change()
    assert 0 < a.connection.rtt_s < soon(1)


async def test_a_transport_that_goes_is_a_loss(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines)
    await a.connection._engine.close()
    await b.until(lambda: b.connection.state is S.FAILED)
    assert isinstance(b.connection.error, ConnectionLost)
    with pytest.raises(ConnectionLost):
        await b.connection.opened()
    a.connection.engine_closed("closed under it")


CHILD = """
import asyncio, json, sys
from peer.transport.connection import Connection, ConnectionState
from peer.transport.engines.choose import choose_engine
from peer.transport.engines.settings import EngineSettings
from peer.limits import LOWEST_VERSION
from peer.wire.generated.frames import Hello

async def main(engine):
    done = asyncio.Event()
    connection = Connection(choose_engine(engine)(EngineSettings(("127.0.0.1",))),
                            Hello(LOWEST_VERSION, "child", "", ""),
                            lambda c, f: None, lambda c, s: None)
    print(json.dumps(await connection.accept(json.loads(sys.stdin.readline()))), flush=True)
    await connection.opened()
    await done.wait()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_killed_peer_is_noticed(mesh: Mesh, engine: str) -> None:
    a = mesh.side("a", engine, expects="child", times=QUICK)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, engine),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write((json.dumps(await a.connection.offer()) + "\n").encode())
        await a.connection.set_answer(json.loads(await child.stdout.readline()))
        await a.connection.opened()
        child.send_signal(signal.SIGKILL)
        await a.until(lambda: a.connection.state is S.FAILED)
        assert isinstance(a.connection.error, ConnectionLost)
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def test_a_stopped_peer_that_comes_back_is_not_lost(mesh: Mesh, engine: str) -> None:
    times = Times(HeartbeatTimes(interval_s=0.05, suspect_s=0.15, lost_s=30.0))
    a, b = await mesh.pair((engine, engine), times=times)
    b.connection._cancel_timer()
    take, b.connection.engine_message = b.connection.engine_message, lambda *_: None  # type: ignore[method-assign]
    a.connection._beat()
    a.connection._heartbeat._heard_s -= 0.2
    a.connection._beat()
    assert a.connection.suspect
    b.connection.engine_message = take  # type: ignore[method-assign]
    b.connection._beat()
    b.connection.send(Request(1, "back", b""))
    await a.until(lambda: len(a.frames) == 1)
    assert not a.connection.suspect
    assert a.connection.state is S.OPEN


async def test_other_versions_are_told_apart(mesh: Mesh, engines: tuple[str, str]) -> None:
    a = mesh.side("a", engines[0], protocol=LOWEST_VERSION + 1)
    b = mesh.side("b", engines[1])
    await mesh.join(a, b)
    await b.connection.wait_closed()
    await a.connection.wait_closed()
    for side in (a, b):  # each finds out by itself, or is told first
        assert (
            isinstance(side.connection.error, VersionMismatch) or "VersionMismatch" in side.connection.reason
        )


async def test_another_peer_than_expected_is_refused(mesh: Mesh) -> None:
    a = mesh.side("a", expects="b")
    b = mesh.side("mallory", expects="a")
    await mesh.join(a, b)
    await a.connection.wait_closed()
    assert isinstance(a.connection.error, WrongField)
    assert "HELLO.peer" in str(a.connection.error)


async def test_connecting_has_a_time_limit(mesh: Mesh, engine: str) -> None:
    a = mesh.side("a", engine, expects="b", times=Times(connect_s=0.1))
    await a.connection.offer()
    with pytest.raises(ConnectFailed, match=r"b to connect within 0\.1 s"):
        await a.connection.opened()


@pytest.mark.parametrize(
    "sdp", ["", "nonsense", "v=0\r\n", "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"]
)
async def test_an_sdp_that_is_none(mesh: Mesh, engine: str, sdp: str) -> None:
    b = mesh.side("b", engine, times=Times(connect_s=0.5))
    with pytest.raises(SignalingFault, match="SDP"):
        await b.connection.accept(sdp)
    with pytest.raises(SignalingFault):
        await b.connection.opened()
    assert b.connection.state is S.FAILED


async def test_a_candidate_that_is_none(mesh: Mesh, engine: str) -> None:
    a, _ = await mesh.pair((engine, engine))
    with pytest.raises(SignalingFault, match="candidate"):
        await a.connection.add_candidate("candidate:who knows")


async def test_bind_names_the_candidates(mesh: Mesh, engine: str) -> None:
    a = mesh.side("a", engine, settings=LOOPBACK)
    hosts = {
        line.split()[4]
        for line in (await a.connection.offer()).splitlines()
        if line.startswith("a=candidate:")
    }
    assert hosts == {"127.0.0.1"}


@pytest.mark.parametrize("address", ["192.0.2.7", "localhost", ""])
async def test_an_address_of_another_machine(engine: str, address: str) -> None:
    with pytest.raises(BindFailed, match="expected an IP address of this machine"):
        choose_engine(engine)(EngineSettings(bind=(address,)))


async def test_closed_while_an_offer_is_made(mesh: Mesh, engine: str) -> None:
    a = mesh.side("a", engine)
    offer = asyncio.ensure_future(a.connection.offer())
    await asyncio.sleep(0)
    await a.connection.close("changed my mind")
    with contextlib.suppress(ConnectionLost):
        await offer
    assert a.connection.state is S.CLOSED


async def test_both_may_close_with_more_queued_than_the_window(mesh: Mesh) -> None:
    a, b = await mesh.pair(times=PATIENT)
    for n in range(6):
        a.connection.send(Probe(n, bytes(MAX_PROBE_BYTES)))
        b.connection.send(Probe(n, bytes(MAX_PROBE_BYTES)))
    await asyncio.gather(a.connection.close("bye"), b.connection.close("bye"))
    assert (len(a.frames), len(b.frames)) == (6, 6)


async def test_a_machine_without_network_offers_loopback(
    mesh: Mesh, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = lambda **_: []  # noqa: E731
    monkeypatch.setattr("aioice.ice.get_host_addresses", nothing)
    if engine == "libdatachannel":
        monkeypatch.setattr("peer.transport.engines.libdatachannel.get_host_addresses", nothing)
    a = mesh.side("a", engine, settings=EngineSettings())
    b = mesh.side("b", engine, settings=EngineSettings())
    await mesh.join(a, b)
    await asyncio.gather(a.connection.opened(), b.connection.opened())


async def test_fingerprint_is_that_of_the_sdp(mesh: Mesh, engine: str) -> None:
    a = mesh.side("a", engine)
    algorithm, value = fingerprint_of(await a.connection.offer()).split()
    assert algorithm == "sha-256"
    assert len(bytes.fromhex(value.replace(":", ""))) == 32
    with pytest.raises(SignalingFault, match="fingerprint"):
        fingerprint_of("v=0\r\n")


async def test_a_swapped_fingerprint_does_not_connect(mesh: Mesh, engine: str) -> None:
    a = mesh.side("a", engine, times=Times(connect_s=3.0))
    b = mesh.side("b", engine, times=Times(connect_s=3.0))
    offer = await a.connection.offer()
    _, value = fingerprint_of(offer).split()
    wrong = "00" if not value.startswith("00") else "11"
    await a.connection.set_answer(await b.connection.accept(offer.replace(value, wrong + value[2:])))
    with pytest.raises((ConnectFailed, ConnectionLost)):
        await b.connection.opened()


async def cycle(mesh: Mesh, engines: tuple[str, str]) -> None:
    a, b = await mesh.pair(engines)
    a.connection.send(Token(SESSION, 0, 0, 1, 0))
    await b.until(lambda: len(b.frames) == 1)
    await a.connection.close("again")
    await b.connection.wait_closed()
    mesh.sides.clear()


async def test_nothing_is_left_after_many_connections(mesh: Mesh, engine: str) -> None:
    for _ in range(2):
        await cycle(mesh, (engine, engine))
    tasks, descriptors = len(asyncio.all_tasks()), psutil.Process().num_fds()
    for _ in range(20):
        await cycle(mesh, (engine, engine))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks
    async with asyncio.timeout(WITHIN_S):  # libdatachannel's own threads close the last socket a moment later
        while psutil.Process().num_fds() > descriptors:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_engine_names() -> None:
    with pytest.raises(EngineMissing, match="auto, aiortc, libdatachannel"):
        choose_engine("carrier pigeon")
    assert choose_engine("aiortc").__name__ == "AiortcEngine"


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineMissing, match=r"shoal-mesh\[fast\]"):
        choose_engine("libdatachannel")
    assert choose_engine("auto").__name__ == "AiortcEngine"
