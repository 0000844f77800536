"""Blobs from other peers and from the store: real connections, a real HTTP server, and sources that lie or vanish."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from peer.errors import CannotServe, ConnectionLost
from peer.member.peer_parts import PeerParts
from peer.model import fetcher as fetch
from peer.model.fetcher import Fetcher, PieceSource
from peer.model.piece_exchange import Pieces
from peer.wire.generated.frames import PieceRequest
from planner.model.manifest import Manifest
from planner.model.store import PIECE_BYTES, BlobRef, Store
from tests.peer.loopback_members import state_of, town, until

BYTES = os.urandom(PIECE_BYTES * 3 + 1000)  # four pieces


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(fetch, "SLOW_S", 300.0)  # machines that run tests may be busy


@dataclass
class Shop:
    """A model store over HTTP that counts, and may lie."""

    body: bytes = BYTES
    given_bytes: int = 0
    url: str = ""

    async def blob(self, request: web.Request) -> web.Response:
        first, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
        body = self.body[int(first) : int(last) + 1]
        self.given_bytes += len(body)
        return web.Response(status=206, body=body)


@asynccontextmanager
async def shop(body: bytes = BYTES) -> AsyncIterator[Shop]:
    made = Shop(body)
    app = web.Application()
    app.router.add_get("/blobs/{sha256}", made.blob)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def shelf(node: PeerParts, store: Store, ref: BlobRef) -> Pieces:
    manifest: Any = SimpleNamespace(blobs=lambda *_: (ref,), units=(), tokenizer=ref)
    node.model.store = store
    node.model.know(cast(Manifest, manifest))
    assert node.model.pieces is not None
    return node.model.pieces


@asynccontextmanager
async def pair(tmp_path: Path) -> AsyncIterator[tuple[PeerParts, PeerParts, Store, Store, BlobRef]]:
    """A connected pair: `a` has the blob, `b` does not."""
    there, here = Store(tmp_path / "a"), Store(tmp_path / "b")
    ref = there.put_blob([BYTES])
    async with town() as nodes:
        a, b = nodes.add("a"), nodes.add("b")
        for node in (a, b):
            node.view.obey(state_of("a", "b"))
        shelf(a, there, ref)
        shelf(b, here, ref)
        await b.links.dialer.dial("a")
        yield a, b, there, here, ref


def from_peer(node: PeerParts, peer: str, *, last_resort: bool = False) -> PieceSource:
    pieces = node.model.pieces
    assert pieces is not None

    def get(ref: BlobRef, index: int) -> Awaitable[bytes]:
        return pieces.fetch(peer, bytes.fromhex(ref.pieces[index]), ref.piece_bytes(index))

    return PieceSource(peer, get, last_resort)


async def test_every_byte_comes_from_the_peer_that_has_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b, _, here, ref), shop() as store:
        told: list[tuple[int, int]] = []
        fetcher = Fetcher(here, store.url, lambda _: [from_peer(b, "a")])
        await fetcher.blobs([ref], lambda done, total: told.append((done, total)))
        assert here.blob_path(ref.sha256).read_bytes() == BYTES
        assert store.given_bytes == fetcher.network_bytes == 0
        assert fetcher.peer_bytes == ref.bytes
        assert a.model.pieces is not None
        assert a.model.pieces.given_bytes == ref.bytes
        assert told[-1] == (ref.bytes, ref.bytes)
        await fetcher.blobs([ref])  # all of it is here
        assert fetcher.peer_bytes == ref.bytes


async def test_a_peer_that_gives_a_wrong_piece_is_found_out(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b, _, here, ref), shop() as store:
        giver = a.model.pieces
        assert giver is not None
        read = giver._read
        asked: list[bytes] = []

        def lie(frame: PieceRequest) -> bytes:
            asked.append(frame.sha256)
            return bytes(len(read(frame)))

        giver._read = lie  # type: ignore[method-assign]
        said: list[str] = []
        fetcher = Fetcher(here, store.url, lambda _: [from_peer(b, "a")], said.append)
        await fetcher.blobs([ref])
        assert here.blob_path(ref.sha256).read_bytes() == BYTES
        assert store.given_bytes == ref.bytes
        assert fetcher.peer_bytes == 0
        assert said
        assert set(said) == {"a gave wrong bytes; it is not asked again"}
        asked.clear()
        second = os.urandom(100)
        other = Store(tmp_path / "c").put_blob([second])
        store.body = second
        await fetcher.blobs([other])
        assert asked == []


async def test_without_the_server_whoever_has_it_gives_it(tmp_path: Path) -> None:
    """Even the last resort, the coordinator, which is not asked while its server answers."""
    async with pair(tmp_path) as (a, b, _, here, ref), shop() as store:
        source = from_peer(b, "a", last_resort=True)
        fetcher = Fetcher(here, "http://127.0.0.1:9", lambda _: [source])
        await fetcher.blobs([ref])
        assert here.blob_path(ref.sha256).read_bytes() == BYTES
        other = Store(tmp_path / "c")
        await Fetcher(other, store.url, lambda _: [source]).blobs([ref])
        assert store.given_bytes == ref.bytes
        assert a.model.pieces is not None
        assert a.model.pieces.given_bytes == ref.bytes  # of the first time


async def test_a_peer_that_goes_in_the_middle_is_replaced_by_the_store(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b, _, here, ref), shop() as store:
        giver = a.model.pieces
        assert giver is not None
        read = giver._read
        loop = asyncio.get_running_loop()

        def vanish(frame: PieceRequest) -> bytes:
            if frame.offset:
                loop.call_soon_threadsafe(b.links.disconnected, "a", "the cable was pulled", False)
            return read(frame)

        giver._read = vanish  # type: ignore[method-assign]

        def sources(_: BlobRef) -> list[PieceSource]:
            return [from_peer(b, "a")]

        fetcher = Fetcher(here, store.url, sources)
        await fetcher.blobs([ref])
        assert here.blob_path(ref.sha256).read_bytes() == BYTES
        assert store.given_bytes > 0


async def test_peers_share_the_work_and_no_one_is_asked_for_everything_at_once(tmp_path: Path) -> None:
    there, here = Store(tmp_path / "a"), Store(tmp_path / "b")
    ref = there.put_blob([os.urandom(PIECE_BYTES * 8)])
    whole = there.blob_path(ref.sha256).read_bytes()
    busy, most, given = dict.fromkeys("xyz", 0), dict.fromkeys("xyz", 0), dict.fromkeys("xyz", 0)

    def source(peer: str) -> PieceSource:
        async def get(ref: BlobRef, index: int) -> bytes:
            busy[peer] += 1
            most[peer] = max(most[peer], busy[peer])
            await asyncio.sleep(0.001)
            busy[peer] -= 1
            if peer == "z":
                raise ConnectionLost("gone")
            given[peer] += 1
            return whole[index * PIECE_BYTES : index * PIECE_BYTES + ref.piece_bytes(index)]

        return PieceSource(peer, get)

    await Fetcher(here, "http://127.0.0.1:9", lambda _: [source(p) for p in "xyz"]).blobs([ref])
    assert max(most.values()) <= 2
    assert given["x"] > 0
    assert given["y"] > 0
    assert given["x"] + given["y"] == 8


async def test_when_nobody_has_it_the_reason_is_said(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, b, _, here, ref), shop(bytes(len(BYTES))) as store:
        stranger = BlobRef("0" * 64, 4, ("1" * 64,))
        fetcher = Fetcher(here, "http://127.0.0.1:9", lambda _: [from_peer(b, "a")])
        with pytest.raises(
            CannotServe, match=r"cannot fetch piece 0 of 0{12} from http://127\.0\.0\.1:9: .*still up"
        ):
            await fetcher.blobs([stranger])
        said: list[str] = []
        with pytest.raises(CannotServe, match="other bytes than were asked for"):
            await Fetcher(here, store.url, warn=said.append).blobs([ref])
        assert set(said) == {f"{store.url} gave wrong bytes; it is not asked again"}


async def test_a_stopped_download_goes_on_where_it_was(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b, _, here, ref), shop() as store:
        writer = here.writer(ref)
        writer.write_piece(1, BYTES[PIECE_BYTES : 2 * PIECE_BYTES])
        writer.close()
        fetcher = Fetcher(here, store.url, lambda _: [from_peer(b, "a")])
        await fetcher.blobs([ref])
        assert fetcher.peer_bytes == ref.bytes - PIECE_BYTES
        assert a.model.pieces is not None
        assert not b.model.pieces or not b.model.pieces._asked
        await until(lambda: not a.model.pieces or not a.model.pieces._waiting)
