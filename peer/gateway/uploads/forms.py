"""Forms (multipart/form-data) that hold one file: the file goes to disk as it comes, the fields are counted. Edge."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import BodyPartReader, web

from peer.errors import ApiError

MAX_OTHER_BYTES: Final = 64 << 10  # of all other fields and marks between them
MAX_FIELDS: Final = 32
WITHIN_S: Final = 120.0  # from a request's head to the end of its body


@dataclass(frozen=True, slots=True)
class FileWanted:
    """What the field `file` of a form holds, in words, and how many bytes at most."""

    what: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadForm:
    """The other fields, each with all its values; what the file is called, "" where that was not said; its bytes."""

    fields: dict[str, list[str]]
    filename: str
    size: int


async def read_form(request: web.Request, file: Path, wanted: FileWanted) -> ReadForm:
    """Reads a form whose file is in `file` then. Raises ApiError."""
    if request.content_type != "multipart/form-data":
        raise ApiError("expected Content-Type: multipart/form-data, with the field file", 415)
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError("a request's body is sent as it is here, without Content-Encoding", 415)
    if (request.content_length or 0) > wanted.max_bytes + MAX_OTHER_BYTES:
        raise _too_large(wanted)
    fields: dict[str, list[str]] = {}
    size, filename, left = -1, "", MAX_OTHER_BYTES
    try:
        async with asyncio.timeout(WITHIN_S):
            reader = await request.multipart()
            while (part := await reader.next()) is not None:
                if not isinstance(part, BodyPartReader) or part.name is None:
                    raise ApiError("expected fields with names, none inside another")
                if part.name == "file" and size < 0:
                    size, filename = await _keep(part, file, wanted), part.filename or ""
                    continue
                value = await _small(part, left, wanted)
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
    if size < 0:
        raise ApiError(f"expected the field file with a {wanted.what}", param="file")
    return ReadForm(fields, filename, size)


async def _keep(part: BodyPartReader, file: Path, wanted: FileWanted) -> int:
    size = 0
    with file.open("wb") as made:
        while chunk := await part.read_chunk(64 << 10):
            size += len(chunk)
            if size > wanted.max_bytes:
                raise _too_large(wanted)
            made.write(chunk)
    return size


async def _small(part: BodyPartReader, left: int, wanted: FileWanted) -> bytes:
    found = bytearray()
    while chunk := await part.read_chunk(8 << 10):
        found += chunk
        if len(found) > left:
            raise ApiError(f"a form has up to {MAX_OTHER_BYTES} bytes beside its {wanted.what}", 413)
    return bytes(found)


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ApiError(f"the field {name!r:.80} should be UTF-8", param=name) from None


def _too_large(wanted: FileWanted) -> ApiError:
    return ApiError(
        f"a {wanted.what} has up to {wanted.max_bytes} bytes here",
        413,
        code="request_too_large",
        param="file",
    )
