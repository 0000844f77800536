"""What a model is made of, for who wants to split it: bytes and operations of each unit, what crosses each border,
which units are on the longest path, and where a unit can be cut into slices for several peers.

Reads manifests and graphs, no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.model.compose import Blobs
from planner.model.graph_manifest import GraphManifest
from planner.model.graph_work import work_of
from planner.model.manifest import Manifest
from planner.slices.sliced_units import cut_bytes, unit_parts
from planner.slices.slicing import NotSliced, grains_of, sliced
from planner.types import GraphWork, UnitKind

WAYS: Final = (2, 3, 4)  # slices of a unit that are looked at


@dataclass(frozen=True, slots=True)
class Slicing:
    """How a unit can be cut. `kinds`: along what ("heads", "features", "experts", "vocabulary"), with the most pieces
    of each; `largest`: for each of WAYS the bytes of the largest slice as stored; `sent`: bytes between the lead and
    each helper for a token, there and back.
    """

    kinds: tuple[tuple[str, int], ...]
    largest: tuple[int, ...]
    sent: int


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit. `flops`, `kv_bytes`, `sends`: for a token where the model answers in words, else for a run with the
    sizes of the import. `sends`: bytes of all values that cross the border behind it. `longest`: whether it is on the
    path of most operations from the inputs to the outputs. `slicing` None: it is computed whole, `whole` says why.
    """

    number: int
    name: str
    component: str
    kind: UnitKind | None
    bytes: int
    params: int
    flops: int
    kv_bytes: int
    sends: int
    longest: bool
    slicing: Slicing | None
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Analysis:
    """A model. `per`: what flops and bytes of values are counted for, "token" or "run". `path_flops`: on the longest
    path; a run on any number of peers computes at least these one after the other.
    """

    name: str
    per: str
    units: tuple[UnitFacts, ...]
    path_flops: int

    @property
    def bytes(self) -> int:
        """Of weights, once loaded on a CPU."""
        return sum(unit.bytes for unit in self.units)

    @property
    def flops(self) -> int:
        """Of all units."""
        return sum(unit.flops for unit in self.units)


def analyzed(manifest: Manifest, blobs: Blobs) -> Analysis:
    """A model that answers in words. Raises CorruptStore for a graph that breaks the rules, NotInStore."""
    facts = []
    for number, unit in enumerate(manifest.units):
        slicing, whole = _slicing(manifest, number, blobs)
        facts.append(
            UnitFacts(
                number,
                unit.name,
                "decoder",
                unit.kind,
                unit.resident_bytes,
                unit.params,
                unit.flops_per_token,
                unit.kv_bytes_per_token,
                unit.out_bytes_per_token,
                True,
                slicing,
                whole,
            )
        )
    return Analysis(manifest.name, "token", tuple(facts), sum(unit.flops for unit in facts))


def analyzed_graph(manifest: GraphManifest) -> Analysis:
    """A model of inputs and outputs. Raises RequestError for amounts that no peer could have."""
    work = work_of(manifest)
    path = _longest(work)
    facts = tuple(
        UnitFacts(
            number,
            unit.name,
            unit.component,
            None,
            unit.weight_bytes,
            manifest.units[number].params,
            unit.flops,
            0,
            _crossing(work, number),
            number in path,
            None,
            "only units of decoders are cut",
        )
        for number, unit in enumerate(work.units)
    )
    return Analysis(manifest.name, "run", facts, sum(work.units[number].flops for number in path))


def _slicing(manifest: Manifest, place: int, blobs: Blobs) -> tuple[Slicing | None, str]:
    unit = manifest.units[place]
    if unit.kind == "embed":
        return None, "rows are read from the disk"
    parts = unit_parts(unit, blobs)
    try:
        found = [sliced(parts, [1.0] * ways) for ways in WAYS]
    except NotSliced as error:
        return None, str(error)
    largest = tuple(
        max(cut_bytes(parts, each) for each in division.slices if each is not None) for division in found
    )
    row = 4 * manifest.hidden
    back = unit.out_bytes_per_token if unit.kind != "head" else 4 * manifest.vocab // WAYS[0]
    kinds = tuple((each.kind, each.count) for each in grains_of(parts))
    return Slicing(kinds, largest, row + back * found[0].sums), ""


def _crossing(work: GraphWork, behind: int) -> int:
    """Bytes of values that are made up to unit `behind` and used after it, or returned."""
    return sum(
        edge.bytes
        for edge in work.edges
        if (edge.source is not None and edge.source <= behind)
        and (edge.returned or any(user > behind for user in edge.users))
    )


def _longest(work: GraphWork) -> frozenset[int]:
    """The units of the path with most operations."""
    before: dict[int, list[int]] = {}
    for edge in work.edges:
        if edge.source is not None:
            for user in edge.users:
                before.setdefault(user, []).append(edge.source)
    total: list[int] = []
    came: list[int | None] = []
    for number, unit in enumerate(work.units):
        best = max(before.get(number, ()), key=lambda other: total[other], default=None)
        came.append(best)
        total.append(unit.flops + (total[best] if best is not None else 0))
    return frozenset(_back(came, max(range(len(total)), key=lambda number: total[number], default=None)))


def _back(came: Sequence[int | None], last: int | None) -> list[int]:
    found = []
    while last is not None:
        found.append(last)
        last = came[last]
    return found
