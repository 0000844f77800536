"""The beginning of a prompt as a stage knows it: how many positions, and a hash over what goes in there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WORDS: Final = 4  # of `sampling`, behind the settings: how many positions, and the hash
WORD_BYTES: Final = 6
HASH_BYTES: Final = (WORDS - 1) * WORD_BYTES
NOT_SAID: Final = bytes(HASH_BYTES)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `count` positions; `digest` is over what goes into a stage there (NOT_SAID: it is to keep them)."""

    count: int
    digest: bytes = NOT_SAID
