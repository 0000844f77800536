"""Gets manifests and blobs into the local store, piece by piece, from the first source that has them.

Edge. Other peers first, then the model store over HTTP, then whoever is asked only if need be. Interrupted downloads
go on where they stopped; a piece with a wrong hash is never written, and who gave it is not asked again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp

from peer.errors import CannotServe, PeerError
from peer.transport.listeners import Listeners
from planner.errors import CorruptStore, NotInStore, PlannerError
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import MANIFEST_LIMIT_BYTES, PIECE_BYTES, BlobRef, BlobWriter, Store

PARALLEL_PIECES: Final = 4  # enough to fill a link whose round trip is long, few enough for a phone's memory
PIECES_OF_ONE: Final = 2  # at a time from one peer, which may be in the middle of an answer
ATTEMPTS: Final = 4  # rounds over all sources, with growing pauses; the store may be restarting
FIRST_PAUSE_S: Final = 0.2
SLOW_S: Final = 10.0  # a peer that takes longer for a piece, 400 KB/s, is asked only if need be
PIECE_TIMEOUT_S: Final = 120.0  # 4 MiB in this time is 35 KB/s, slower than any link worth using
STORE_TIMES: Final = aiohttp.ClientTimeout(total=PIECE_TIMEOUT_S, sock_connect=5.0, sock_read=15.0)

T = TypeVar("T")
Progress = Callable[[int, int], None]  # bytes that are here, bytes in all
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PieceSource:
    """A peer that may have pieces of a blob. `get(ref, index)` raises a PeerError when it does not, or cannot give it.

    With `last_resort` it is asked when the store is not there: it is the store's own machine.
    """

    peer: str
    get: Callable[[BlobRef, int], Awaitable[bytes]]
    last_resort: bool = False


Sources = Callable[[BlobRef], Sequence[PieceSource]]


def nobody(_: BlobRef) -> Sequence[PieceSource]:
    """No peer is asked."""
    return ()


class Fetcher:
    """Downloads into `store` from the peers in `sources(ref)`, and from the model store at `base_url`.

    `warn` is told in a sentence of a source that gave wrong bytes.
    """

    def __init__(
        self,
        store: Store,
        base_url: str,
        sources: Sources = nobody,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        self._store = store
        self._base_url = base_url.rstrip("/")
        self._sources = sources
        self._warn = warn
        self._banned: set[str] = set()  # peers, and "" for the store: they gave wrong bytes
        self._wrong = "nobody"  # what was wrong with the last of them
        self._slow: set[str] = set()
        self._busy: Counter[str] = Counter()  # pieces on their way from each peer
        self._freed = asyncio.Event()
        self.network_bytes = 0  # from the store over HTTP so far; 0 when everything was here or with peers
        self.peer_bytes = 0  # of pieces from other peers
        self._on_given = Listeners[Callable[[str, BlobRef, int], None]]()

    def on_given(self, listener: Callable[[str, BlobRef, int], None]) -> Callable[[], None]:
        """Calls `listener(peer, ref, piece)` for each piece that a peer gave, until what is returned is called."""
        return self._on_given.add(listener)

    async def manifest(self, model_id: str) -> Manifest:
        """The manifest of `model_id`, from disk or network; its hash is the id."""
        return decode_manifest(await self._manifest_bytes(model_id))

    async def graph_manifest(self, model_id: str) -> GraphManifest:
        """The same of a model that is a graph of units."""
        data = await self._manifest_bytes(model_id)
        return await asyncio.to_thread(
            decode_graph_manifest, data
        )  # thousands of units, of somebody's making

    async def _manifest_bytes(self, model_id: str) -> bytes:
        try:
            data = await asyncio.to_thread(self._store.manifest_bytes, model_id)
        except (NotInStore, CorruptStore):
            async with self._client() as client:
                url = f"{self._base_url}/models/{model_id}/manifest.json"
                data = await self._insist(
                    lambda: self._read(client, "the manifest", url, None, MANIFEST_LIMIT_BYTES)
                )
            if hashlib.sha256(data).hexdigest() != model_id:
                text = f"the manifest at {self._base_url} is not that of model {model_id[:12]}; do not use this server"
                raise CannotServe(text) from None
            await asyncio.to_thread(self._store.put_manifest, data)
        return data

    async def beside(self, model_id: str, name: str, most_bytes: int) -> bytes | None:
        """A file that the store has beside that manifest; None where it has none, or does not answer."""
        url = f"{self._base_url}/models/{model_id}/{name}"
        try:
            async with self._client() as client:
                return await self._read(client, name, url, None, most_bytes)
        except CannotServe:
            return None

    async def blobs(self, refs: Sequence[BlobRef], progress: Progress | None = None) -> None:
        """Brings every blob of `refs` into the store. Raises CannotServe when no source has a piece."""
        missing = [ref for ref in refs if not await asyncio.to_thread(self._store.is_sound, ref)]
        total = sum(ref.bytes for ref in refs)
        here = total - sum(ref.bytes for ref in missing)

        def more(count: int) -> None:
            nonlocal here
            here += count
            if progress is not None:
                progress(here, total)

        more(0)
        if not missing:
            return
        room = asyncio.Semaphore(PARALLEL_PIECES)
        async with self._client() as client:
            for ref in missing:
                await self._blob(client, ref, room, more)

    async def _blob(
        self,
        client: aiohttp.ClientSession,
        ref: BlobRef,
        room: asyncio.Semaphore,
        more: Callable[[int], None],
    ) -> None:
        writer = await asyncio.to_thread(self._store.writer, ref)
        try:
            wanted = writer.missing()
            more(ref.bytes - sum(ref.piece_bytes(index) for index in wanted))
            try:
                async with asyncio.TaskGroup() as tasks:
                    for index in wanted:
                        tasks.create_task(self._piece(client, writer, index, room, more))
            except* (PeerError, PlannerError) as group:
                raise group.exceptions[0] from None
            await asyncio.to_thread(writer.commit)
        finally:
            writer.close()

    async def _piece(
        self,
        client: aiohttp.ClientSession,
        writer: BlobWriter,
        index: int,
        room: asyncio.Semaphore,
        more: Callable[[int], None],
    ) -> None:
        async with room:
            await self._insist(lambda: self._from_somebody(client, writer, index))
        more(writer.ref.piece_bytes(index))

    async def _insist(self, once: Callable[[], Awaitable[T]]) -> T:
        """Several rounds with growing pauses: the store may be restarting, peers come and go."""
        for attempt in range(ATTEMPTS - 1):
            try:
                return await once()
            except _Gone:
                raise
            except CannotServe:
                await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
        return await once()

    # --- one piece

    async def _from_somebody(self, client: aiohttp.ClientSession, writer: BlobWriter, index: int) -> None:
        """One round over all sources."""
        ref = writer.ref
        asked: set[str] = set()
        while (source := await self._free(ref, asked)) is not None:
            asked.add(source.peer)
            if await self._from_peer(source, writer, index):
                return
        trouble: CannotServe | None = None
        if "" not in self._banned:
            first, size = index * PIECE_BYTES, ref.piece_bytes(index)
            url, what = f"{self._base_url}/blobs/{ref.sha256}", f"piece {index} of {ref.sha256[:12]}"
            try:
                piece = await self._read(client, what, url, (first, first + size - 1), size)
                if await self._keep("", writer, index, piece):
                    return
            except CannotServe as error:
                trouble = error
        for source in self._sources(ref):
            unasked = source.peer not in asked | self._banned
            if unasked and await self._from_peer(source, writer, index):
                return
        raise trouble or CannotServe(
            f"cannot fetch piece {index} of {ref.sha256[:12]}: whoever has it gave other bytes than were asked for"
            f" ({self._wrong})"
        )

    async def _free(self, ref: BlobRef, asked: set[str]) -> PieceSource | None:
        """The least busy of the preferred peers, waited for; None when none of them is left to ask."""
        while True:
            out = asked | self._banned | self._slow
            sources = [s for s in self._sources(ref) if not s.last_resort and s.peer not in out]
            if not sources:
                return None
            source = min(sources, key=lambda s: (self._busy[s.peer], s.peer))
            if self._busy[source.peer] < PIECES_OF_ONE:
                return source
            self._freed.clear()
            await self._freed.wait()

    async def _from_peer(self, source: PieceSource, writer: BlobWriter, index: int) -> bool:
        self._busy[source.peer] += 1
        started = time.monotonic()
        try:
            piece = await source.get(writer.ref, index)
        except PeerError as error:
            log.info("no piece from %s: %s", source.peer[:8], error)
            return False
        finally:
            self._busy[source.peer] -= 1
            self._freed.set()
            if time.monotonic() - started > SLOW_S:
                self._slow.add(source.peer)
        if not await self._keep(source.peer, writer, index, piece):
            return False
        self.peer_bytes += len(piece)
        for listener in self._on_given:
            listener(source.peer, writer.ref, index)
        return True

    async def _keep(self, giver: str, writer: BlobWriter, index: int, piece: bytes) -> bool:
        """Writes the piece if it is the right one; its giver is not asked again otherwise."""
        try:
            await asyncio.to_thread(writer.write_piece, index, piece)
        except CorruptStore as error:
            self._banned.add(giver)
            self._wrong = str(error).partition(";")[0]
            self._warn(f"{giver or self._base_url} gave wrong bytes; it is not asked again")
            return False
        return True

    async def _read(
        self, client: aiohttp.ClientSession, what: str, url: str, span: tuple[int, int] | None, limit: int
    ) -> bytes:
        """The body at `url` (bytes `span`, inclusive), at most `limit` bytes; `what` it is, for people."""
        headers = {"Range": f"bytes={span[0]}-{span[1]}"} if span is not None else {}
        kind: type[CannotServe] = CannotServe
        try:
            async with client.get(url, headers=headers) as response:
                if response.status not in (200, 206):
                    trouble = f"it answered {response.status}"
                    kind = _Gone if response.status in (403, 404, 410) else CannotServe
                elif (body := await _bounded(response, limit)) is not None:
                    self.network_bytes += len(body)
                    return body
                else:
                    trouble = f"it sent more than the {limit} bytes asked for"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            trouble = str(error) or type(error).__name__
        raise kind(f"cannot fetch {what} from {self._base_url}: {trouble}; is the mesh still up?")

    @staticmethod
    def _client() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=STORE_TIMES)


class _Gone(CannotServe):
    """The store says for good that it does not have it."""


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """The whole body, or None when it is longer than `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(256 * 1024):
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
    return b"".join(parts)
