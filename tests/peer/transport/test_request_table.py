"""Requests: who may send one, what an unknown one gets, and what a body has become when a handler sees it."""

from __future__ import annotations

import pytest

from peer.errors import BadCommand
from peer.transport.request_table import Requests
from peer.wire.json_codec import Codec, uint
from peer.wire.request_kind import RequestKind, Sender, nothing

told: Codec[str] = Codec(lambda body, _: str(body["told"]), lambda each: {"told": each})


def kind(method: str, sender: Sender) -> RequestKind[None, str]:
    return RequestKind(method, sender, nothing, 16, told, 32)


COUNTED = RequestKind(
    "inner",
    Sender.MEMBERS,
    Codec(lambda body, _: uint.decode(body["count"], "count"), lambda count: {"count": count}),
    16,
    told,
    32,
)


def table() -> tuple[Requests, list[tuple[str, object]]]:
    requests, heard = Requests(), list[tuple[str, object]]()

    async def handler(peer: str, body: object) -> str:
        heard.append((peer, body))
        return "fine"

    requests.on(kind("open", Sender.ANYONE), handler)
    requests.on(COUNTED, handler)
    requests.on(kind("led", Sender.LEADER), handler)
    requests.know(("a", "b"), "b")
    return requests, heard


@pytest.mark.parametrize(
    ("method", "may", "refusal"),
    [
        ("open", ("a", "b", "stranger"), ""),
        ("inner", ("a", "b"), "inner: expected a member"),
        ("led", ("b",), "led: expected it of who coordinates"),
    ],
)
async def test_a_request_is_for_those_that_it_was_registered_for(
    method: str, may: tuple[str, ...], refusal: str
) -> None:
    requests, heard = table()
    for peer in ("a", "b", "stranger"):
        if peer in may:
            assert await requests.answer(peer, method, {"count": 1}) == {"told": "fine"}
        else:
            with pytest.raises(BadCommand, match=refusal):
                await requests.answer(peer, method, {"count": 1})
    assert [peer for peer, _ in heard] == list(may)


def test_who_may_not_ask_is_refused_before_a_body_is_read() -> None:
    requests, heard = table()
    admitted = requests.admit("a", "inner")
    assert (admitted.max_body_bytes, admitted.max_answer_bytes) == (16, 32)
    for peer, method in (("stranger", "inner"), ("a", "led"), ("a", "missing")):
        with pytest.raises(BadCommand, match=method):
            requests.admit(peer, method)
    assert heard == []


async def test_nobody_is_a_member_and_nobody_leads_before_that_is_known() -> None:
    requests, heard = table()
    requests.know((), "")
    for method in ("inner", "led"):
        for peer in ("a", ""):
            with pytest.raises(BadCommand, match=method):
                await requests.answer(peer, method, {})
    assert heard == []


async def test_a_handler_gets_a_body_that_was_read_and_a_wrong_one_never() -> None:
    requests, heard = table()
    await requests.answer("a", "inner", {"count": 7})
    with pytest.raises(BadCommand, match="count"):
        await requests.answer("a", "inner", {"count": "7"})
    with pytest.raises(BadCommand, match="expected a member"):  # whoever may not ask learns no more
        await requests.answer("stranger", "inner", {"count": "7"})
    assert heard == [("a", 7)]


async def test_an_unknown_request_is_named_short() -> None:
    requests, _ = table()
    with pytest.raises(BadCommand, match=r"^unknown request 'x{40}'$"):
        await requests.answer("a", "x" * 99, {})


async def test_a_method_has_one_handler_at_a_time() -> None:
    requests, heard = table()

    async def other(peer: str, said: object) -> str:
        return f"other {peer}"

    with pytest.raises(ValueError, match="'open' has a handler"):
        requests.on(kind("open", Sender.ANYONE), other)
    off = requests.on(kind("more", Sender.ANYONE), other)
    assert await requests.answer("a", "more", {}) == {"told": "other a"}
    off()
    with pytest.raises(BadCommand, match="unknown request"):
        await requests.answer("a", "more", {})
    requests.on(kind("more", Sender.ANYONE), other)
    off()  # ends what it began, and nothing that came after it
    assert await requests.answer("a", "more", {}) == {"told": "other a"}
    assert heard == []
