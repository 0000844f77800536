"""The tokenizer of a Marian folder (source.spm, vocab.json) as a tokenizer.json.

SentencePiece cuts a source text into pieces by their scores in source.spm, vocab.json numbers the pieces of both
languages. A target text is its pieces one after the other, so target.spm is not needed. source.spm is a protobuf: the
few fields that matter are read here, every length checked.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.errors import CorruptModel, UnknownTokenizer
from planner.importers.hf_config import read_file, read_json

SOURCE: Final = "source.spm"
VOCABULARY: Final = "vocab.json"
FOLDER_FILES: Final = (SOURCE, VOCABULARY)
UNKNOWN: Final = "<unk>"
SPECIAL: Final = ("</s>", UNKNOWN, "<pad>")
SPACE: Final = "\u2581"
UNSCORED: Final = -1e6  # of each letter of a piece of the target language, taken where nothing else fits
MOST_PIECES: Final = 1 << 20
MOST_CHARS: Final = 1 << 10  # of a piece
_NORMAL, _CONTROL, _BYTE = 1, (2, 3), 6  # types of pieces; unknown and control
_UNIGRAM: Final = 1  # type of a model


@dataclass(frozen=True, slots=True)
class Pieces:
    """What source.spm says: scores of pieces, and the map by which SentencePiece normalizes characters."""

    scores: Mapping[str, float]
    characters: bytes


def marian_tokenizer(folder: Path) -> bytes:
    """A tokenizer.json. Raises UnknownTokenizer, CorruptModel."""
    content, words = read_file(folder, SOURCE), read_json(folder, VOCABULARY)
    if content is None or words is None:
        raise UnknownTokenizer(f"{folder.name} has neither tokenizer.json nor {SOURCE} and {VOCABULARY}")
    pieces = pieces_of(content, f"{folder.name}: {SOURCE}")
    where = f"{folder.name}: {VOCABULARY}"
    if not 0 < len(words) <= MOST_PIECES or sorted(map(str, words.values())) != sorted(
        map(str, range(len(words)))
    ):
        raise CorruptModel(f"{where} should number 1 to {MOST_PIECES} pieces from 0 on, each once")
    for special in SPECIAL:
        if special not in words:
            raise CorruptModel(f"{where} should have {special}")
    ordered = sorted(words, key=lambda piece: int(words[piece]))
    return json.dumps(_tokenizer(ordered, words, pieces), ensure_ascii=False).encode()


def _tokenizer(ordered: list[str], words: Mapping[str, int], pieces: Pieces) -> dict[str, Any]:
    charsmap = base64.b64encode(pieces.characters).decode()
    normalizers: list[dict[str, Any]] = (
        [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if pieces.characters else []
    )
    normalizers += [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": False}
    languages = [piece for piece in ordered if piece.startswith(">>") and piece.endswith("<<")]
    added = [
        {
            "id": words[piece],
            "content": piece,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            "special": piece in SPECIAL,
        }
        for piece in sorted((*SPECIAL, *languages), key=lambda piece: words[piece])
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": spaces,
        "post_processor": None,
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": words[UNKNOWN],
            "vocab": [[piece, pieces.scores.get(piece, UNSCORED * len(piece))] for piece in ordered],
            "byte_fallback": False,
        },
    }


def pieces_of(content: bytes, where: str) -> Pieces:
    """What a SentencePiece model says. Raises UnknownTokenizer for one that cuts texts otherwise, CorruptModel."""
    scores: dict[str, float] = {}
    characters, prefixes = b"", True
    for number, value in _fields(content, where):
        if number == 1 and isinstance(value, bytes):
            piece, score, kind = _piece(value, where)
            if kind == _BYTE:
                raise UnknownTokenizer(f"{where}: pieces of bytes are not supported")
            if kind not in _CONTROL:
                scores[piece] = score
            if len(scores) > MOST_PIECES:
                raise CorruptModel(f"{where}: at most {MOST_PIECES} pieces expected")
        elif number == 2 and isinstance(value, bytes):
            kinds = [each for field, each in _fields(value, where) if field == 3]
            if kinds and kinds[-1] != _UNIGRAM:
                raise UnknownTokenizer(
                    f"{where}: a model of the type unigram expected, got {kinds[-1]!r:.20}"
                )
        elif number == 3 and isinstance(value, bytes):
            for field, each in _fields(value, where):
                if field == 2 and isinstance(each, bytes):
                    characters = each
                elif field in (3, 4, 5) and each == 0:
                    prefixes = False
    if not prefixes:
        raise UnknownTokenizer(f"{where}: spaces that are marked, joined and put before texts expected")
    if not scores:
        raise CorruptModel(f"{where}: a SentencePiece model expected, found no piece")
    return Pieces(scores, characters)


def _piece(content: bytes, where: str) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, _NORMAL
    for field, value in _fields(content, where):
        if field == 1 and isinstance(value, bytes):
            try:
                text = value.decode()
            except UnicodeDecodeError:
                raise CorruptModel(f"{where}: pieces in UTF-8 expected") from None
        elif field == 2 and isinstance(value, float):
            score = value
        elif field == 3 and isinstance(value, int):
            kind = value
    if not 0 < len(text) <= MOST_CHARS or not math.isfinite(score):
        raise CorruptModel(f"{where}: pieces of 1 to {MOST_CHARS} characters with finite scores expected")
    return text, score, kind


def _fields(content: bytes, where: str) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protobuf message: whole numbers, float32 and bytes. Raises CorruptModel."""
    at, ends_early = (
        0,
        CorruptModel(f"{where}: the file ends early or is no SentencePiece model: download it again"),
    )

    def number() -> int:
        nonlocal at
        found = 0
        for shift in range(0, 70, 7):
            if at >= len(content):
                raise ends_early
            byte = content[at]
            at += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ends_early

    def taken(count: int) -> bytes:
        nonlocal at
        if count > len(content) - at:
            raise ends_early
        at += count
        return content[at - count : at]

    while at < len(content):
        key = number()
        match key & 7:
            case 0:
                yield key >> 3, number()
            case 1:
                taken(8)
            case 2:
                yield key >> 3, taken(number())
            case 5:
                (found,) = struct.unpack("<f", taken(4))
                yield key >> 3, found
            case _:
                raise ends_early
