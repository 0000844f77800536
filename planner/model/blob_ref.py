"""How a blob is named: by its hash, its length, and the hashes of its pieces. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from planner.errors import CorruptStore

PIECE_BYTES: Final = 4 << 20  # cheap to fetch again; large enough that hashes stay a small part of a manifest

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BlobRef:
    """One blob: its SHA-256, its length, and the SHA-256 of each 4 MiB piece (the last may be shorter)."""

    sha256: str
    bytes: int
    pieces: tuple[str, ...]

    def piece_bytes(self, index: int) -> int:
        """Length of piece `index`."""
        return min(PIECE_BYTES, self.bytes - index * PIECE_BYTES)

    def check(self) -> None:
        """Raises CorruptStore unless names are hashes and the number of pieces fits the length."""
        for text in (self.sha256, *self.pieces):
            if not _SHA256.fullmatch(text):
                raise CorruptStore(f"expected a SHA-256 of 64 lower-case hex digits, got {text[:80]!r}")
        expected = -(-self.bytes // PIECE_BYTES)
        if self.bytes < 0 or expected != len(self.pieces):
            raise CorruptStore(
                f"blob {self.sha256[:12]} of {self.bytes} bytes: "
                f"expected {max(expected, 0)} pieces, got {len(self.pieces)}"
            )
