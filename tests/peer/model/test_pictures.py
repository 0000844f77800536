"""Pictures of strangers: what is read, what is refused before it is decoded, and how a question carries them."""

from __future__ import annotations

import io
import struct
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from peer.errors import BadPicture
from peer.model.picture_parts import MAX_BYTES, MAX_PICTURES, check_bytes, from_data_url
from peer.model.pictures import PictureJobs, apart, file_bytes, read_picture
from planner.importers.vision.preparing import Preparing, picture_graph

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
GRAPH = picture_graph(Preparing(8, None, "cubic", 1 / 255, (0.5,) * 3, (0.5,) * 3))


def file_of(pixels: Any = PIXELS, kind: str = "PNG", **how: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **how)
    return file.getvalue()


def png_head(width: int, height: int) -> bytes:
    """A PNG file whose head promises so many pixels, and has none."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((13, body), (0, b"IDAT"))
    packed = [
        struct.pack(">I", size) + chunk + struct.pack(">I", zlib.crc32(chunk)) for size, chunk in chunks
    ]
    return b"".join([b"\x89PNG\r\n\x1a\n", *packed])


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "WEBP", "JPEG"])
def test_colours_of_a_file(kind: str) -> None:
    how = {"lossless": True} if kind == "WEBP" else {}
    read = read_picture(file_of(kind=kind, **how))
    assert (read.shape, read.dtype) == ((4, 6, 3), np.uint8)
    if kind in ("PNG", "BMP", "WEBP"):
        np.testing.assert_array_equal(read, PIXELS)


def test_a_picture_is_turned_as_its_file_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    read = read_picture(file_of(exif=exif))
    np.testing.assert_array_equal(read, np.rot90(PIXELS, -1))


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "it is none of them"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "it is none of them"),
        (file_of(kind="BMP")[:80], "cannot be read"),
        (png_head(50_000, 50_000), "at most 16 million pixels expected, got far more"),
        (png_head(10_000, 10_000), "16 million pixels expected, got 10000 x 10000"),
        (png_head(5000, 4000), "16 million pixels expected, got 5000 x 4000"),
        (png_head(4000, 20), "at most 50 times the shorter expected, got 4000 x 20"),
    ],
)
def test_what_is_no_picture_is_refused_by_one_line(file: bytes, why: str) -> None:
    with pytest.raises(BadPicture) as caught:
        read_picture(file)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_are_counted_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(BadPicture, match="20 MiB expected"):
        check_bytes(MAX_BYTES + 1)
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadPicture, match="20 MiB expected"):
        file_bytes(large)
    with pytest.raises(BadPicture, match=r"none\.png cannot be read: No such file"):
        file_bytes(tmp_path / "none.png")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.org/a.png", "got one of 'https': nothing is fetched from other servers"),
        ("http://127.0.0.1/a.png", "got one of 'http'"),
        ("file:///etc/passwd", "got one of 'file'"),
        ("data:text/plain;base64,YQ==", "a data: URL of an image in base64 expected"),
        ("data:image/png,abc", "a data: URL of an image in base64 expected"),
        ("data:image/png;base64,!!!!", "in base64 expected, and this is none"),
    ],
)
def test_urls_that_are_not_read(url: str, why: str) -> None:
    with pytest.raises(BadPicture) as caught:
        from_data_url(url)
    assert why in str(caught.value)


def test_pictures_apart_from_a_question(tmp_path: Path) -> None:
    kept = tmp_path / "kept.png"
    kept.write_bytes(file_of())
    url = f"data:image/png;base64,{b64encode(file_of()).decode()}"
    parts = [
        {"type": "image", "image": kept},
        {"type": "text", "text": "and"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    turns, files = apart([{"role": "system", "content": "be short"}, {"role": "user", "content": parts}])
    assert files == [file_of(), file_of()]
    assert turns[1]["content"] == [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    turns, files = apart([{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}])
    assert (turns[0]["content"], files) == ("ab", [])
    with pytest.raises(BadPicture, match=f"at most {MAX_PICTURES} pictures"):
        apart([{"role": "user", "content": [{"type": "image", "image": file_of()}] * (MAX_PICTURES + 1)}])
    with pytest.raises(BadPicture, match="a part of a message is text"):
        apart([{"role": "user", "content": [{"type": "audio"}]}])


async def test_a_process_of_its_own_prepares_them() -> None:
    jobs = PictureJobs()
    try:
        made = await jobs.pixels(file_of(), GRAPH)
        assert (made.shape, made.dtype) == ((1, 3, 8, 8), np.float32)
        for file, graph, why in (
            (b"none", GRAPH, "it is none of them"),
            (file_of(), b"no graph", "the model's own steps fail on this picture"),
        ):
            with pytest.raises(BadPicture, match=why):
                await jobs.pixels(file, graph)
    finally:
        await jobs.close()
