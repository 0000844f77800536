"""One policy for standard streams of any encoding: what a stream cannot say is spelled by what it can. Edge.

Files that commands write are UTF-8, and JSON on standard output is ASCII with escapes, so nothing in them is lost.
"""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from typing import Final

POLICY: Final = "shoal.nearest"  # the name of the error handler
UNSAYABLE: Final = "?"
_SPELLED: Final = (
    dict.fromkeys("‐‑‒–—―−·─━╌╴╶", "-")
    | dict.fromkeys("│┃", "|")
    | dict.fromkeys("‘’‚′", "'")
    | dict.fromkeys("“”„″«»", '"')
    | {"…": "...", "•": "*", "→": "->", "←": "<-", "↔": "<->", "×": "x", "≤": "<=", "≥": ">=", "≈": "~"}
    | {
        "ß": "ss",
        "æ": "ae",
        "Æ": "AE",
        "œ": "oe",
        "Œ": "OE",
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "€": "EUR",
    }
)
_BOXES: Final = range(0x2500, 0x2580)


def nearest(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs: ASCII for the characters that an encoding lacks, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_spelled, error.object[error.start : error.end])), error.end


def _spelled(character: str) -> str:
    if character in _SPELLED:
        return _SPELLED[character]
    if ord(character) in _BOXES:
        return "+"
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # belongs to the character before it
        return ""
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or UNSAYABLE


def take_any_text() -> None:
    """From here on the standard streams fail on no text: output by `nearest`, input with U+FFFD for what is none."""
    codecs.register_error(POLICY, nearest)
    for stream, errors in ((sys.stdout, POLICY), (sys.stderr, POLICY), (sys.stdin, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def can_say(stream: object, text: str) -> bool:
    """Whether the encoding of `stream` has every character of `text`."""
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
