"""Values in parts: what is sent comes whole on the other side; parts that no peer sends are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array
from peer.errors import BadCommand, ConnectFailed, MeshError, PeerError, WrongTensor
from peer.limits import MAX_RANGE_BYTES
from peer.transport.shared_memory import LEAST_BYTES, Inbox
from peer.transport.value_exchange import LEFT_AT_ONCE, MAX_OPEN, ValueExchange
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Frame, RunValue
from planner.model.graph_manifest import Value
from tests.patience import WITHIN_S

RUN = b"r" * 16
WANTED = Value("v", "float32", ("rows", 4), ())
MOST_BYTES = 1 << 20


class Taker:
    """Wants everything but value 9."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int, Array]] = []
        self.without: list[int] = []  # items that a value of was not taken

    def wanted(self, peer: str, run: bytes, epoch: int, item: int, value: int) -> Value | None:
        return None if value == 9 else WANTED

    def unable(self, peer: str, run: bytes, epoch: int, item: int, text: str) -> None:
        assert "no room" in text
        self.without.append(item)

    def came(self, peer: str, run: bytes, epoch: int, item: int, value: int, array: Array) -> None:
        self.found.append((peer, item, value, array))


class Links:
    """Those of "me": what is sent is encoded, decoded, and handed to `exchange` as from "me"."""

    me = "me"

    def __init__(self) -> None:
        self.dialer: Any = self
        self.sent: list[Frame] = []
        self.reach = True

    async def dial(self, peer: str) -> None:
        if not self.reach:
            raise ConnectFailed("nobody is there")

    def connection(self, peer: str) -> Any:
        return self if self.reach else None

    def send(self, peer: str, frame: Frame) -> None:
        self.sent.append(decode(encode(frame)))

    async def drained(self) -> None:
        await asyncio.sleep(0)


def exchange(most_bytes: int = MOST_BYTES) -> tuple[ValueExchange, Links, Taker]:
    links, taker = Links(), Taker()
    return ValueExchange(links, taker, most_bytes), links, taker  # type: ignore[arg-type]


async def sent(array: Array, peer: str = "other") -> list[RunValue]:
    sender, links, _ = exchange()
    sender.send(SendValue(peer, RUN, 1, 0, 0, array), WANTED)
    await asyncio.gather(*sender._pumps.values())
    await sender.close()
    return [frame for frame in links.sent if isinstance(frame, RunValue)]


@pytest.mark.parametrize("rows", [0, 1, MAX_RANGE_BYTES // 16, MAX_RANGE_BYTES // 16 + 1, 40_000])
async def test_a_value_comes_whole(rows: int) -> None:
    array = np.arange(rows * 4, dtype="f4").reshape(rows, 4)
    parts = await sent(array)
    receiver, _, taker = exchange()
    for part in parts:
        assert taker.found == []
        receiver.frame("other", part)
    ((peer, item, value, found),) = taker.found
    assert (peer, item, value) == ("other", 0, 0)
    np.testing.assert_array_equal(found, array)


async def test_what_is_for_this_peer_itself_takes_no_connection() -> None:
    sender, links, taker = exchange()
    sender.send(SendValue("me", RUN, 1, 3, 0, np.ones((1, 4), "f4")), WANTED)
    await asyncio.sleep(0)
    assert links.sent == []
    assert [(peer, item) for peer, item, _, _ in taker.found] == [("me", 3)]


async def test_values_of_a_run_that_is_over_are_dropped_and_an_unreachable_peer_gets_none() -> None:
    sender, links, _ = exchange()
    for item in range(3):
        sender.send(SendValue("other", RUN, 1, item, 0, np.ones((1, 4), "f4")), WANTED)
    sender.forget(RUN)
    links.reach = False
    sender.send(SendValue("far", RUN, 1, 0, 0, np.ones((1, 4), "f4")), WANTED)
    await asyncio.gather(*sender._pumps.values())
    assert links.sent == []
    await sender.close()


def part(offset: int = 0, total: int = 16, body: bytes = b"\0" * 16, **more: Any) -> RunValue:
    fields: dict[str, Any] = {"epoch": 1, "item": 0, "value": 0, "shape": (1, 4)} | more
    return RunValue(
        RUN, fields["epoch"], fields["item"], fields["value"], fields["shape"], offset, total, body
    )


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        ([part(total=17)], WrongTensor),
        ([part(shape=(1, 5))], WrongTensor),
        ([part(shape=(2**40, 4), total=2**44)], WrongTensor),
        ([part(body=b"\0" * 17)], BadCommand),
        ([part(body=b"\0" * 8), part(offset=9, body=b"\0" * 7)], BadCommand),
        ([part(body=b"\0" * 8), part(offset=8, total=17, body=b"\0" * 8)], BadCommand),
        ([part(body=b"\0" * 8), part(offset=8, body=b"")], BadCommand),
    ],
    ids=["total", "shape", "huge", "too long", "gap", "another total", "empty"],
)
def test_parts_that_no_peer_sends_are_refused(frames: list[RunValue], error: type[Exception]) -> None:
    receiver, _, taker = exchange()

    def all_of_them() -> None:
        for frame in frames:
            receiver.frame("other", frame)

    with pytest.raises(error):
        all_of_them()
    assert taker.found == []


def test_what_is_not_wanted_is_passed_over_and_no_room_is_said() -> None:
    receiver, _, taker = exchange(most_bytes=16 * (MAX_OPEN + 10))
    receiver.frame("other", part(value=9))
    receiver.frame("other", part(offset=8, body=b"\0" * 8))  # its beginning was before this peer knew
    for item in range(MAX_OPEN + 5):
        receiver.frame("other", part(item=item, body=b"\0" * 8))
    for item in range(MAX_OPEN + 5):
        receiver.frame("other", part(item=item, offset=8, body=b"\0" * 8))
    assert len(taker.found) == MAX_OPEN
    assert taker.without == list(range(MAX_OPEN, MAX_OPEN + 5))
    receiver.frame("third", part(shape=(8, 4), total=128, body=b"\0" * 8))
    receiver.frame("third", part(item=1, shape=(MAX_OPEN + 9, 4), total=16 * (MAX_OPEN + 9), body=b"\0" * 8))
    receiver.gone("third")
    receiver.frame("other", part(shape=(MAX_OPEN + 9, 4), total=16 * (MAX_OPEN + 9), body=b"\0" * 8))
    receiver.frame("other", part(body=b"\0" * 16))  # the same begins anew
    assert len(taker.found) == MAX_OPEN + 1


class Near(Links):
    """Links of `me` to `other`, whose requests it answers; `old`: it knows of no folders."""

    def __init__(self, me: str, *, old: bool = False) -> None:
        super().__init__()
        self.me = me
        self.old = old
        self.other: Near
        self.handlers: dict[str, Any] = {}
        self.asked: list[str] = []

    def on(self, kind: Any, handler: Any) -> None:
        self.handlers[kind.method] = handler

    async def ask(self, peer: str, kind: Any, said: Any) -> Any:
        assert peer == self.other.me
        self.asked.append(kind.method)
        if self.other.old:
            raise MeshError("no such request")
        try:
            answer = await self.other.handlers[kind.method](self.me, kind.read(kind.body(said)))
        except PeerError as error:
            raise MeshError(str(error)) from None
        return kind.read_answer(kind.answer_body(answer))


def near(root: Path, **how: bool) -> tuple[ValueExchange, ValueExchange, Near, Taker]:
    """One that sends, one that takes, the links of the first, what the second takes."""
    here, there = Near("here"), Near("there", **how)
    here.other, there.other = there, here
    taker = Taker()
    sender, receiver = (
        ValueExchange(links, each, MOST_BYTES, Inbox(links.me, root))  # type: ignore[arg-type]
        for links, each in ((here, Taker()), (there, taker))
    )
    return sender, receiver, here, taker


def files(root: Path, pattern: str = "*/*") -> list[str]:
    """The names of what is in the folders of shared memory."""
    return [path.name for path in root.glob(pattern)]


LARGE = np.arange(LEAST_BYTES, dtype="f4").reshape(-1, 4)


async def send(sender: ValueExchange, *arrays: Array, value: int = 0) -> None:
    for item, array in enumerate(arrays):
        sender.send(SendValue("there", RUN, 1, item, value, array), WANTED)
    await asyncio.gather(*sender._pumps.values())


async def test_large_values_go_through_memory_that_both_share(tmp_path: Path) -> None:
    sender, receiver, links, taker = near(tmp_path)
    await send(sender, LARGE, LARGE[:1], LARGE + 1)
    for frame in links.sent:
        assert isinstance(frame, RunValue)
        receiver.frame("here", frame)
    for _, item, _, found in taker.found:
        np.testing.assert_array_equal(found, (LARGE, LARGE[:1], LARGE + 1)[item])
    assert [item for _, item, _, _ in taker.found] == [0, 2, 1]
    assert links.asked == ["run_folder", "run_left", "run_left"]
    assert (sender.left_bytes, sender.sent_bytes) == (2 * LARGE.nbytes, LARGE[:1].nbytes)
    await send(sender, LARGE, value=9)  # which is not wanted
    assert len(taker.found) == 3
    assert files(tmp_path) == ["ends"]
    receiver.gone("here")
    assert files(tmp_path, "*") == []
    await sender.close()


async def test_who_has_no_folder_here_gets_parts(tmp_path: Path) -> None:
    for how, root in (({"old": True}, "."), ({}, "missing")):
        sender, receiver, links, taker = near(tmp_path / root, **how)
        await send(sender, LARGE, LARGE)
        assert links.asked == ["run_folder"]
        for frame in links.sent:
            assert isinstance(frame, RunValue)
            receiver.frame("here", frame)
        assert len(taker.found) == 2
        await sender.close()


async def test_a_value_that_is_refused_in_memory_is_sent_in_parts(tmp_path: Path) -> None:
    sender, receiver, links, taker = near(tmp_path)
    await send(sender, LARGE[:, :2])  # of another shape than the receiver wants
    assert links.asked == ["run_folder", "run_left"]
    assert len(links.sent) == -(-LARGE.nbytes // 2 // MAX_RANGE_BYTES)
    with pytest.raises(WrongTensor):
        receiver.frame("here", links.sent[0])  # type: ignore[arg-type]
    assert taker.found == []
    await sender.close()
    await receiver.close()


async def test_what_there_is_no_room_for_is_told_and_removed(tmp_path: Path) -> None:
    sender, receiver, _, taker = near(tmp_path)
    await send(sender, np.zeros((MOST_BYTES // 16 + 1, 4), "f4"))
    assert (taker.found, taker.without) == ([], [0])
    assert files(tmp_path) == ["ends"]
    await sender.close()
    await receiver.close()


async def test_values_are_written_while_others_are_read(tmp_path: Path) -> None:
    sender, receiver, links, taker = near(tmp_path)
    gate, asking = asyncio.Event(), asyncio.Event()
    ask, begun = links.ask, [0]

    async def slow(peer: str, kind: Any, said: Any) -> Any:
        begun[0] += kind.method == "run_left"
        if begun[0] == LEFT_AT_ONCE:
            asking.set()
        if kind.method == "run_left":
            await gate.wait()
        return await ask(peer, kind, said)

    links.ask = slow  # type: ignore[method-assign]
    sending = asyncio.ensure_future(send(sender, *(LARGE + item for item in range(LEFT_AT_ONCE + 2))))
    await asyncio.wait_for(asking.wait(), WITHIN_S)
    assert len(files(tmp_path)) == 1 + LEFT_AT_ONCE, "a file each, beside who leaves them there"
    gate.set()
    await sending
    assert sorted(item for _, item, _, _ in taker.found) == list(range(LEFT_AT_ONCE + 2))
    for _, item, _, found in taker.found:
        np.testing.assert_array_equal(found, LARGE + item)
    assert files(tmp_path) == ["ends"]
    await sender.close()
    await receiver.close()


async def test_what_is_on_its_way_is_let_go_when_its_taker_is_gone(tmp_path: Path) -> None:
    sender, receiver, links, taker = near(tmp_path)
    asking, never = asyncio.Event(), asyncio.Event()
    ask = links.ask

    async def unanswered(peer: str, kind: Any, said: Any) -> Any:
        if kind.method == "run_left":
            asking.set()
            await never.wait()
        return await ask(peer, kind, said)

    links.ask = unanswered  # type: ignore[method-assign]
    sending = asyncio.ensure_future(send(sender, LARGE, LARGE + 1))
    await asyncio.wait_for(asking.wait(), WITHIN_S)
    sender.gone("there")
    await asyncio.gather(sending, return_exceptions=True)
    await asyncio.sleep(0)
    assert taker.found == []
    assert files(tmp_path) == ["ends"]
    await sender.close()
    await receiver.close()
