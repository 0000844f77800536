"""The shorter way through aiortc: it is taken with the installed version, survives a bad network, and can be missed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiortc import RTCPeerConnection, rtcsctptransport
from aiortc.rtcsctptransport import RTCSctpTransport

from peer.limits import MAX_PROBE_BYTES
from peer.transport.engines import aiortc as engine_module
from peer.transport.engines.aiortc import AiortcEngine
from peer.transport.engines.aiortc_tuned import (
    WINDOW_PACKETS,
    TunedDtls,
    TunedSctp,
    has_local_line,
    missing,
    run_now,
    tune,
    with_local_line,
)
from peer.wire.generated.frames import Probe, Token
from tests.patience import WITHIN_S

if TYPE_CHECKING:
    from tests.peer.transport.connected_pairs import Mesh, Side

SESSION = bytes(16)


def sctp_of(side: Side) -> RTCSctpTransport:
    engine = side.connection._engine
    assert isinstance(engine, AiortcEngine)
    assert engine._pc.sctp is not None
    return engine._pc.sctp


async def test_the_installed_aiortc_has_all_that_is_used(mesh: Mesh) -> None:
    """Fails after an upgrade that renamed something: adapt aiortc_tuned.py, or raise the upper bound with care."""
    a, _ = await mesh.pair()
    sctp = sctp_of(a)
    assert missing(sctp) == []
    assert type(sctp) is TunedSctp
    assert type(sctp.transport) is TunedDtls
    assert sctp._cwnd >= WINDOW_PACKETS * rtcsctptransport.USERDATA_MAX_LENGTH


async def test_what_is_sent_after_the_end_disturbs_nobody(mesh: Mesh) -> None:
    a, _ = await mesh.pair()
    sctp = sctp_of(a)
    dtls = sctp.transport
    assert isinstance(dtls, TunedDtls)
    assert dtls._ssl is not None
    dtls._ssl.shutdown()
    with pytest.raises(ConnectionError, match="shutdown"):
        dtls.send_packet(b"late")
    a.connection.send(Token(SESSION, 1, 0, 5, 0))
    await sctp._transmit()  # as a timer would, in a task that nobody waits for


async def test_another_aiortc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(RTCSctpTransport, "_transmit")
    connection = RTCPeerConnection()
    connection.createDataChannel("x")
    assert connection.sctp is not None
    assert "sctp._transmit" in missing(connection.sctp)
    assert not tune(connection.sctp, print)
    assert type(connection.sctp) is RTCSctpTransport
    monkeypatch.undo()
    await connection.close()


async def test_works_without_it(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "tune", lambda sctp, broken: False)
    a, b = await mesh.pair()
    assert type(sctp_of(a)) is RTCSctpTransport
    a.connection.send(Probe(1, bytes(MAX_PROBE_BYTES)))
    await b.until(lambda: b.frames == [Probe(1, bytes(MAX_PROBE_BYTES))])


async def test_tuned_talks_to_plain(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    a = mesh.side("a")
    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "tune", lambda sctp, broken: False)
        b = mesh.side("b")
        offer = await b.connection.offer()
    await b.connection.set_answer(await a.connection.accept(offer))
    await asyncio.gather(a.connection.opened(), b.connection.opened())
    assert {type(sctp_of(a)), type(sctp_of(b))} == {TunedSctp, RTCSctpTransport}
    for side in (a, b):
        side.connection.send(Probe(1, bytes(300_000)))
    await a.until(lambda: len(a.frames) == 1)
    await b.until(lambda: len(b.frames) == 1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("local", [False, True])
async def test_lost_repeated_and_swapped_packets(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, seed: int, local: bool
) -> None:
    monkeypatch.setattr(TunedDtls, "is_local", lambda dtls: local)
    a, b = await mesh.pair()
    rng = random.Random(seed)
    send = TunedDtls.send_packet
    late: list[bytes] = []

    def faulty(dtls: TunedDtls, packet: bytes) -> None:
        match rng.randrange(50):
            case 0:
                return
            case 1:
                send(dtls, packet)
                send(dtls, packet)
            case 2:
                late.append(packet)
                return
            case _:
                send(dtls, packet)
        while late and rng.random() < 0.5:
            send(dtls, late.pop())

    monkeypatch.setattr(TunedDtls, "send_packet", faulty)
    for n in range(30):
        a.connection.send(Probe(n, bytes([n]) * 20_000))
        b.connection.send(Token(SESSION, 0, n, n, 0))
    await b.until(lambda: len(b.frames) == 30)
    await a.until(lambda: len(a.frames) == 30)
    monkeypatch.undo()
    assert b.frames == [Probe(n, bytes([n]) * 20_000) for n in range(30)]
    assert a.frames == [Token(SESSION, 0, n, n, 0) for n in range(30)]


@pytest.mark.parametrize(("local", "most"), [(False, 100), (True, 16)])
async def test_a_message_of_many_packets_needs_few_acknowledgements(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, local: bool, most: int
) -> None:
    """Within a machine it takes fewer packets, too."""
    monkeypatch.setattr(TunedDtls, "is_local", lambda dtls: local)
    a, b = await mesh.pair()
    a.connection.send(Probe(0, b"0"))
    await b.until(lambda: len(b.frames) == 1)
    b.connection.send(Probe(0, b"0"))  # acknowledges
    await a.until(lambda: len(a.frames) == 1)
    assert vars(sctp_of(a))["_is_local"] == local
    sent: dict[int, int] = {}
    send = TunedDtls.send_packet

    def counted(dtls: TunedDtls, packet: bytes) -> None:
        sent[id(dtls)] = sent.get(id(dtls), 0) + 1
        send(dtls, packet)

    monkeypatch.setattr(TunedDtls, "send_packet", counted)
    a.connection.send(Probe(1, bytes(100_000)))
    await b.until(lambda: len(b.frames) == 2)
    forward, backward = sent[id(sctp_of(a).transport)], sent[id(sctp_of(b).transport)]
    assert most * 0.8 < forward <= most
    assert backward <= forward / 2


def test_a_path_is_local_where_both_ends_are_this_machine() -> None:
    def pair(mine: str, theirs: str, kind: str = "host") -> Any:
        dtls = TunedDtls.__new__(TunedDtls)
        ends = [SimpleNamespace(host=host, type=kind) for host in (mine, theirs)]
        nominated = {1: SimpleNamespace(local_candidate=ends[0], remote_candidate=ends[1])}
        dtls._transport = SimpleNamespace(_connection=SimpleNamespace(_nominated=nominated))
        return dtls.is_local()

    assert pair("127.0.0.1", "127.0.0.1")
    assert pair("127.0.0.1", "::1")
    assert pair("192.168.0.2", "192.168.0.2")
    assert not pair("192.168.0.2", "192.168.0.3")
    assert not pair("192.168.0.2", "192.168.0.2", "relay")
    assert not pair("192.168.0.2", "name.local")


def test_who_does_not_say_that_it_takes_larger_packets_gets_none() -> None:
    sdp = "v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"
    assert not has_local_line(sdp)
    assert has_local_line(with_local_line(sdp))
    assert not has_local_line(sdp + "a=x-shoal-local-packet:65536\r\n")


async def test_a_step_that_waits_is_finished_later() -> None:
    """aiortc's coroutines do not wait today; if one does, it goes on as a task and gets what it waited for."""
    seen: list[object] = []
    done = asyncio.Event()
    first, second = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()

    async def waits() -> None:
        seen.append(await first)
        try:
            await second
        except ValueError as error:
            seen.append(str(error))
            done.set()

    step: Coroutine[Any, Any, None] = waits()
    run_now(step)
    assert seen == []
    first.set_result(1)
    second.set_exception(ValueError("two"))
    async with asyncio.timeout(WITHIN_S):
        await done.wait()
    assert seen == [1, "two"]
