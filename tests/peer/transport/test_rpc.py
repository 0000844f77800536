"""Questions between two peers: what a refusal says beside its words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from peer.errors import BadCommand, BeginAnew, MeshError, NotLeader, PeerError
from peer.limits import MAX_BODY_BYTES, MAX_REFUSAL_BYTES
from peer.transport import rpc
from peer.transport.request_table import Admitted
from peer.transport.rpc import Calls
from peer.wire.generated import requests
from peer.wire.generated.frames import Frame, Request, Response
from peer.wire.generated.requests import JOIN, LEADER, JoinRequest, LeaderAnswer
from peer.wire.json_codec import Body
from peer.wire.request_kind import RequestKind
from tests.patience import WITHIN_S

KINDS = tuple(each for each in vars(requests).values() if isinstance(each, RequestKind))
COMES = JoinRequest("ann", True)


def admitting(
    answer: Callable[[str, str, Body], Awaitable[Body]], most: int = MAX_BODY_BYTES
) -> Callable[[str, str], Admitted]:
    """Lets everybody ask everything, in as many bytes; `answer(peer, method, body)` answers."""
    return lambda peer, method: Admitted(most, most, lambda body: answer(peer, method, body))


def padded(size: int) -> bytes:
    """A body of so many bytes."""
    return b'{"x":"' + b"y" * (size - 8) + b'"}'


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

    asking, answering = Calls(asked, admitting(refuse)), Calls(answered, admitting(refuse))
    with pytest.raises(MeshError) as heard:
        await asking.call("b", JOIN, COMES, 10.0)
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

    asking, answering = Calls(asked, admitting(breaks_off)), Calls(answered, admitting(breaks_off))
    with pytest.raises(MeshError, match="broke it off"):
        await asking.call("b", JOIN, COMES, WITHIN_S)


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"{}",
            b"[]",
            b'{"above":-1}',
            b'{"above":true}',
            b'{"above":"7"}',
            b'{"above":9007199254740991}',
        ),
        b'{"above":7' + b" " * MAX_REFUSAL_BYTES + b"}",
    ],
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

    calls = Calls(lambda peer, frame: None, admitting(answer))
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
    calls = Calls(sent, admitting(answer))
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

    calls = Calls(sent, admitting(answer))
    for number, body in enumerate((b"[0, 1, 2, 3, 4]", b'{"x": "0123456789"}', b"{}")):
        calls.requested("a", Request(number, "m", body))
    async with asyncio.timeout(WITHIN_S):
        for _ in range(2):
            await answered.acquire()
    assert sorted(heard) == [(0, rpc.STATUS_REFUSED), (2, rpc.STATUS_OK)], "the other large one has to wait"
    await calls.close()


async def answered_to(admit: Callable[[str, str], Admitted], request: Request) -> Response:
    """What a request of "a" gets."""
    heard: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def sent(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Response)
        heard.set_result(frame)

    calls = Calls(sent, admit)
    calls.requested("a", request)
    found = await asyncio.wait_for(heard, WITHIN_S)
    await calls.close()
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.method)
async def test_a_body_of_one_byte_more_than_its_kind_may_have_is_never_read(
    kind: RequestKind[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "MAX_PAUSE_S", 0.0)
    read: list[int] = []

    async def answer(body: Body) -> Body:
        read.append(len(body["x"]))
        return {}

    def admit(peer: str, method: str) -> Admitted:
        assert method == kind.method
        return Admitted(kind.max_body_bytes, kind.max_answer_bytes, answer)

    most = kind.max_body_bytes
    assert 0 < most <= MAX_BODY_BYTES
    assert (await answered_to(admit, Request(1, kind.method, padded(most)))).status == rpc.STATUS_OK
    for body in (padded(most + 1), b"[" * (most + 1)):  # the second would be no JSON, if anybody looked
        refused = await answered_to(admit, Request(1, kind.method, body))
        assert refused.status == rpc.STATUS_REFUSED
        assert refused.message.startswith(
            f"{kind.method}: expected at most {most} bytes of JSON, got {most + 1}"
        )
    assert read == [most - 8]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.method)
async def test_an_answer_of_one_byte_more_than_its_kind_may_have_is_never_read(
    kind: RequestKind[Any, Any],
) -> None:
    most = kind.max_answer_bytes
    assert 0 < most <= MAX_BODY_BYTES
    bare = replace(kind, codec=requests.LEADER.codec, answer=requests.LEAVING.answer)  # both say nothing
    bodies = iter((padded(most), padded(most + 1), b"[" * (most + 1)))

    def answers(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Request)
        asking.responded(peer, Response(frame.id, rpc.STATUS_OK, "", next(bodies)))

    asking = Calls(answers, admitting(nobody))
    assert await asking.call("b", bare, None, WITHIN_S) is None
    for _ in range(2):
        with pytest.raises(BadCommand, match=f"expected at most {most} bytes of JSON, got {most + 1}"):
            await asking.call("b", bare, None, WITHIN_S)


async def nobody(peer: str, method: str, body: Body) -> Body:
    raise AssertionError("nobody asks here")


async def test_what_is_too_long_is_not_sent_and_its_sender_is_told() -> None:
    sent: list[Frame] = []
    calls = Calls(lambda peer, frame: sent.append(frame), admitting(nobody))
    with pytest.raises(BadCommand, match=f"join: expected at most {JOIN.max_body_bytes} bytes"):
        await calls.call("b", JOIN, JoinRequest("x" * JOIN.max_body_bytes, True), WITHIN_S)
    assert sent == []

    async def answer(body: Body) -> Body:
        return LEADER.answer_body(LeaderAnswer("x" * LEADER.max_answer_bytes, 1, 1, ()))

    def admit(peer: str, method: str) -> Admitted:
        return Admitted(LEADER.max_body_bytes, LEADER.max_answer_bytes, answer)

    refused = await answered_to(admit, Request(1, "leader", b"{}"))
    assert refused.status == rpc.STATUS_REFUSED
    assert f"the answer to leader: expected at most {LEADER.max_answer_bytes} bytes" in refused.message


async def test_who_may_not_ask_is_refused_before_the_body_is_counted_or_read() -> None:
    def admit(peer: str, method: str) -> Admitted:
        raise BadCommand(f"{method}: expected a member")

    for body in (b"{}", b"[" * MAX_BODY_BYTES):
        refused = await answered_to(admit, Request(1, "odd", body))
        assert (refused.status, refused.message) == (rpc.STATUS_REFUSED, "odd: expected a member")
