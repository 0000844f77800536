"""Values in parts: what is sent comes whole on the other side; parts that no peer sends are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array
from peer.errors import BadCommand, ConnectFailed, WrongTensor
from peer.limits import MAX_RANGE_BYTES
from peer.transport.value_exchange import MAX_OPEN, ValueExchange
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Frame, RunValue
from planner.model.graph_manifest import Value

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
