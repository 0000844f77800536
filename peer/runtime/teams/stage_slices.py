"""What each member of a team has of the units of its stage, worked out by every member alike from the units' graphs.

Edge over a folder for the weights of one member's slices, which are cut out of the blobs of the units. Units that
cannot be cut are computed by the lead alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from peer.runtime.teams.team import Team
from peer.session.evidence import Floats
from planner.errors import NotInStore
from planner.model.checked_fields import StoredTensor
from planner.model.compose import Blobs
from planner.model.lowering import SHOAL
from planner.model.manifest import Manifest, ManifestUnit
from planner.model.store import Store
from planner.slices.sliced_units import cut_bytes, put_slice, unit_parts
from planner.slices.slicing import Join, NotSliced, Sliced, sliced


@dataclass(frozen=True, slots=True)
class UnitSlice:
    """One unit as a member has it. `place`: its number in the manifest. `own`: what the member computes of it, None
    for nothing. `makers`: the members that have a part, by their places. `widths`: of what each member makes; parts are
    added, or stand behind one another. `join`: an ONNX model of what becomes of the sum.
    """

    place: int
    kind: Literal["attn", "ffn", "head"]
    own: ManifestUnit | None
    makers: tuple[int, ...]
    widths: tuple[int, ...]
    join: bytes | None


@dataclass(frozen=True, slots=True)
class StageSlices:
    """The units of a stage as the member at `place` has them, without the embedding. `blobs`: where they lie."""

    units: tuple[UnitSlice, ...]
    place: int
    blobs: Blobs

    @property
    def own(self) -> tuple[ManifestUnit, ...]:
        """What this member computes."""
        return tuple(unit.own for unit in self.units if unit.own is not None)

    @property
    def weight_bytes(self) -> int:
        """Of the slices, once loaded on a CPU."""
        return sum(unit.resident_bytes for unit in self.own)


class _Both:
    """The blobs of slices, and those of the model."""

    def __init__(self, slices: Store, model: Store) -> None:
        self._slices = slices
        self._model = model

    def blob_path(self, sha256: str) -> Path:
        try:
            return self._slices.blob_path(sha256)
        except NotInStore:
            return self._model.blob_path(sha256)


def stage_slices(manifest: Manifest, store: Store, team: Team, place: int, into: Store) -> StageSlices:
    """The slices of the member at `place`, whose weights are put into `into`. Raises CorruptStore, NotInStore,
    StoreError, ValueError for units outside the model.
    """
    if not 0 <= team.first < team.stop <= len(manifest.units):
        raise ValueError(f"units inside [0, {len(manifest.units)}) expected, got {team.run}")
    made = []
    for number in range(*team.run):
        unit = manifest.units[number]
        if unit.kind != "embed":
            made.append(_unit_slice(manifest, store, team, place, number, into))
    return StageSlices(tuple(made), place, _Both(into, store))


def slice_bytes(manifest: Manifest, blobs: Blobs, team: Team) -> tuple[int, ...]:
    """Bytes of weights by member, as stored. Raises CorruptStore, NotInStore."""
    totals = [0] * len(team.shares)
    for unit in manifest.units[slice(*team.run)]:
        if unit.kind == "embed":
            continue
        found = _cut(unit, blobs, team)
        if found is None:
            totals[0] += sum(tensor.bytes for tensor in unit.tensors)
            continue
        parts = unit_parts(unit, blobs)
        for member, each in enumerate(found.slices):
            totals[member] += cut_bytes(parts, each) if each is not None else 0
    return tuple(totals)


def _cut(unit: ManifestUnit, blobs: Blobs, team: Team) -> Sliced | None:
    """None for a unit that the lead computes alone."""
    parts = unit_parts(unit, blobs)
    if any(state.shared for state in parts.kv):
        return None
    try:
        found = sliced(parts, team.shares)
    except NotSliced:
        return None
    joins = ModelProto.FromString(found.join.graph).graph.node if found.join is not None else ()
    if found.sums != 1 or any(node.domain == SHOAL for node in joins):
        return None
    return found


def _unit_slice(
    manifest: Manifest, store: Store, team: Team, place: int, number: int, into: Store
) -> UnitSlice:
    unit = manifest.units[number]
    assert unit.kind != "embed"
    width = manifest.vocab if unit.kind == "head" else manifest.hidden
    found = _cut(unit, store, team)
    if found is None:
        own = _alone(unit) if place == 0 else None
        return UnitSlice(number, unit.kind, own, (0,), (width, *[0] * (len(team.shares) - 1)), None)
    mine = found.slices[place]
    own = _alone(put_slice(unit, mine, store, into)) if mine is not None else None
    makers = tuple(member for member, each in enumerate(found.slices) if each is not None)
    widths = found.widths or tuple(width if each is not None else 0 for each in found.slices)
    join = _joining(unit, store, found.join) if found.join is not None else None
    return UnitSlice(number, unit.kind, own, makers, widths, join)


def _alone(unit: ManifestUnit) -> ManifestUnit:
    """The unit with its states numbered from 0."""
    return replace(unit, kv=tuple(replace(pair, number=at) for at, pair in enumerate(unit.kv)))


def _joining(unit: ManifestUnit, blobs: Blobs, join: Join) -> bytes:
    """The join as a model of its own, with its tensors in it: in.0 and in.1, float32 (rows, tokens, hidden)."""
    raw = np.memmap(blobs.blob_path(unit.blob.sha256), np.uint8, mode="r")
    stored = {tensor.name: tensor for tensor in unit.tensors}
    model = ModelProto.FromString(join.graph)
    model.graph.initializer.extend(
        numpy_helper.from_array(_array(raw, stored[name]), name) for name in join.tensors
    )
    _typed(model, ("in.0", "in.1"), "out.0")
    encoded: bytes = model.SerializeToString(deterministic=True)
    return encoded


def _typed(model: ModelProto, inputs: Sequence[str], output: str) -> None:
    shape = ["rows", "tokens", "width"]
    nodes: Sequence[NodeProto] = model.graph.node
    used = {name for node in nodes for name in node.input}
    del model.graph.input[:], model.graph.output[:]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs if name in used
    )
    model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))


def _array(raw: np.memmap[tuple[int], np.dtype[np.uint8]], tensor: StoredTensor) -> Floats:
    held = raw[tensor.offset : tensor.offset + tensor.bytes]
    dtype = "<f2" if tensor.dtype == "f16" else "<f4"
    return np.array(held.view(dtype), np.float32).reshape(tensor.shape)
