"""What one run of a model of units that form a graph comes to, for sizes: bytes, flops, and values on their way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from planner.errors import RequestError
from planner.model.graph_manifest import MAX_SIZE, GraphManifest, Term, amount
from planner.model.same_units import same_units
from planner.types import Edge, GraphWork, UnitWork

MAX_AMOUNT: Final = 2**58  # bytes of a value, flops of a unit: what the planner adds up exactly


def work_of(manifest: GraphManifest, sizes: Mapping[str, int] | None = None) -> GraphWork:
    """The work of one run, with `sizes` for symbolic sizes, and those of the import for what is not given.

    A unit's scratch counts its inputs and outputs. Raises RequestError for a size out of bounds, or amounts that no
    peer could have.
    """
    for name, size in (sizes or {}).items():
        if not 1 <= size <= MAX_SIZE:
            raise RequestError(f"size {name}: expected 1 to {MAX_SIZE}, got {size}")
    known = {**manifest.sizes, **(sizes or {})}
    held = {value.name: _whole(value.name, value.bytes, known) for value in manifest.values}
    types = {value.name: value.dtype for value in manifest.values}
    users: dict[str, list[int]] = {}
    source: dict[str, int | None] = dict.fromkeys(manifest.inputs)
    for at, unit in enumerate(manifest.units):
        for name in unit.inputs:
            users.setdefault(name, []).append(at)
        source.update(dict.fromkeys(unit.outputs, at))
    outputs = frozenset(manifest.outputs)
    return GraphWork(
        tuple(
            UnitWork(
                unit.name,
                unit.component,
                unit.resident_bytes,
                sum(held[name] for name in (*unit.inputs, *unit.outputs)),
                _whole(unit.name, unit.flops, known),
                unit.ops,
                tuple(sorted({types[name] for name in (*unit.inputs, *unit.outputs)})),
            )
            for unit in manifest.units
        ),
        tuple(
            Edge(name, held[name], at, tuple(users.get(name, ())), name in outputs and at is not None)
            for name, at in source.items()
            if name in users or (name in outputs and at is not None)
        ),
        manifest.opset,
        same_units(manifest, 0, len(manifest.units)),
    )


def _whole(name: str, terms: Sequence[Term], sizes: Mapping[str, int]) -> int:
    found = amount(terms, sizes)
    if not 0 <= found <= MAX_AMOUNT:  # not for NaN either
        raise RequestError(f"{name[:80]}: expected an amount of at most {MAX_AMOUNT}, got {found:g}")
    return math.ceil(found)
