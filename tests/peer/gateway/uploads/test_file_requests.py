"""What forms say of files, and which files are taken."""

from __future__ import annotations

import pytest

from peer.errors import ApiError
from peer.gateway.uploads.file_requests import FileRequest, file_request, media_of, name_of


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"purpose": "vision"}, FileRequest("vision", 86400)),
        (
            {
                "purpose": "user_data",
                "expires_after[anchor]": "created_at",
                "expires_after[seconds]": "3600",
            },
            FileRequest("user_data", 3600),
        ),
    ],
)
def test_fields_say_why_and_how_long(fields: dict[str, str], asked: FileRequest) -> None:
    assert file_request({name: [value] for name, value in fields.items()}, anthropic=False) == asked
    assert file_request({}, anthropic=True) == FileRequest("user_data", 86400)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "expected purpose vision"),
        ({"purpose": ["fine-tune"]}, "got 'fine-tune'"),
        ({"purpose": ["vision", "vision"]}, "given 2 times"),
        ({"purpose": ["vision"], "more": [""]}, "'more' is not supported"),
        ({"purpose": ["vision"], "expires_after[anchor]": ["now"]}, "created_at"),
        *(
            ({"purpose": ["vision"], "expires_after[seconds]": [each]}, "from 3600 to 2592000")
            for each in ("0", "3599", "2592001", "9" * 4000, "-1", "1e4", "\u0661" * 4, "")
        ),
    ],
)
def test_other_fields_are_refused_by_name(fields: dict[str, list[str]], why: str) -> None:
    with pytest.raises(ApiError, match=why):
        file_request(fields, anthropic=False)


def test_only_pictures_are_taken() -> None:
    heads = {
        b"\x89PNG\r\n\x1a\n\0\0\0\r": "image/png",
        b"\xff\xd8\xff\xe0": "image/jpeg",
        b"GIF89a": "image/gif",
        b"RIFF\0\0\0\0WEBP": "image/webp",
        b"BM": "image/bmp",
    }
    assert {head: media_of(head) for head in heads} == heads
    for head in (b"", b"%PDF-1.7", b"RIFF\0\0\0\0WAVE", b"<svg>", b"\x89PN"):
        with pytest.raises(ApiError, match="read no other files"):
            media_of(head)


def test_a_name_has_no_folders_and_no_control_characters() -> None:
    assert name_of("C:\\pictures\\cat.png") == "cat.png"
    assert name_of("../../etc/a\r\nb.png") == "ab.png"
    assert name_of("") == name_of("/") == "file"
    assert len(name_of("a" * 1000)) == 255
