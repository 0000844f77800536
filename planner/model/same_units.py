"""Which runs of units compute the same from the same weights, whatever models they belong to; and what that saves.

Pure. Models that are imported twice, or share a part, name the same blobs. These are stored and sent once, by their
hash; a peer that holds runs of units that are equal as a whole loads them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.model.blob_ref import BlobRef
from planner.model.checked_fields import canonical
from planner.model.graph_manifest import GraphManifest
from planner.model.manifest import Manifest
from planner.types import UnitKind


def same_units(manifest: GraphManifest, first: int, stop: int) -> str:
    """The same text for runs of units that take, give and compute the same with the same weights.

    Names and numbers of units do not count, those of values do: by them a runtime is handed its inputs.
    """
    values = {value.name: (value.dtype, value.shape) for value in manifest.values}
    crossing = (manifest.needed(first, stop), manifest.given(first, stop))
    units = [
        (
            unit.graph.sha256,
            unit.inputs,
            unit.outputs,
            [
                (weight.name, weight.dtype, weight.shape, unit.weights[weight.blob].sha256, weight.offset)
                for weight in unit.tensors
            ],
        )
        for unit in manifest.units[first:stop]
    ]
    ports = [[(name, *values[name]) for name in names] for names in crossing]
    return hashlib.sha256(canonical((manifest.fused, ports, units))).hexdigest()


def unit_contents(manifest: Manifest) -> tuple[str, ...]:
    """For each unit of a model that answers in words a text. Stages of which the texts are equal part by part
    (`loaded_parts`), on one peer, compute in one form with equal graphs and weights, whatever models they belong to.
    """
    shapes = sorted(
        {
            canonical(
                [
                    unit.kind,
                    unit.graph.sha256,
                    [(tensor.name, tensor.dtype, tensor.shape) for tensor in unit.tensors],
                    [(pair.heads, pair.head_size, pair.window, pair.shared) for pair in unit.kv],
                ]
            )
            for unit in manifest.units
            if unit.kind != "embed"
        }
    )
    numbers = (manifest.weights, manifest.vocab, manifest.hidden, manifest.context, manifest.scratch)
    model = hashlib.sha256(repr((numbers, manifest.rotary, shapes)).encode()).hexdigest()
    return tuple(
        hashlib.sha256(
            repr((model, unit.graph.sha256, unit.blob.sha256, unit.tensors, unit.kv)).encode()
        ).hexdigest()
        for unit in manifest.units
    )


def loaded_parts(kinds: Sequence[UnitKind], first: int, stop: int) -> tuple[tuple[int, int], ...]:
    """The parts of a stage [first, stop) of which a peer loads equal ones once: all units between the ends as a whole,
    and the head. Rows of an embedding are read where they lie.
    """
    body = first + (kinds[first] == "embed")
    head = max(body, stop - (kinds[stop - 1] == "head"))
    return tuple((start, end) for start, end in ((body, head), (head, stop)) if start < end)


@dataclass(frozen=True, slots=True)
class HeldUnits:
    """A run of units of one model on a peer. `key`: that of `same_units`, or "" where nothing else is equal to it."""

    model: str
    blobs: tuple[BlobRef, ...]
    key: str
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes that several models would take more if each had its weights alone: in the store, sent to all peers
    together, and loaded at all peers together.
    """

    stored_bytes: int
    sent_bytes: int
    loaded_bytes: int


def saved(models: Mapping[str, Sequence[BlobRef]], peers: Iterable[Sequence[HeldUnits]]) -> Saved:
    """`models`: the blobs of each; `peers`: what each peer holds of them."""
    sent = loaded = 0
    for held in peers:
        of_model: dict[str, list[BlobRef]] = {}
        for units in held:
            of_model.setdefault(units.model, []).extend(units.blobs)
        sent += _twice(of_model.values())
        keyed = {(units.model, units.key): units.resident_bytes for units in held if units.key}
        once = {key: size for (_, key), size in keyed.items()}
        loaded += sum(keyed.values()) - sum(once.values())
    return Saved(_twice(models.values()), sent, loaded)


def _twice(models: Iterable[Sequence[BlobRef]]) -> int:
    """What blobs take that several models have, without the first of each."""
    seen: set[str] = set()
    twice = 0
    for blobs in models:
        own = {blob.sha256: blob.bytes for blob in blobs}
        twice += sum(size for name, size in own.items() if name in seen)
        seen |= own.keys()
    return twice
