"""Whether a stored model computes what its file does, to the bit: in two parts at every border, and unit by unit.

Edge. One session lives at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from planner.importers.onnx.sessions import Array, Arrays, opened, options, run
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest
from planner.model.store import Store


@dataclass(frozen=True, slots=True)
class Difference:
    """The output that differs most, and by how much; infinite where it has another shape, or text that differs."""

    output: str
    error: float


def part(manifest: GraphManifest, store: Store, first: int, stop: int, feed: Arrays) -> dict[str, Array]:
    """What units [first, stop) make. Raises NotRun, CorruptStore or NotInStore."""
    composed = compose(manifest, store, first, stop)
    folder = store.root / "blobs"
    return run(
        opened(composed.model, options(folder, fused=manifest.fused)),
        feed,
        [value.name for value in composed.outputs],
    )


def in_parts(
    manifest: GraphManifest, store: Store, cuts: Sequence[int], feed: Arrays
) -> tuple[dict[str, Array], list[bytes]]:
    """The outputs of the model cut at these places; and a hash of what each part made."""
    values = dict(feed)
    hashes = []
    for first, stop in zip((0, *cuts), (*cuts, len(manifest.units)), strict=True):
        made = part(manifest, store, first, stop, values)
        hashes.append(digest(made))
        needed = {*manifest.outputs, *manifest.needed(stop, len(manifest.units))}
        values = {name: value for name, value in (values | made).items() if name in needed}
    return {name: values[name] for name in manifest.outputs}, hashes


def digest(values: Arrays) -> bytes:
    """A hash of these values and their names."""
    found = sha256()
    for name in sorted(values):
        value = values[name]
        found.update(f"{name}\0{value.dtype}\0{value.shape}\0".encode())
        found.update(
            repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).data
        )
    return found.digest()


def difference(expected: Mapping[str, Array], found: Mapping[str, Array]) -> Difference | None:
    """None where all outputs are equal to the bit."""
    differences = [
        Difference(name, _error(value, found[name]))
        for name, value in expected.items()
        if digest({name: value}) != digest({name: found[name]})
    ]
    return max(differences, key=lambda each: each.error, default=None)


def _error(expected: Array, found: Array) -> float:
    if expected.shape != found.shape or expected.dtype != found.dtype or expected.dtype == object:
        return float("inf")
    with np.errstate(all="ignore"):
        apart: Any = np.abs(expected.astype(np.complex128) - found.astype(np.complex128))
    return float(np.nanmax(apart, initial=0.0))
