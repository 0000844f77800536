"""Files that a program sends once and names later: their fields, and how they are told in both APIs. Pure.

OpenAI's `/v1/files` and Anthropic's are one address; the answers differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from peer.errors import ApiError
from peer.model.picture_parts import MAX_BYTES

KEPT_S: Final = 24 * 3600  # unless a form says otherwise
LEAST_KEPT_S: Final = 3600  # as OpenAI's
MOST_KEPT_S: Final = 30 * 24 * 3600
PURPOSES: Final = ("vision", "user_data", "assistants")
HEAD_BYTES: Final = 12  # of a file, which tell what kind of picture it is
MAX_NAME: Final = 255
_FIELDS: Final = ("purpose", "expires_after[anchor]", "expires_after[seconds]")


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A picture that was sent before, by its id. `where`: of the request that names it."""

    id: str
    where: str


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What a form says of the file in it. `kept_s`: how long it is kept."""

    purpose: str
    kept_s: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that is kept. Times are in seconds since 1970."""

    id: str
    name: str
    media: str
    size: int
    purpose: str
    created: int
    expires: int


def file_request(fields: Mapping[str, Sequence[str]], *, anthropic: bool) -> FileRequest:
    """Reads the fields of a form beside its file, each with all its values. Raises ApiError."""
    for name, values in fields.items():
        if name not in _FIELDS or anthropic:
            raise ApiError(
                f"the field {name!r:.80} is not supported", param=name[:80], code="unsupported_parameter"
            )
        if len(values) > 1:
            raise ApiError(f"the field {name} is given {len(values)} times, expected once", param=name)
    said = {name: values[0] for name, values in fields.items()}
    purpose = "user_data" if anthropic else said.get("purpose", "")
    if purpose not in PURPOSES:
        raise ApiError(f"expected purpose {', '.join(PURPOSES)}, got {purpose!r:.40}", param="purpose")
    if said.get("expires_after[anchor]", "created_at") != "created_at":
        raise ApiError("expected expires_after[anchor] created_at", param="expires_after[anchor]")
    kept = said.get("expires_after[seconds]", str(KEPT_S))
    if not (kept.isascii() and kept.isdecimal() and LEAST_KEPT_S <= int(kept[:9]) <= MOST_KEPT_S):
        raise ApiError(
            f"expected expires_after[seconds] from {LEAST_KEPT_S} to {MOST_KEPT_S}, got {kept!r:.40}",
            param="expires_after[seconds]",
        )
    return FileRequest(purpose, int(kept))


def media_of(head: bytes) -> str:
    """The media type of the picture whose first HEAD_BYTES bytes are `head`. Raises ApiError for another file."""
    for start, media in (
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"BM", "image/bmp"),
    ):
        if head.startswith(start):
            return media
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    raise ApiError(
        f"a picture of at most {MAX_BYTES >> 20} MiB expected (PNG, JPEG, WEBP, GIF, BMP): the models of this mesh "
        "read no other files",
        param="file",
    )


def name_of(given: str) -> str:
    """What a file is called, without its folders."""
    bare = given.replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in bare if letter.isprintable())[:MAX_NAME] or "file"


def shown(entry: FileEntry, *, anthropic: bool) -> dict[str, Any]:
    """The object of a file."""
    if anthropic:
        return {
            "type": "file",
            "id": entry.id,
            "filename": entry.name,
            "mime_type": entry.media,
            "size_bytes": entry.size,
            "created_at": datetime.fromtimestamp(entry.created, UTC).isoformat().replace("+00:00", "Z"),
            "downloadable": True,
        }
    return {
        "id": entry.id,
        "object": "file",
        "bytes": entry.size,
        "created_at": entry.created,
        "expires_at": entry.expires,
        "filename": entry.name,
        "purpose": entry.purpose,
        "status": "processed",
    }


def shown_list(entries: Sequence[FileEntry], *, anthropic: bool) -> dict[str, Any]:
    """All files of one client, the newest first."""
    ids = [entry.id for entry in entries]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    data = [shown(entry, anthropic=anthropic) for entry in entries]
    kind = {} if anthropic else {"object": "list"}
    return {**kind, "data": data, "has_more": False, "first_id": first, "last_id": last}


def shown_gone(identifier: str, *, anthropic: bool) -> dict[str, Any]:
    """The answer to a removal."""
    if anthropic:
        return {"id": identifier, "type": "file_deleted"}
    return {"id": identifier, "object": "file", "deleted": True}
