"""Decides how the model store is read over HTTP: manifests and blobs by hash, ranges, caching for ever."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import IO

from aiohttp import web

from planner.errors import PlannerError
from planner.model.store import Store
from signaling.guard import BadRange, parse_range
from signaling.http_connections import is_shortage
from signaling.metrics import Metrics

ENVELOPES = "envelopes.json"  # how long rows of a model are, in the store beside its manifest
MOST_BYTES = 1 << 20  # of that
CHUNK_BYTES = 256 * 1024  # read in a thread, one at a time per request
_HASH = re.compile(r"[0-9a-f]{64}")


def add_store_routes(app: web.Application, store: Store | None, metrics: Metrics) -> None:
    """GET and HEAD of /models/<id>/manifest.json and envelopes.json, and of /blobs/<sha256>; 404 what is not here."""

    async def manifest(request: web.Request) -> web.StreamResponse:
        model = _name(request, "model")
        if store is None:
            raise _absent("this server has no model store")
        try:
            data = await asyncio.to_thread(store.manifest_bytes, model)
        except PlannerError as error:
            raise _absent(f"model {model} is not here") from error
        headers = _headers(model)
        if _is_known(request, model):
            return web.Response(status=304, headers=headers)
        metrics.served.inc(len(data))
        return web.Response(body=data, content_type="application/json", headers=headers)

    async def envelopes(request: web.Request) -> web.StreamResponse:
        model = _name(request, "model")
        path = store.beside_manifest(model, ENVELOPES) if store is not None else None
        data = await asyncio.to_thread(_small_file, path) if path is not None else None
        if data is None:
            raise _absent(f"nothing was recorded of model {model} here")
        metrics.served.inc(len(data))
        return web.Response(body=data, content_type="application/json")

    async def blob(request: web.Request) -> web.StreamResponse:
        sha256 = _name(request, "sha256")
        if store is None:
            raise _absent("this server has no model store")
        try:
            path = store.blob_path(sha256)
            file = await asyncio.to_thread(open, path, "rb")
        except (PlannerError, OSError) as error:
            if is_shortage(error):
                raise
            raise _absent(f"blob {sha256} is not here") from error
        try:
            return await _send(request, file, sha256, metrics)
        finally:
            await asyncio.to_thread(file.close)

    app.router.add_get("/models/{model}/manifest.json", manifest)
    app.router.add_get(f"/models/{{model}}/{ENVELOPES}", envelopes)
    app.router.add_get("/blobs/{sha256}", blob)


def _small_file(path: Path) -> bytes | None:
    """What the file holds; None where there is none, or one that is too long to be right."""
    try:
        return path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError:
        return None


async def _send(request: web.Request, file: IO[bytes], sha256: str, metrics: Metrics) -> web.StreamResponse:
    size = os.fstat(file.fileno()).st_size
    headers = _headers(sha256)
    headers["Accept-Ranges"] = "bytes"
    if _is_known(request, sha256):
        return web.Response(status=304, headers=headers)
    if_range = request.headers.get("If-Range")
    try:
        wanted = (
            parse_range(request.headers.get("Range"), size) if if_range in (None, f'"{sha256}"') else None
        )
    except BadRange:
        headers["Content-Range"] = f"bytes */{size}"
        return web.Response(status=416, text=f"the blob has {size} bytes\n", headers=headers)
    start, stop = wanted or (0, size)
    if wanted:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    response = web.StreamResponse(status=206 if wanted else 200, headers=headers)
    response.content_type = "application/octet-stream"
    response.content_length = stop - start
    await response.prepare(request)
    if request.method != "HEAD":
        await asyncio.to_thread(file.seek, start)
        left = stop - start
        while left and (chunk := await asyncio.to_thread(file.read, min(left, CHUNK_BYTES))):
            await response.write(chunk)
            metrics.served.inc(len(chunk))
            left -= len(chunk)
    await response.write_eof()
    return response


def _name(request: web.Request, part: str) -> str:
    name = request.match_info[part]
    if not _HASH.fullmatch(name):
        raise _absent("models and blobs are named by 64 hex digits")
    return name


def _headers(name: str) -> dict[str, str]:
    return {
        "ETag": f'"{name}"',
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }


def _is_known(request: web.Request, name: str) -> bool:
    return any(tag.value in (name, "*") for tag in request.if_none_match or ())


def _absent(text: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=text + "\n")
