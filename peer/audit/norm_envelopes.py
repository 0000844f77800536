"""Decides how long the rows are that cross each border between units, and which are so odd that a check is due. Pure.

Recorded when a model is imported (peer.audit.envelope_recording), beside its manifest: a model id must not depend on
the machine that imports it, and lengths do, in the last bits. They are no evidence: a row outside is checked at once,
nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np

from peer.session.evidence import Floats

FORMAT: Final = "shoal-envelopes-1"
FILE: Final = "envelopes.json"  # beside the manifest
MOST_BYTES: Final = 1 << 20
MOST_BORDERS: Final = 4096
MILLI_LIMIT: Final = 300_000  # of the logarithm to base 2: beyond any float32
WIDER_MILLI: Final = 1000  # half of the shortest row that was seen, and twice the longest


@dataclass(frozen=True, slots=True)
class Envelopes:
    """For the border behind each unit but the head: logarithms to base 2 of the least and greatest length, in
    thousandths.
    """

    borders: tuple[tuple[int, int], ...]

    def odd(self, first_unit: int, rows: Floats) -> int | None:
        """The first of `rows`, inputs of unit `first_unit`, whose length is none that such rows have."""
        if not 0 < first_unit <= len(self.borders):
            return None
        low, high = self.borders[first_unit - 1]
        least, most = 2.0 ** ((low - WIDER_MILLI) / 1000), 2.0 ** ((high + WIDER_MILLI) / 1000)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        outside = np.flatnonzero((lengths < least) | (lengths > most))
        return int(outside[0]) if len(outside) else None


def widened(lengths: Sequence[Floats]) -> Envelopes:
    """Of lengths that were seen behind each unit."""
    borders = []
    for seen in lengths:
        logs = np.log2(np.maximum(seen.astype(np.float64), 1e-30)) * 1000
        borders.append((int(np.floor(logs.min())), int(np.ceil(logs.max()))))
    return Envelopes(tuple(borders))


def encode_envelopes(envelopes: Envelopes) -> bytes:
    """The file's bytes."""
    borders = [list(pair) for pair in envelopes.borders]
    return _compact({"format": FORMAT, "borders": borders, "crc32": crc32(_compact(borders))})


def decode_envelopes(encoded: bytes, units: int) -> Envelopes | None:
    """What a file for a model of so many units says; None where it makes no sense, as if there were none."""
    if len(encoded) > MOST_BYTES:
        return None
    try:
        said = json.loads(encoded)
    except (ValueError, RecursionError):
        return None
    borders = said.get("borders") if isinstance(said, dict) and said.get("format") == FORMAT else None
    if not isinstance(borders, list) or len(borders) != units - 1 or units > MOST_BORDERS:
        return None
    if said.get("crc32") not in (None, crc32(_compact(borders))):  # files of earlier versions have none
        return None
    found = []
    for pair in borders:
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(number) is int for number in pair):
            return None
        if not -MILLI_LIMIT <= pair[0] <= pair[1] <= MILLI_LIMIT:
            return None
        found.append((pair[0], pair[1]))
    return Envelopes(tuple(found))


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
