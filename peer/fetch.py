"""Gets manifests and blobs from a model store over HTTP into the local store, piece by piece, each checked.

Edge. Interrupted downloads go on where they stopped; a piece with a wrong hash is never written.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import aiohttp

from peer.errors import CannotServe, PeerError
from planner.errors import CorruptStore, NotInStore, PlannerError
from planner.manifest import Manifest, decode_manifest
from planner.store import MANIFEST_LIMIT_BYTES, PIECE_BYTES, BlobRef, BlobWriter, Store

PARALLEL_PIECES = 4  # enough to fill a link whose round trip is long, few enough for a phone's memory
ATTEMPTS = 4  # per piece, with growing pauses; the store may be restarting
PIECE_TIMEOUT_S = 120.0  # 4 MiB in this time is 35 KB/s, slower than any link worth using

Progress = Callable[[int, int], None]  # bytes that are here, bytes in all


class Fetcher:
    """Downloads from the model store at `base_url` (scheme, host, port) into `store`."""

    def __init__(self, store: Store, base_url: str) -> None:
        self._store = store
        self._base_url = base_url.rstrip("/")
        self._whole: set[str] = set()  # blobs whose bytes this process has checked
        self.network_bytes = 0  # fetched so far; 0 when everything was here already

    async def manifest(self, model_id: str) -> Manifest:
        """The manifest of `model_id`, from disk or network; its hash is the id."""
        try:
            data = await asyncio.to_thread(self._store.manifest_bytes, model_id)
        except (NotInStore, CorruptStore):
            async with self._client() as client:
                url = f"{self._base_url}/models/{model_id}/manifest.json"
                data = await self._read(client, url, None, MANIFEST_LIMIT_BYTES)
            if hashlib.sha256(data).hexdigest() != model_id:
                text = f"the manifest at {self._base_url} is not that of model {model_id[:12]}; do not use this server"
                raise CannotServe(text) from None
            await asyncio.to_thread(self._store.put_manifest, data)
        return decode_manifest(data)

    async def blobs(self, refs: Sequence[BlobRef], progress: Progress | None = None) -> None:
        """Brings every blob of `refs` into the store. Raises CannotServe when a source fails for good."""
        missing = [ref for ref in refs if not await asyncio.to_thread(self._is_whole, ref)]
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

    def _is_whole(self, ref: BlobRef) -> bool:
        """Whether the blob is here and every piece of it has its hash: disks flip bits, too. Looked at once."""
        if ref.sha256 not in self._whole:
            try:
                self._store.verify_blob(ref)
            except (NotInStore, CorruptStore):
                return False
            self._whole.add(ref.sha256)
        return True

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
            self._whole.add(ref.sha256)
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
        ref = writer.ref
        first = index * PIECE_BYTES
        span = (first, first + ref.piece_bytes(index) - 1)
        async with room:
            piece = await self._read(
                client, f"{self._base_url}/blobs/{ref.sha256}", span, ref.piece_bytes(index)
            )
            await asyncio.to_thread(writer.write_piece, index, piece)
        more(len(piece))

    async def _read(
        self, client: aiohttp.ClientSession, url: str, span: tuple[int, int] | None, limit: int
    ) -> bytes:
        """The body at `url` (bytes `span`, inclusive), at most `limit` bytes."""
        headers = {"Range": f"bytes={span[0]}-{span[1]}"} if span is not None else {}
        trouble = ""
        for attempt in range(ATTEMPTS):
            try:
                async with client.get(url, headers=headers) as response:
                    if response.status not in (200, 206):
                        trouble = f"it answered {response.status}"
                        if response.status in (403, 404, 410):
                            break
                    elif (body := await _bounded(response, limit)) is not None:
                        self.network_bytes += len(body)
                        return body
                    else:
                        trouble = f"it sent more than the {limit} bytes asked for"
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                trouble = str(error) or type(error).__name__
            await asyncio.sleep(0.2 * 2**attempt)
        raise CannotServe(
            f"cannot fetch {url.rsplit('/', 2)[-2]} from {self._base_url}: {trouble}; is the mesh still up?"
        )

    @staticmethod
    def _client() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PIECE_TIMEOUT_S))


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
