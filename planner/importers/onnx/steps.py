"""An import of an ONNX file in steps, in a process of its own that has read nothing else.

Edge. Everything here may fail or be ended at any time; what it made lies in a folder that its caller removes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.onnx import proof
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.borders import Group, Part, cut
from planner.importers.onnx.components import named_parts
from planner.importers.onnx.costs import probes, seen_values, value_bytes, with_ranks
from planner.importers.onnx.folding import Network, fold, network_of
from planner.importers.onnx.layout import Measured, store_units
from planner.importers.onnx.reading import NOT_PASSED, read_model
from planner.importers.onnx.samples import found_sample, sample_of_file
from planner.importers.onnx.sessions import Arrays, NotRun, opened, options, refused, run
from planner.model.compose import ELEMENT_TYPES
from planner.model.graph_manifest import GraphManifest, ValueType, encode_graph_manifest
from planner.model.store import Store
from planner.slices.tiles import NotTiled, tiled

_ORT_NAMES: Final[dict[str, ValueType]] = {
    f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype, dtype) })": dtype
    for dtype in ELEMENT_TYPES
    if dtype not in NOT_PASSED
}


BANDS: Final = "bands.onnx"
BANDS_OFF: Final = 1e-4  # of the largest value of an output, or of 1: sums are added in another order


class Steps:
    """One import. Each method is called once, in the order in which they stand here; `prove` as often as it says."""

    def __init__(self, asked: SourceGraph, scratch: Path) -> None:
        self._asked = asked
        self._scratch = scratch
        self._source = asked.source  # what is imported: in bands, a file of this import
        self._store = Store(scratch / "store")
        self._measured: Measured | None = None
        self._groups: list[Group] = []
        self._manifest: GraphManifest | None = None
        self._expected: dict[str, Any] = {}
        self._hashes: dict[int, bytes] = {}  # by border, of what crosses it
        self._border = 1
        self._bad: set[int] = set()
        self._fused = asked.fused
        self._told: dict[int, str] = {}  # of bad borders
        self._fused_before: tuple[set[int], dict[int, str]] | None = (
            None  # bad ones with joined operators, once known
        )

    def read(self) -> None:
        """Reads and folds the file, tries it with a sample and finds what its values cost."""
        asked = self._asked
        read = read_model(asked.source, asked.name)
        try:
            session = opened(asked.source, options(fused=asked.fused))
            for value in session.get_outputs():
                if value.type not in _ORT_NAMES:
                    raise UnknownArchitecture(
                        f"{asked.name}: output {value.name[:80]!r} is a {value.type[:80]}: a tensor of numbers or text "
                        "expected"
                    )
            sample = (
                found_sample(session, read.inputs, dict(asked.sizes), asked.name)
                if asked.sample is None
                else sample_of_file(asked.sample, read.inputs, asked.name)
            )
            self._expected = run(session, sample.inputs)
            if proof.difference(self._expected, run(session, sample.inputs)) is not None:
                raise UnknownArchitecture(
                    f"{asked.name} computes something else each time (random numbers?): nothing could be compared"
                )
            del session
            network = fold(read, asked.source, self._scratch, asked.name)
            seen = seen_values(network, _ORT_NAMES)
            found = probes(network, seen, read.inputs, sample)
            if asked.bands:
                network = self._in_bands(network, found.base, sample.inputs)
                seen = seen_values(network, _ORT_NAMES)
                found = probes(network, seen, read.inputs, sample)
        except NotRun as error:
            raise refused(asked.name, error) from None
        self._measured = Measured(asked.name, network, with_ranks(seen, found.base), found, sample)

    def _in_bands(self, network: Network, shapes: Mapping[str, tuple[int, ...]], feed: Arrays) -> Network:
        """The same in bands of rows, which are then what is imported: it makes what the whole makes, within BANDS_OFF.
        Raises UnknownArchitecture, NotRun.
        """
        name = self._asked.name
        try:
            made = tiled(network.model, shapes, self._asked.bands)
        except NotTiled as error:
            raise UnknownArchitecture(f"{name} cannot be cut into bands of rows: {error}") from None
        self._source = self._scratch / BANDS
        self._source.write_bytes(made.model.SerializeToString())
        whole, self._expected = self._expected, run(opened(self._source, options(fused=self._fused)), feed)
        found = proof.difference(whole, self._expected)
        if found is not None and not found.error <= BANDS_OFF * max(1.0, np.abs(whole[found.output]).max()):
            raise UnknownArchitecture(
                f"{name} cannot be cut into bands of rows: {found.output[:80]!r} differs by {found.error:.3g}"
            )
        read = read_model(
            self._source, name
        )  # equal steps of several bands stay apart: nothing is folded again
        return network_of(read.model, self._scratch, read, name)

    def cut(self) -> int:
        """Finds borders and stores the units; returns how many."""
        measured = self._whole()
        network = measured.network
        if self._asked.named or self._asked.bands:
            parts_of = named_parts([(step.inputs, step.outputs) for step in network.steps])
            if parts_of is not None:
                self._groups = parts_of
                return self._stored()
        sizes = {
            name: value_bytes(seen.dtype, measured.probes.base[name])
            for name, seen in measured.seen.items()
            if seen.shape is not None
        }
        parts = [Part(step.inputs, step.outputs, measured.flops(step)) for step in network.steps]
        self._groups = cut(parts, sizes, self._asked.most_units)
        return self._stored()

    def prove(self) -> tuple[int, int, str]:
        """Compares one more border; returns how many are done, of how many, and what is told.

        All are done where both are equal: the units are proven. Where joined operators make other bits, the same is
        tried without them.
        """
        assert self._manifest is not None
        count = len(self._manifest.units)
        try:
            if self._border < count:
                self._prove_border(self._border)
                self._border += 1
            else:
                self._prove_units()
                if not self._bad:
                    return count, count, self._not_joined()
        except NotRun as error:
            raise refused(self._asked.name, error) from None
        if self._border < count or not self._bad:
            return self._border - 1, count, ""
        if self._fused_before is None and self._fused:
            self._fused_before = (self._bad, self._told)
            return 0, self._again(fused=False), ""
        if (
            self._fused_before is not None
            and not self._fused
            and len(self._bad) >= len(self._fused_before[0])
        ):
            bad, told = self._fused_before
            self._again(fused=True)
            self._bad, self._told = bad, told
        said = f"{'; '.join(self._told.values())}: the units on both sides become one"
        self._join()
        return 0, self._stored(), said

    def _not_joined(self) -> str:
        if self._fused or self._fused_before is None:
            return ""
        count = len(self._fused_before[0])
        return (
            f"{self._asked.name}: joined operators make other bits at {count} borders, so they are not joined"
        )

    def finish(self) -> bytes:
        """The manifest. Its blobs are in the folder `store` of the scratch folder."""
        assert self._manifest is not None
        return encode_graph_manifest(self._manifest)

    def _again(self, *, fused: bool) -> int:
        """The same borders, with operators joined or not."""
        self._fused = fused
        session = opened(self._source, options(fused=fused))
        self._expected = run(session, self._whole().sample.inputs)
        return self._stored()

    def _whole(self) -> Measured:
        assert self._measured is not None
        return self._measured

    def _stored(self) -> int:
        self._manifest = replace(store_units(self._whole(), self._groups, self._store), fused=self._fused)
        self._border, self._bad, self._hashes, self._told = 1, set(), {}, {}
        return len(self._groups)

    def _prove_border(self, border: int) -> None:
        assert self._manifest is not None
        feed = self._whole().sample.inputs
        found, hashes = proof.in_parts(self._manifest, self._store, [border], feed)
        self._hashes[border] = hashes[0]
        self._compare(found, border, f"at border {border} of {len(self._groups) - 1}")

    def _prove_units(self) -> None:
        """All units one by one: where what crosses a border is another value than in two parts, it is that border."""
        assert self._manifest is not None
        cuts = list(range(1, len(self._groups)))
        found, hashes = proof.in_parts(self._manifest, self._store, cuts, self._whole().sample.inputs)
        if proof.difference(self._expected, found) is None:
            return
        if not cuts:
            difference = proof.difference(self._expected, found)
            assert difference is not None
            raise CorruptModel(
                f"{self._asked.name}: once its constants are folded, output {difference.output[:80]!r} differs by "
                f"{difference.error:.3g}"
            )
        border = self._first_other(hashes)
        self._compare(found, border, f"unit by unit, first at border {border}")

    def _first_other(self, hashes: list[bytes]) -> int:
        """The border before the first unit that makes something else than the parts did."""
        assert self._manifest is not None
        values: dict[str, Any] = dict(self._whole().sample.inputs)
        for place in range(len(hashes)):
            values |= proof.part(self._manifest, self._store, place, place + 1, values)
            border = place + 1
            crossing = {name: values[name] for name in self._manifest.given(0, border)}
            if border in self._hashes and proof.digest(crossing) != self._hashes[border]:
                return max(place, 1)
        return len(hashes) - 1

    def _compare(self, found: dict[str, Any], border: int, where: str) -> None:
        difference = proof.difference(self._expected, found)
        if difference is not None:
            self._bad.add(border)
            self._told[border] = (
                f"{self._asked.name} cut {where} differs by {difference.error:.3g} in {difference.output[:80]!r}"
            )

    def _join(self) -> None:
        joined: list[Group] = []
        for place, group in enumerate(self._groups):
            if place in self._bad:
                joined[-1] = sorted(joined[-1] + group)
            else:
                joined.append(group)
        self._groups = joined
