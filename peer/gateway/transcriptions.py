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

from aiohttp import web

from peer.errors import ApiError, BadCommand, CannotServe, NoPlan, PeerError
from peer.gateway.request_queue import full, too_many
from peer.gateway.transcription_requests import SpeechRequest, answer, delta, done, failed, speech_request
from peer.gateway.uploads.forms import FileWanted, read_form
from peer.member.mesh_member import MeshMember
from peer.member.transcription import SpeechModels, Transcriber, open_transcriber
from peer.model.sound import Samples, decoded
from peer.model.speech_asked import Segment, Written
from peer.model.subtitles import plain
from peer.session.sampling import MAX_SEED
from planner.model.speech import RATE

WANTED: Final = FileWanted("recording", 25 << 20)  # as OpenAI's
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
    form = await read_form(request, file, WANTED)
    return speech_request(form.fields, int.from_bytes(os.urandom(6)) % (MAX_SEED + 1), translated=translated)
