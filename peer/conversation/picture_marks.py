"""Decides how a message of a conversation says that a picture was asked with: a line for each before its words. Pure.

The log has the hash of the file and a description, never the picture: whoever asked has it, nobody else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_ALT: Final = 200  # characters of a description
_MARKS: Final = re.compile(r"(?:!\[[^\[\]\n]{0,200}\]\(picture:[0-9a-f]{64}\)\n){1,16}")
_MARK: Final = re.compile(r"!\[([^\[\]\n]{0,200})\]\(picture:([0-9a-f]{64})\)\n")
# What JavaScript's \s is, and brackets.
_UNSAYABLE: Final = re.compile(r"[\[\]\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")


@dataclass(frozen=True, slots=True)
class PictureMark:
    """A picture that a message has: the SHA-256 of its file, and what is to be seen on it in words."""

    sha256: str
    alt: str


@dataclass(frozen=True, slots=True)
class Marked:
    """What a message says: its pictures in order, and its words."""

    pictures: tuple[PictureMark, ...]
    words: str


def marked_text(marked: Marked) -> str:
    """The text of a message with these pictures."""
    lines = [
        f"![{_UNSAYABLE.sub(' ', each.alt).strip(' ')[:MAX_ALT]}](picture:{each.sha256})\n"
        for each in marked.pictures
    ]
    return "".join(lines) + marked.words


def unmarked_text(text: str) -> Marked:
    """The pictures and the words of a message; marks that stand anywhere else than before its words are words."""
    found = _MARKS.match(text)
    marks = found[0] if found is not None else ""
    pictures = tuple(PictureMark(sha256, alt) for alt, sha256 in _MARK.findall(marks))
    return Marked(pictures, text[len(marks) :])


def told_text(text: str) -> str:
    """A message for a model that is not shown its pictures, and for readers: "[picture: a cat]" and the words."""
    marked = unmarked_text(text)
    lines = [f"[picture{f': {each.alt}' if each.alt else ''}]\n" for each in marked.pictures]
    return "".join(lines) + marked.words
