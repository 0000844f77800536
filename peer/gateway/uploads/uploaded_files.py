"""`/v1/files`: pictures that a program sends once and asks about by their id. Edge.

They lie in a temporary folder that goes with the gateway, each for whoever sent it alone, within bounds.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from peer.errors import ApiError
from peer.gateway.request_queue import full
from peer.gateway.uploads.file_requests import (
    HEAD_BYTES,
    FileEntry,
    Uploaded,
    file_request,
    media_of,
    name_of,
    shown,
    shown_gone,
    shown_list,
)
from peer.gateway.uploads.forms import FileWanted, read_form
from peer.model.picture_parts import MAX_BYTES

FILES: Final = "/v1/files"
WANTED: Final = FileWanted("picture", MAX_BYTES)
MOST_OF_CLIENT: Final = 64
MOST_BYTES: Final = (
    1 << 30
)  # of all clients together, those that are on their way counted with MAX_BYTES each
RETRY_AFTER_S: Final = 60


class UploadedFiles:
    """Of one gateway. `client_of` says whose request it is, `is_anthropic` in whose form it is answered."""

    def __init__(
        self, client_of: Callable[[web.Request], str], is_anthropic: Callable[[web.Request], bool]
    ) -> None:
        self._client_of = client_of
        self._is_anthropic = is_anthropic
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._entries: dict[str, dict[str, FileEntry]] = {}  # by client and id, as they came
        self._arriving: list[str] = []  # clients

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Adds the routes."""
        router.add_post(FILES, self._take)
        router.add_get(FILES, self._list)
        router.add_get(f"{FILES}/{{id}}", self._one)
        router.add_get(f"{FILES}/{{id}}/content", self._content)
        router.add_delete(f"{FILES}/{{id}}", self._remove)

    def close(self) -> None:
        """Removes all files."""
        self._entries.clear()
        if self._folder is not None:
            self._folder.cleanup()

    async def pictures(self, request: web.Request, found: Sequence[bytes | Uploaded]) -> tuple[bytes, ...]:
        """The files of the pictures of a request. Raises ApiError for an id that its client has not."""
        return tuple([each if isinstance(each, bytes) else await self._read(request, each) for each in found])

    async def _read(self, request: web.Request, named: Uploaded) -> bytes:
        entry = self._known(request, named.id, named.where)
        return await asyncio.to_thread(self._path(entry.id).read_bytes)

    def _path(self, identifier: str) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="shoal-files-")
        return Path(self._folder.name) / identifier

    def _own(self, client: str) -> dict[str, FileEntry]:
        """What is kept of a client, without what has expired."""
        now = time.time()
        for each, entries in [*self._entries.items()]:
            for entry in [entry for entry in entries.values() if entry.expires <= now]:
                self._drop(each, entry.id)
        return self._entries.get(client, {})

    def _drop(self, client: str, identifier: str) -> None:
        del self._entries[client][identifier]
        if not self._entries[client]:
            del self._entries[client]
        self._path(identifier).unlink(missing_ok=True)

    def _known(self, request: web.Request, identifier: str, where: str = "id") -> FileEntry:
        entry = self._own(self._client_of(request)).get(identifier)
        if entry is None:
            raise ApiError(
                f"no file {identifier!r:.80} of yours is here: send it to {FILES} first", 404, param=where
            )
        return entry

    # --- routes

    async def _take(self, request: web.Request) -> web.Response:
        client, anthropic = self._client_of(request), self._is_anthropic(request)
        if len(self._own(client)) + self._arriving.count(client) >= MOST_OF_CLIENT:
            raise ApiError(f"{MOST_OF_CLIENT} files of yours are here: remove some first", 413)
        kept = sum(entry.size for entries in self._entries.values() for entry in entries.values())
        if kept + (len(self._arriving) + 1) * MAX_BYTES > MOST_BYTES:
            raise full("more files are kept here than there is room for: try again later", RETRY_AFTER_S)
        identifier = f"file-{secrets.token_hex(12)}"
        path = self._path(identifier)
        self._arriving.append(client)
        try:
            form = await read_form(request, path, WANTED)
            asked = file_request(form.fields, anthropic=anthropic)
            with path.open("rb") as file:
                media = media_of(file.read(HEAD_BYTES))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            self._arriving.remove(client)
        now = int(time.time())
        entry = FileEntry(
            identifier, name_of(form.filename), media, form.size, asked.purpose, now, now + asked.kept_s
        )
        self._entries.setdefault(client, {})[identifier] = entry
        return web.json_response(shown(entry, anthropic=anthropic))

    async def _list(self, request: web.Request) -> web.Response:
        entries = [*reversed(self._own(self._client_of(request)).values())]
        return web.json_response(shown_list(entries, anthropic=self._is_anthropic(request)))

    async def _one(self, request: web.Request) -> web.Response:
        entry = self._known(request, request.match_info["id"])
        return web.json_response(shown(entry, anthropic=self._is_anthropic(request)))

    async def _content(self, request: web.Request) -> web.Response:
        entry = self._known(request, request.match_info["id"])
        body = await asyncio.to_thread(self._path(entry.id).read_bytes)
        return web.Response(body=body, content_type=entry.media)

    async def _remove(self, request: web.Request) -> web.Response:
        entry = self._known(request, request.match_info["id"])
        self._drop(self._client_of(request), entry.id)
        return web.json_response(shown_gone(entry.id, anthropic=self._is_anthropic(request)))
