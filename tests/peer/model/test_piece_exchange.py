"""Pieces for other peers: what is asked for and here, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.errors import BadCommand, ConnectionLost
from peer.model.piece_exchange import MAX_WAITING, Pieces
from peer.transport.connection import Connection
from peer.wire.generated.frames import Frame, Piece, PieceRequest
from planner.model.manifest import Manifest
from planner.model.store import PIECE_BYTES, BlobRef, Store
from tests.patience import WITHIN_S

BYTES = bytes(range(256)) * 20_000  # two pieces


@dataclass
class Line:
    """Stands for the connection: keeps what was sent."""

    sent: list[Frame] = field(default_factory=list)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)
        self.bell.set()

    async def drained(self) -> None:
        return

    async def answers(self, count: int) -> list[Piece]:
        async with asyncio.timeout(WITHIN_S):
            while len(self.sent) < count:
                self.bell.clear()
                await self.bell.wait()
        return [frame for frame in self.sent if isinstance(frame, Piece)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def nowhere(peer: str, frame: Frame) -> None:
    raise ConnectionLost(f"{peer} is not there")


def shelf(store: Store, line: Line | None) -> tuple[Pieces, BlobRef]:
    blob = store.put_blob([BYTES])
    absent = BlobRef("0" * 64, 4, ("1" * 64,))
    manifest: Any = SimpleNamespace(blobs=lambda *_: (blob, absent), units=(), tokenizer=blob)
    return Pieces(store, cast(Manifest, manifest), lambda _: cast(Connection, line), nowhere), blob


async def test_ranges_of_pieces(store: Store) -> None:
    line = Line()
    pieces, blob = shelf(store, line)
    second = bytes.fromhex(blob.pieces[1])
    last = len(BYTES) - PIECE_BYTES
    asked = (
        (PieceRequest(1, bytes.fromhex(blob.pieces[0]), 5, 10), BYTES[5:15]),
        (PieceRequest(2, second, 0, 1000), BYTES[PIECE_BYTES : PIECE_BYTES + 1000]),
        (PieceRequest(3, second, last - 3, 1000), BYTES[-3:]),
        (PieceRequest(4, second, last, 1), b""),
        (PieceRequest(5, bytes(32), 0, 1), b""),
        (PieceRequest(6, bytes.fromhex("1" * 64), 0, 1), b""),  # of a blob that is not in the store
    )
    for request, _ in asked:
        pieces.requested("b", request)
    answers = await line.answers(len(asked))
    assert answers == [Piece(request.id, 0 if body else 1, body) for request, body in asked]
    assert pieces.given_bytes == sum(len(body) for _, body in asked)
    await pieces.close()


async def test_floods_are_refused_and_a_lost_connection_ends_it(store: Store) -> None:
    pieces, blob = shelf(store, None)
    request = PieceRequest(1, bytes.fromhex(blob.pieces[0]), 0, 1)
    for _ in range(MAX_WAITING):
        pieces.requested("b", request)
    with pytest.raises(BadCommand, match="16 open requests"):
        pieces.requested("b", request)
    await pieces.close()
    assert pieces.given_bytes == 0


async def test_what_is_lent_is_bounded_and_stays_as_long_as_the_last_who_asked(store: Store) -> None:
    line = Line()
    pieces, _ = shelf(store, line)
    for name in b"abc":
        pieces.lend(bytes([name]) * 32, bytes([name]) * 10, most_bytes=20)
    pieces.lend(b"b" * 32, b"b" * 10, most_bytes=20)  # the same for another peer
    pieces.forget(b"b" * 32)
    for number, name in enumerate(b"abc"):
        pieces.requested("b", PieceRequest(number, bytes([name]) * 32, 0, 10))
    assert [piece.body for piece in await line.answers(3)] == [b"", b"b" * 10, b"c" * 10]
    pieces.lend(b"d" * 32, b"d" * 50, most_bytes=20)
    assert pieces.lent_bytes == 50, "the last one stays, however large"
    for name in b"abcd":
        pieces.forget(bytes([name]) * 32)
    assert pieces.lent_bytes == 0
    await pieces.close()
