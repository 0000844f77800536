"""How the units of a model can be cut, as the planner counts it. Reads manifests and graphs, no weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.compose import Blobs
from planner.model.manifest import Manifest, ManifestUnit
from planner.slices.sliced_units import cut_bytes, unit_parts
from planner.slices.slicing import NotSliced, grains_of, sliced
from planner.types import Unit, UnitCut

WAYS: Final = (2, 3, 4)  # slices of a unit that are looked at
ROW_BYTES: Final = 4  # of a number that members send


def cut_units(manifest: Manifest, blobs: Blobs) -> tuple[Unit, ...]:
    """The units as the planner counts them, with how each can be cut. Raises CorruptStore for a graph that breaks the
    rules, NotInStore.
    """
    known: dict[object, UnitCut | None] = {}
    found = []
    for unit, counted in zip(manifest.units, manifest.planner_units(), strict=True):
        alike = unit.kind, unit.graph.sha256, tuple((each.shape, each.dtype) for each in unit.tensors)
        if alike not in known:
            known[alike] = _cut(manifest, unit, blobs)
        found.append(replace(counted, cut=known[alike]))
    return tuple(found)


def _cut(manifest: Manifest, unit: ManifestUnit, blobs: Blobs) -> UnitCut | None:
    if unit.kind == "embed":  # rows are read as they are needed
        return None
    parts = unit_parts(unit, blobs)
    stored = sum(tensor.bytes for tensor in unit.tensors)
    try:
        divisions = [sliced(parts, [1.0] * ways) for ways in WAYS]
    except NotSliced:
        return None
    pieces = min(grains.count for grains in grains_of(parts))
    common = 0
    for ways, division in zip(WAYS, divisions, strict=True):
        own = -(-pieces // ways)  # at most so many pieces in a slice
        largest = max(cut_bytes(parts, each) for each in division.slices if each is not None)
        if own < pieces:  # largest = common + (stored - common) * own / pieces
            common = max(common, -(-(largest * pieces - stored * own) // (pieces - own)))
    sums = divisions[0].sums
    values = manifest.vocab // WAYS[0] if unit.kind == "head" else manifest.hidden * sums
    return UnitCut(pieces, min(common, stored), sums, ROW_BYTES * values)
