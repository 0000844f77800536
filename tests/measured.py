"""One measurement of this machine for all peers that a test process starts: each of its own takes a second or more.

What is measured has tests of its own, and peers that are processes measure themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from peer.member import joining
from peer.runtime.self_benchmark import UnitTimes, measure_here
from planner.model.manifest import Manifest, encode_manifest
from planner.model.store import Store


@contextmanager
def measured_once() -> Iterator[None]:
    """While the block runs, peers that join with the same model, provider and threads are told the same times."""
    known: dict[tuple[bytes, str, int, int], UnitTimes] = {}

    def measure(store: Store, manifest: Manifest, provider: str, threads: int, *, context: int) -> UnitTimes:
        key = (encode_manifest(manifest), provider, threads, context)
        if key not in known:
            known[key] = measure_here(store, manifest, provider, threads, context=context)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "measure_here", measure)
        yield
