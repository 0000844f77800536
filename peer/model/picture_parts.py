"""Decides which pictures of a message are taken: their bytes, their number, their size. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

from peer.errors import BadPicture

PICTURE: Final = "image"  # the type of a part, as chat templates read it
MAX_BYTES: Final = 20 << 20  # of one file
MAX_PIXELS: Final = 16_000_000
MAX_RATIO: Final = 50  # of its sides: the shorter one is resized to some hundreds
MAX_PICTURES: Final = 16  # of one conversation


def check_bytes(count: int) -> None:
    """Raises BadPicture for a file that is larger than may be read."""
    if count > MAX_BYTES:
        raise BadPicture(
            f"a picture of at most {MAX_BYTES >> 20} MiB expected, got {count} bytes: take a smaller one"
        )


def check_size(width: int, height: int) -> None:
    """Raises BadPicture for a picture of more pixels than may be, or one that is all length."""
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise BadPicture(
            f"a picture of at most {MAX_PIXELS // 1_000_000} million pixels expected, got {width} x {height}: take a "
            "smaller one"
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise BadPicture(
            f"a picture whose longer side is at most {MAX_RATIO} times the shorter expected, got {width} x {height}"
        )


def check_count(pictures: Sequence[object]) -> None:
    """Raises BadPicture for more than one conversation may have."""
    if len(pictures) > MAX_PICTURES:
        raise BadPicture(f"at most {MAX_PICTURES} pictures in one conversation expected, got {len(pictures)}")


def from_data_url(url: str) -> bytes:
    """The bytes of a picture in a data: URL. Raises BadPicture, by name for one of another server."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:"):
        scheme = head.partition(":")[0][:20]
        raise BadPicture(
            f"a picture as a data: URL expected, got one of {scheme!r}: nothing is fetched from other servers, send "
            "its bytes"
        )
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        raise BadPicture("a data: URL of an image in base64 expected (data:image/png;base64,...)")
    return from_base64(body)


def from_base64(body: str) -> bytes:
    """Its bytes. Raises BadPicture."""
    check_bytes(len(body) // 4 * 3)
    try:
        return b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        raise BadPicture("the bytes of a picture in base64 expected, and this is none") from None
