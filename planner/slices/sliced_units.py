"""Slices of units as units of their own: the rows and columns that a slice has of stored tensors, in a blob of its own.

What planner.slices.slicing decides of graphs is done here to weights. A peer makes a slice from the blob of the unit;
of equal blobs and equal cuts every peer makes equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.model.checked_fields import DType, StoredTensor
from planner.model.compose import Blobs, Declared, checked_graph
from planner.model.graph_manifest import KvState
from planner.model.manifest import KvPair, ManifestUnit
from planner.model.store import Store
from planner.model.units import BLOCK, pack_nibbles, params_of, put_tensors, resident_bytes
from planner.slices.slicing import Channels, Cut, Slice, UnitParts

_NUMPY: Final[Mapping[DType, str]] = {"f32": "<f4", "f16": "<f2", "u8": "u1"}
NIBBLE: Final = 15


def unit_parts(unit: ManifestUnit, blobs: Blobs) -> UnitParts:
    """What slicing reads of a unit. Raises CorruptStore for a graph that breaks the rules, NotInStore."""
    declared = Declared(unit.name, unit.graph, tuple(tensor.name for tensor in unit.tensors), 1, 1)
    return UnitParts(
        unit.name,
        checked_graph(declared, blobs),
        {tensor.name: tensor for tensor in unit.tensors},
        tuple(KvState(pair.heads, pair.head_size, pair.window, pair.shared) for pair in unit.kv),
    )


def cut_shape(tensor: StoredTensor, cut: Cut) -> tuple[int, ...]:
    """The shape of the part of `tensor` that `cut` names."""
    rows = tensor.shape[0] if cut.rows is None else _count(cut.rows)
    if cut.columns is None:
        return (rows, *tensor.shape[1:])
    form = tensor.name.rpartition(".")[2]
    if form == "w":
        return (rows, _count(cut.columns))
    blocks = sum(-(-stop // BLOCK) - first // BLOCK for first, stop in cut.columns)
    return (rows, -(-blocks // 2) if form == "zero" else blocks, *tensor.shape[2:])


def cut_bytes(unit: UnitParts, slice_: Slice) -> int:
    """How many bytes of weights a slice has as stored."""
    total = 0
    for cut in slice_.cuts:
        tensor = unit.tensors[cut.source]
        size = tensor.bytes // max(1, int(np.prod(tensor.shape)))
        total += int(np.prod(cut_shape(tensor, cut))) * size
    return total


def put_slice(unit: ManifestUnit, slice_: Slice, blobs: Blobs, store: Store) -> ManifestUnit:
    """The slice as a unit in `store`, from the unit's blob in `blobs`: from rows to a part of the sum. Its states are
    numbered from 0. Raises CorruptStore for a blob that is shorter than its tensors say, StoreError.
    """
    raw = np.memmap(blobs.blob_path(unit.blob.sha256), np.uint8, mode="r")
    source = {tensor.name: tensor for tensor in unit.tensors}
    made = {cut.name: _cut(_array(raw, source[cut.source]), cut) for cut in slice_.cuts}
    blob, tensors = put_tensors(store, made)
    params = params_of(tensors)
    return ManifestUnit(
        name=unit.name,
        kind=unit.kind,
        graph=store.put_blob([slice_.graph]),
        blob=blob,
        tensors=tensors,
        kv=tuple(KvPair(at, each.heads, each.head_size, each.window) for at, each in enumerate(slice_.kv)),
        params=params,
        flops_per_token=unit.flops_per_token * params // max(1, unit.params),
        out_bytes_per_token=unit.out_bytes_per_token,
        resident_bytes=resident_bytes(unit.kind, tensors),
    )


def _array(raw: npt.NDArray[np.uint8], tensor: StoredTensor) -> npt.NDArray[Any]:
    held = raw[tensor.offset : tensor.offset + tensor.bytes]
    return held.view(_NUMPY[tensor.dtype]).reshape(tensor.shape)


def _cut(array: npt.NDArray[Any], cut: Cut) -> npt.NDArray[Any]:
    if cut.rows is not None:
        array = np.concatenate([array[first:stop] for first, stop in cut.rows])
    if cut.columns is not None:
        array = _columns(array, cut.source.rpartition(".")[2], cut.columns)
    return np.ascontiguousarray(array)


def _columns(array: npt.NDArray[Any], form: str, columns: Channels) -> npt.NDArray[Any]:
    """Columns of a stored matrix; of packed ones whole blocks, which `columns` begin and end at."""
    if form == "w":
        return np.concatenate([array[:, first:stop] for first, stop in columns], axis=1)
    blocks = [(first // BLOCK, -(-stop // BLOCK)) for first, stop in columns]
    if form != "zero":
        return np.concatenate([array[:, first:stop] for first, stop in blocks], axis=1)
    apart = np.stack([array & NIBBLE, array >> np.uint8(4)], axis=-1).reshape(len(array), -1)
    return pack_nibbles(np.concatenate([apart[:, first:stop] for first, stop in blocks], axis=1))


def _count(channels: Channels) -> int:
    return sum(stop - first for first, stop in channels)
