"""Flow: traces shared with TypeScript, random runs against the promises, and bounds."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from peer.errors import BackpressureExceeded, FrameError
from peer.limits import (
    HIGH_WATER_BYTES,
    LOW_WATER_BYTES,
    MAX_BUFFERED_BYTES,
    MAX_DATA_FRAME_BYTES,
    PIECE_BYTES,
    WINDOW_BYTES,
)
from peer.transport.flow_control import Receiver, Sender
from peer.wire.generated.frames import Channel

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "frames.json").read_text(encoding="utf-8"))
FILL = b"\x13" + bytes(PIECE_BYTES - 1)


def short(piece: bytes) -> dict[str, Any]:
    head = piece[:5] if piece and piece[0] & 3 == 1 else piece[:1]
    body = piece[len(head) :]
    assert len(set(body)) <= 1
    return {"head": head.hex(), "bytes": len(body), "fill": body[0] if body else 0}


def accepted(receiver: Receiver, piece: bytes) -> Any:
    try:
        frame = receiver.accept(piece)
    except FrameError as error:
        return {"error": type(error).__name__}
    return None if frame is None else {"bytes": len(frame), "fill": frame[0]}


@pytest.mark.parametrize("trace", VECTORS["flow"], ids=lambda trace: trace["name"])
def test_traces(trace: dict[str, Any]) -> None:
    sender, receiver = Sender(Channel(trace["channel"])), Receiver(Channel(trace["channel"]))
    for op in trace["ops"]:
        match op:
            case {"do": "push", "bytes": size, "fill": fill, "orders": orders}:
                sender.push(bytes([fill]) * size, tuple(key.encode() for key in orders))
            case {"do": "next", "buffered": buffered_bytes, "piece": wanted}:
                piece = sender.next(buffered_bytes)
                assert (None if piece is None else short(piece)) == wanted
            case {"do": "accept", "piece": piece, "gives": wanted}:
                data = bytes.fromhex(piece["head"]) + bytes([piece["fill"]]) * piece["bytes"]
                assert accepted(receiver, data) == wanted
            case {"do": "credit", "total": total_bytes}:
                sender.grant(total_bytes)
            case {"do": "grant", "gives": wanted}:
                assert receiver.grant() == wanted
            case {"do": "hold"}:
                receiver.hold()
            case {"do": "release"}:
                receiver.release()
            case {"do": "drain"}:
                while drained := sender.next(0):
                    receiver.accept(drained)
            case {"do": "fill"}:
                for _ in range(WINDOW_BYTES // PIECE_BYTES):
                    receiver.accept(FILL)
            case _:
                pytest.fail(f"unknown operation {op}")


@pytest.mark.parametrize("seed", range(20))
def test_random_runs_keep_order_credit_and_bounds(seed: int) -> None:
    """Frames of a key arrive in order and whole; the engine never holds more than its bound."""
    rng = random.Random(seed)
    sender, receiver = Sender(Channel.DATA), Receiver(Channel.DATA)
    wire: list[bytes] = []
    sent: dict[bytes, list[bytes]] = {}
    got: dict[bytes, list[bytes]] = {}
    number = 0
    while number < 150 or wire or sender.queued_bytes:
        if number < 150 and rng.random() < 0.5:
            order = rng.choice((b"a", b"b", b"c", b"d"))
            size = rng.choice(
                (5, 40, 2400, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES, 300_000, 2_000_000)
            )
            frame = order + number.to_bytes(4, "little") + bytes(size)
            sender.push(frame, (order,))
            sent.setdefault(order, []).append(frame)
            number += 1
        buffered_bytes = sum(map(len, wire))
        while piece := sender.next(buffered_bytes):
            assert len(piece) <= PIECE_BYTES
            wire.append(piece)
            buffered_bytes += len(piece)
        assert buffered_bytes <= MAX_BUFFERED_BYTES
        for _ in range(rng.randrange(8)):
            if wire:
                frame_or_none = receiver.accept(wire.pop(0))
                if frame_or_none is not None:
                    got.setdefault(frame_or_none[:1], []).append(frame_or_none)
        if (total_bytes := receiver.grant()) is not None and rng.random() < 0.9:
            sender.grant(total_bytes)
        elif total_bytes is not None:
            sender.grant(total_bytes - 1)  # an older total, then the right one
            sender.grant(total_bytes)
    assert got == sent
    assert sender.queued_bytes == 0
    assert sender.sent_bytes == receiver.received_bytes


def test_the_longest_frame_passes_through_a_smaller_window() -> None:
    sender, receiver = Sender(Channel.DATA), Receiver(Channel.DATA)
    sender.push(bytes(MAX_DATA_FRAME_BYTES), (b"s",))
    frame = None
    while (piece := sender.next(0)) is not None:
        frame = receiver.accept(piece)
        if (total_bytes := receiver.grant()) is not None:
            sender.grant(total_bytes)
    assert frame is not None
    assert len(frame) == MAX_DATA_FRAME_BYTES


def test_the_queue_is_bounded() -> None:
    sender = Sender(Channel.DATA, max_queued_bytes=1000)
    sender.push(bytes(600), (b"s",))
    with pytest.raises(BackpressureExceeded, match="wait for drained"):
        sender.push(bytes(401), (b"s",))
    assert sender.next(0) is not None
    sender.push(bytes(1000), (b"s",))


def test_water_marks_agree() -> None:
    assert 0 < LOW_WATER_BYTES < HIGH_WATER_BYTES
    assert HIGH_WATER_BYTES + PIECE_BYTES <= MAX_BUFFERED_BYTES <= WINDOW_BYTES
