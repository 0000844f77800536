"""Questions between two peers: what a refusal says beside its words."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from peer.errors import BeginAnew, MeshError, NotLeader, PeerError
from peer.transport import rpc
from peer.transport.rpc import Calls
from peer.wire.generated.frames import Frame, Request, Response
from peer.wire.json_codec import Body
from tests.patience import WITHIN_S


async def refusal(error: PeerError, body: bytes | None = None) -> MeshError:
    """What an asker hears where the other side refuses with `error`, and with another body if one is given."""

    async def refuse(peer: str, method: str, said: Body) -> Body:
        raise error

    def asked(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Request)
        answering.requested("a", frame)

    def answered(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Response)
        asking.responded("b", frame if body is None else replace(frame, body=body))

    asking, answering = Calls(asked, refuse), Calls(answered, refuse)
    with pytest.raises(MeshError) as heard:
        await asking.call("b", "join", {}, 10.0)
    return heard.value


async def test_a_refusal_names_who_leads_or_above_which_incarnation_a_life_begins() -> None:
    led = await refusal(NotLeader("x", "ann"))
    assert isinstance(led, NotLeader)
    assert (str(led), led.leader) == ("x", "ann")
    anew = await refusal(BeginAnew("y", 7))
    assert isinstance(anew, BeginAnew)
    assert (str(anew), anew.above) == ("y", 7)
    assert type(await refusal(MeshError("z"))) is MeshError


async def test_an_answer_that_is_broken_off_is_said_to_be() -> None:
    """Its caller would else wait until its time is over."""

    async def breaks_off(peer: str, method: str, said: Body) -> Body:
        raise asyncio.CancelledError

    def answered(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Response)
        asking.responded("b", frame)

    def asked(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Request)
        answering.requested("a", frame)

    asking, answering = Calls(asked, breaks_off), Calls(answered, breaks_off)
    with pytest.raises(MeshError, match="broke it off"):
        await asking.call("b", "join", {}, WITHIN_S)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"above":-1}', b'{"above":true}', b'{"above":"7"}', b'{"above":9007199254740991}'],
)
async def test_a_refusal_that_names_it_wrongly_names_none(body: bytes) -> None:
    anew = await refusal(BeginAnew("y", 7), body)
    assert isinstance(anew, BeginAnew)
    assert anew.above == 0


async def test_large_bodies_are_read_one_at_a_time_and_each_peer_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "LARGE_BODY_BYTES", 10)
    monkeypatch.setattr(rpc, "MAX_PAUSE_S", 0.0)
    read: list[str] = []
    done = asyncio.Event()

    async def answer(peer: str, method: str, said: Body) -> Body:
        read.append(peer)
        if len(read) == 7:
            done.set()
        return {}

    calls = Calls(lambda peer, frame: None, answer)
    for peer in "aaaaabb":
        calls.requested(peer, Request(1, "m", b'{"x": "0123456789"}'))
    async with asyncio.timeout(WITHIN_S):
        await done.wait()
    assert "".join(read) == "aababaa", "one of each waits"
    await calls.close()
    assert calls._large._own == {}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"x":"' + b"0,[{" * 100_000 + b'"}', rpc.STATUS_OK),
        (b'{"x":"' + b'\\"0\\",\\\\' * 60_000 + b'"}', rpc.STATUS_OK),
        (json.dumps({"x": ["y" * 64] * 4000}).encode(), rpc.STATUS_OK),
        (b'{"x":[' + b"1," * 100_000 + b"1]}", rpc.STATUS_REFUSED),
        (json.dumps({str(key): {} for key in range(20_000)}).encode(), rpc.STATUS_REFUSED),
        (json.dumps({"x" * 10 + str(key): "\\" for key in range(20_000)}).encode(), rpc.STATUS_REFUSED),
        (b'{"x":' + b"[" * 200_000, rpc.STATUS_REFUSED),
    ],
)
async def test_a_large_body_has_few_values_and_may_have_long_texts(
    body: bytes, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "MAX_PAUSE_S", 0.0)
    heard: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def sent(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Response)
        heard.set_result(frame)

    async def answer(peer: str, method: str, said: Body) -> Body:
        return {}

    assert len(body) > rpc.LARGE_BODY_BYTES
    calls = Calls(sent, answer)
    calls.requested("a", Request(1, "m", body))
    found = await asyncio.wait_for(heard, WITHIN_S)
    assert found.status == expected
    assert expected == rpc.STATUS_OK or f"at most {rpc.LARGE_VALUES} values" in found.message
    await calls.close()


async def test_what_is_small_waits_for_no_large_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "LARGE_BODY_BYTES", 10)
    monkeypatch.setattr(rpc, "LARGE_SHARE", 1e-9)
    monkeypatch.setattr(rpc, "MAX_PAUSE_S", 10 * WITHIN_S)
    heard: list[tuple[int, int]] = []
    answered = asyncio.Semaphore(0)

    def sent(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Response)
        heard.append((frame.id, frame.status))
        answered.release()

    async def answer(peer: str, method: str, said: Body) -> Body:
        return {}

    calls = Calls(sent, answer)
    for number, body in enumerate((b"[0, 1, 2, 3, 4]", b'{"x": "0123456789"}', b"{}")):
        calls.requested("a", Request(number, "m", body))
    async with asyncio.timeout(WITHIN_S):
        for _ in range(2):
            await answered.acquire()
    assert sorted(heard) == [(0, rpc.STATUS_REFUSED), (2, rpc.STATUS_OK)], "the other large one has to wait"
    await calls.close()
