"""How a decoder is given the text that it writes another one of: by rows that an encoder makes of its tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.errors import CorruptStore
from planner.model.checked_fields import SHA256, Fields

MAX_AROUND: Final = 64  # tokens before and behind a text
TOKENS: Final = "tokens"  # inputs of an encoder, int64 and float32 (texts, tokens)
MASK: Final = "mask"
ENCODED: Final = "encoded"  # its output, float32 (texts, tokens, hidden)


@dataclass(frozen=True, slots=True)
class SourceText:
    """`encoder`: id of the model of units that makes `encoded` of `tokens` and `mask`. It reads `before`, the tokens of
    a source text and `behind`, at most `longest` together. A conversation begins with these rows, in the places of as
    many tokens `token`; `start` stands behind them, then the target text.
    """

    encoder: str
    longest: int
    token: int
    before: tuple[int, ...]
    behind: tuple[int, ...]
    start: tuple[int, ...]


def source_text_document(text: SourceText) -> dict[str, object]:
    """Returns the JSON form; source_text_of reads it."""
    return {
        "encoder": text.encoder,
        "longest": text.longest,
        "token": text.token,
        "before": list(text.before),
        "behind": list(text.behind),
        "start": list(text.start),
    }


def source_text_of(fields: Fields, vocab: int, context: int) -> SourceText:
    """Reads the JSON form in a manifest of that vocabulary and context. Raises CorruptStore."""
    encoder = fields.text("encoder", 64)
    if not SHA256.match(encoder):
        raise CorruptStore(f"{fields.place}.encoder: 64 lower-case hex digits expected")
    start = fields.counts("start", MAX_AROUND, vocab - 1)
    if not start:
        raise CorruptStore(f"{fields.place}.start: at least one token expected")
    return SourceText(
        encoder=encoder,
        longest=fields.count("longest", context - 1, least=1),
        token=fields.count("token", vocab - 1),
        before=fields.counts("before", MAX_AROUND, vocab - 1),
        behind=fields.counts("behind", MAX_AROUND, vocab - 1),
        start=start,
    )
