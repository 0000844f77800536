"""`/v1/audio/transcriptions` and `/v1/audio/translations`: recordings that come in, and what is said in them. Edge.

A recording goes to a file as it comes, within bounds; it is decoded in a process of its own, and written by a model
that the mesh offers.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from aiohttp import BodyPartReader, web

from peer.errors import ApiError, BadCommand, CannotServe, NoPlan, PeerError
from peer.gateway.request_queue import full, too_many
from peer.gateway.transcription_requests import SpeechRequest, answer, delta, done, failed, speech_request
from peer.member.mesh_member import MeshMember
from peer.member.transcription import SpeechModels, Transcriber, open_transcriber
from peer.model.sound import Samples, decoded
from peer.model.speech_asked import Segment, Written
from peer.model.subtitles import plain
from peer.session.sampling import MAX_SEED
from planner.model.speech import RATE

MAX_FILE_BYTES: Final = 25 << 20  # as OpenAI's
MAX_OTHER_BYTES: Final = 64 << 10  # of all other fields and marks between them
MAX_FIELDS: Final = 32
WITHIN_S: Final = 120.0  # from a request's head to the end of its body
MOST: Final = 16  # recordings at a time, on their way or being written
MOST_OF_CLIENT: Final = 4
RETRY_AFTER_S: Final = 5


class Transcriptions:
    """Of one gateway."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self._models = SpeechModels(mesh)
        self._open: dict[tuple[str, str], Transcriber] = {}  # by name and id
        self._opening = asyncio.Lock()
        self._of_client: Counter[str] = Counter()

    async def close(self) -> None:
        """Gives the memory of models back."""
        for each in self._open.values():
            await each.close()

    async def answer(
        self, request: web.Request, client: str, headers: dict[str, str], *, translated: bool
    ) -> web.StreamResponse:
        """Answers a request. Raises ApiError; PeerError of the mesh."""
        with self._place(client), tempfile.TemporaryDirectory(prefix="recording-") as folder:
            file = Path(folder) / "recording"
            asked = await _received(request, file, translated=translated)
            model = await self._model(asked.model)
            try:
                model.check(asked.asked)
                samples = await decoded(file)
            except BadCommand as error:
                raise ApiError(str(error)) from None
            if asked.stream:
                return await _streamed(request, model, asked, samples, headers)
            parts, language = list[Segment](), ""
            async with _windows(model, asked, samples) as windows:
                async for window in windows:
                    parts += window.segments
                    language = window.language
            body, kind = answer(asked, parts, language, len(samples) / RATE)
            return web.Response(text=body, content_type=kind, charset="utf-8")

    @contextmanager
    def _place(self, client: str) -> Iterator[None]:
        if self._of_client[client] >= MOST_OF_CLIENT:
            raise too_many("too many recordings of one client are being written: send fewer", RETRY_AFTER_S)
        if self._of_client.total() >= MOST:
            raise full("more recordings come in than there is room for: try again", RETRY_AFTER_S)
        self._of_client[client] += 1
        try:
            yield
        finally:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]

    async def _model(self, called: str) -> Transcriber:
        """Raises ApiError where there is none of that name."""
        async with self._opening:
            await self._models.look()
            try:
                name = self._models.pick(called)
            except CannotServe as error:
                raise ApiError(str(error), param="model", code="model_not_supported") from None
            except NoPlan as error:
                raise ApiError(str(error), 404, param="model", code="model_not_found") from None
            key = (name, self._models.found[name])
            if key not in self._open:
                self._open[key] = await open_transcriber(self._mesh, name)
            return self._open[key]


@asynccontextmanager
async def _windows(
    model: Transcriber, asked: SpeechRequest, samples: Samples
) -> AsyncIterator[AsyncIterator[Written]]:
    async with aclosing(model.written(samples, asked.asked)) as windows:
        yield windows


async def _streamed(
    request: web.Request, model: Transcriber, asked: SpeechRequest, samples: Samples, headers: dict[str, str]
) -> web.StreamResponse:
    """Words as they are written, a window at a time."""
    response = web.StreamResponse(
        headers={**headers, "Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    parts: list[Segment] = []
    try:
        async with _windows(model, asked, samples) as windows:
            async for window in windows:
                if not response.prepared:
                    await response.prepare(request)
                parts += window.segments
                for part in window.segments:
                    if part.text:
                        await response.write(delta(part.text))
    except PeerError as problem:
        if not response.prepared:
            raise
        await response.write(failed(str(problem)))
        return response
    if not response.prepared:
        await response.prepare(request)
    await response.write(done(plain(parts), len(samples) / RATE))
    return response


async def _received(request: web.Request, file: Path, *, translated: bool) -> SpeechRequest:
    """What a form asks; its recording is in `file` then. Raises ApiError."""
    if request.content_type != "multipart/form-data":
        raise ApiError("expected Content-Type: multipart/form-data, with the fields file and model", 415)
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError("a request's body is sent as it is here, without Content-Encoding", 415)
    if (request.content_length or 0) > MAX_FILE_BYTES + MAX_OTHER_BYTES:
        raise _too_large()
    fields: dict[str, list[str]] = {}
    has_file, left = False, MAX_OTHER_BYTES
    try:
        async with asyncio.timeout(WITHIN_S):
            reader = await request.multipart()
            while (part := await reader.next()) is not None:
                if not isinstance(part, BodyPartReader) or part.name is None:
                    raise ApiError("expected fields with names, none inside another")
                if part.name == "file" and not has_file:
                    await _keep(part, file)
                    has_file = True
                    continue
                value = await _small(part, left)
                left -= len(value) + len(part.name)
                fields.setdefault(part.name, []).append(_text(part.name, value))
                if left < 0 or sum(map(len, fields.values())) > MAX_FIELDS:
                    raise ApiError(
                        f"a form has up to {MAX_FIELDS} fields and {MAX_OTHER_BYTES} bytes of them", 413
                    )
    except TimeoutError:
        raise ApiError(f"the body did not come within {WITHIN_S:g} s", 408) from None
    except (ValueError, AssertionError, web.RequestPayloadError) as error:
        raise ApiError(f"expected a form of type multipart/form-data: {str(error)[:200]}") from None
    if not has_file:
        raise ApiError("expected the field file with a recording", param="file")
    return speech_request(fields, int.from_bytes(os.urandom(6)) % (MAX_SEED + 1), translated=translated)


async def _keep(part: BodyPartReader, file: Path) -> None:
    size = 0
    with file.open("wb") as made:
        while chunk := await part.read_chunk(64 << 10):
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                raise _too_large()
            made.write(chunk)


async def _small(part: BodyPartReader, left: int) -> bytes:
    found = bytearray()
    while chunk := await part.read_chunk(8 << 10):
        found += chunk
        if len(found) > left:
            raise ApiError(f"a form has up to {MAX_OTHER_BYTES} bytes beside its recording", 413)
    return bytes(found)


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ApiError(f"the field {name!r:.80} should be UTF-8", param=name) from None


def _too_large() -> ApiError:
    return ApiError(
        f"a recording has up to {MAX_FILE_BYTES} bytes here", 413, code="request_too_large", param="file"
    )
