"""What a hostile or broken peer can send: each fault has a name, ends that connection alone, and harms nobody else."""

from __future__ import annotations

import asyncio
import json
import random
import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiortc import rtcsctptransport

from peer.errors import ConnectionLost, FrameError
from peer.limits import PIECE_BYTES, WINDOW_BYTES
from peer.transport.connection import ConnectionState
from peer.transport.engines.aiortc_tuned import _Ready
from peer.transport.flow_control import Receiver, Sender
from peer.wire.frame_codec import channel_of, decode, encode
from peer.wire.generated.frames import Channel, Frame, Request

if TYPE_CHECKING:
    from tests.peer.transport.connected_pairs import Mesh

VECTORS_DIR = Path(__file__).parents[2] / "vectors"
FRAMES: tuple[Frame, ...] = runpy.run_path(str(VECTORS_DIR / "make_frames.py"))["FRAMES"]
VECTORS = json.loads((VECTORS_DIR / "frames.json").read_text(encoding="utf-8"))
MUTATIONS = 10_000
SEED = 20261127


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to four small faults in valid bytes."""
    broken = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(broken)) if broken else 0
        match rng.randrange(6):
            case 0 if broken:
                broken[at] ^= 1 << rng.randrange(8)
            case 1 if broken:
                broken[at] = rng.randrange(256)
            case 2:
                del broken[at:]
            case 3:
                broken[at:at] = rng.randbytes(rng.choice((1, 2, 5, 300)))
            case 4 if broken:
                del broken[at : at + rng.randint(1, 8)]
            case _:
                other = encode(rng.choice(FRAMES))
                broken[at:] = other[rng.randrange(len(other)) :]
    return bytes(broken)


def test_ten_thousand_mutated_frames_give_a_frame_or_a_named_error() -> None:
    rng = random.Random(SEED)
    seen: Counter[str] = Counter()
    for _ in range(MUTATIONS):
        frame = rng.choice(FRAMES)
        try:
            decoded = decode(mutate(rng, encode(frame)), channel_of(frame))
        except FrameError as error:
            seen["unexplained"] += "expected" not in str(error)
            seen[type(error).__name__] += 1
        else:
            assert decode(encode(decoded)) == decoded
            seen["a frame"] += 1
    assert {"TruncatedFrame", "WrongField", "UnknownKind", "WrongTensor", "WrongChannel"} <= set(seen), seen
    assert seen["a frame"] < MUTATIONS // 2, seen
    assert not seen["unexplained"]


def test_ten_thousand_random_headers_give_a_named_error() -> None:
    rng = random.Random(SEED + 1)
    for _ in range(MUTATIONS):
        header = rng.randbytes(rng.randrange(60))
        with pytest.raises(FrameError):
            decode(len(header).to_bytes(4, "little") + header)


@pytest.mark.parametrize("seed", range(40))
def test_mutated_streams_of_pieces(seed: int) -> None:
    """Whole runs of pieces with faults, drops, repeats and swaps: frames or a named error, within bounds."""
    rng = random.Random(seed)
    sender, receiver = Sender(Channel.DATA), Receiver(Channel.DATA)
    for number in range(12):
        sender.push(
            bytes([number]) * rng.choice((10, 3000, PIECE_BYTES, 60_000)), (rng.choice((b"a", b"b")),)
        )
    pieces: list[bytes] = []
    while piece := sender.next(0):
        pieces.append(piece)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(pieces))
        match rng.randrange(4):
            case 0:
                pieces[at] = mutate(rng, pieces[at])
            case 1:
                del pieces[at]
            case 2:
                pieces.insert(at, pieces[rng.randrange(len(pieces))])
            case _:
                other = rng.randrange(len(pieces))
                pieces[at], pieces[other] = pieces[other], pieces[at]
    for piece in pieces:
        try:
            receiver.accept(piece)
        except FrameError:
            return


WIRE = {
    row["why"]: (Channel(row["channel"]), bytes.fromhex(row["hex"]), row["error"])
    for row in VECTORS["reject"]
}
CHOSEN = [
    "header longer than the frame",
    "msgpack's unused byte",
    "a nest of arrays",
    "kind 0",
    "PING on data",
    "true for an integer",
    "step with a byte too few",
    "a payload after PING",
]


@pytest.mark.parametrize("why", CHOSEN)
async def test_a_broken_frame_drops_that_peer_alone(mesh: Mesh, why: str) -> None:
    channel, data, error = WIRE[why]
    a, b = await mesh.pair()
    c, d = await mesh.pair()
    a.connection._engine.send(channel, b"\x13" + data if data else b"\x13")
    await b.connection.wait_closed()
    await a.connection.wait_closed()
    assert type(b.connection.error).__name__ == error
    assert a.connection.reason.startswith(f"{error}: ")
    c.connection.send(Request(1, "still", b"here"))
    await d.until(lambda: d.frames == [Request(1, "still", b"here")])
    assert d.connection.state is ConnectionState.OPEN


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b""], "TruncatedFrame"),
        ([b"\x13" + bytes(PIECE_BYTES)], "OversizeFrame"),
        ([b"\x11\xff\xff\xff\xff" + bytes(100)], "OversizeFrame"),
        ([b"\x10" + bytes(100)], "WrongPiece"),
        ([b"\x11\x40\x00\x00\x00" + bytes(10)] * 2, "WrongPiece"),
        (["text"], "WrongPiece"),
        ([b"\x11" + (2 * WINDOW_BYTES).to_bytes(4, "little") + bytes(PIECE_BYTES - 5)]
         + [b"\x10" + bytes(PIECE_BYTES - 1)] * (WINDOW_BYTES // PIECE_BYTES), "CreditExceeded"),
    ],
    ids=["empty", "too long", "4 GiB announced", "no beginning", "two beginnings", "text", "beyond credit"],
)  # fmt: skip
async def test_broken_pieces_drop_the_peer(
    mesh: Mesh, engine: str, pieces: list[bytes | str], error: str
) -> None:
    a, b = await mesh.pair(("aiortc", engine))
    b.connection.hold()
    channel = a.connection._engine._channels[Channel.DATA]  # type: ignore[attr-defined]
    for piece in pieces:
        channel.send(piece)
    await b.connection.wait_closed()
    await a.connection.wait_closed()
    assert type(b.connection.error).__name__ == error
    assert a.connection.reason.startswith(f"{error}: ")


async def test_mutated_frames_over_a_real_connection(mesh: Mesh, engines: tuple[str, str]) -> None:
    """Twelve peers in turn send valid frames with faults until they are dropped; one good pair lives through it."""
    rng = random.Random(SEED + 2)
    good, friend = await mesh.pair(engines)
    for turn in range(3):
        a, b = await mesh.pair(engines)
        for _ in range(400):
            if (
                a.connection.state is not ConnectionState.OPEN
                or b.connection.state is not ConnectionState.OPEN
            ):
                break
            frame = rng.choice(FRAMES)
            a.connection._engine.send(channel_of(frame), mutate(rng, b"\x13" + encode(frame)) or b"\x00")
            good.connection.send(Request(turn, "still", b"here"))
            await friend.until(lambda: bool(friend.frames))
            friend.frames.clear()
        await b.connection.wait_closed()
        assert isinstance(b.connection.error, FrameError) or b.connection.reason
    assert friend.connection.state is ConnectionState.OPEN


@pytest.mark.parametrize("fault", ["text that is not UTF-8", "a DATA chunk cut short", "two INIT chunks"])
async def test_broken_sctp_drops_the_peer_alone(mesh: Mesh, engine: str, fault: str) -> None:
    a, b = await mesh.pair(("aiortc", engine))
    c, d = await mesh.pair(("aiortc", engine))
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    sctp = a.connection._engine._pc.sctp  # type: ignore[attr-defined]
    match fault:
        case "text that is not UTF-8":
            channel = a.connection._engine._channels[Channel.DATA]  # type: ignore[attr-defined]
            sctp._data_channel_queue.append((channel, rtcsctptransport.WEBRTC_STRING, b"\xff\xfe"))
            await sctp._data_channel_flush()
        case "a DATA chunk cut short":
            await sctp._send_chunk(_Ready(b"\x00\x03\x00\x08\x00\x00\x00\x01"))
        case _:
            init = bytes(rtcsctptransport.InitChunk())
            await sctp._send_chunk(_Ready(init + init))
    c.connection.send(Request(1, "still", b"here"))
    await d.until(lambda: d.frames == [Request(1, "still", b"here")])
    if engine == "aiortc":  # libdatachannel throws such packets away and goes on
        await b.connection.wait_closed()
        assert isinstance(b.connection.error, ConnectionLost | FrameError)
    assert not faults
