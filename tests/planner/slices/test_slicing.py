"""Slices of units add up to the unit: every family, every unit, two, three and four ways, in every stored form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from peer.runtime.execution import Execution, Row
from peer.runtime.forms import FASTEST
from peer.runtime.kv_slots import KvSlots
from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, ManifestUnit, decode_manifest
from planner.model.onnxruntime_import import ort
from planner.model.store import Store
from planner.slices.sliced_units import put_slice, unit_parts
from planner.slices.slicing import NotSliced, Sliced, sliced
from planner.types import WeightFormat
from tests.planner.importers.families.checkpoints import CASES, Floats, load, write_folder

TOLERANCE = 1e-5  # of the largest value
TOKENS = 24
STEPS = 2  # tokens by themselves behind a prompt
Imported = Callable[[str, WeightFormat], tuple[Manifest, Store]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """imported(case, weights), each once."""

    @cache
    def of(case: str, weights: WeightFormat) -> tuple[Manifest, Store]:
        root = tmp_path_factory.mktemp(case)
        store = Store(root / "store")
        source = open_safetensors(write_folder(load(case), root / "folder"), case)
        return decode_manifest(store.manifest_bytes(build_model(source, weights, store))), store

    return of


def alone(manifest: Manifest, unit: ManifestUnit) -> Manifest:
    """A chain with `unit` at its place and nothing else between its ends."""
    first, last = manifest.units[0], manifest.units[-1]
    kv = tuple(replace(pair, number=number) for number, pair in enumerate(unit.kv))
    return replace(manifest, units=(first, replace(unit, kv=kv), last))


def made_of(manifest: Manifest, unit: ManifestUnit, store: Store, hidden: Floats) -> Floats:
    """What the unit makes of rows: most of them as a prompt, the last ones each by itself."""
    if unit.kind == "head":
        chain = replace(manifest, units=(*manifest.units[:-1], unit))
        shard = make_shard(chain, store, len(chain.units) - 1, len(chain.units), exact=True)
    else:
        shard = make_shard(alone(manifest, unit), store, 1, 2, exact=True)
    run = Execution(shard, threads=1, context=manifest.context, form=FASTEST, brief=True)
    try:
        if unit.kind == "head":
            return run.head(hidden)
        slots = KvSlots(1, manifest.context)
        slots.admit(b"")
        run.ensure(slots, 1, TOKENS)
        prompt = TOKENS - STEPS
        rows = [run.prompt(hidden[:prompt], Row(0, 0)).copy()]
        rows += [run.alone(hidden[at : at + 1], Row(0, at)).copy() for at in range(prompt, TOKENS)]
        return np.concatenate(rows)
    finally:
        run.close()


def together(found: Sliced, parts: list[Floats | None], hidden: Floats, weights: dict[str, Floats]) -> Floats:
    """What the slices make, put together in the order of peers."""
    there = [part for part in parts if part is not None]
    if found.combine == "concat":
        return np.concatenate(there, axis=-1)
    assert found.sums == 1
    total = there[0]
    for part in there[1:]:
        total = total + part
    if found.join is None:
        return total
    model = onnx.ModelProto.FromString(found.join.graph)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(weights[name], name) for name in found.join.tensors
    )
    rows = {"in.0": hidden[None], "in.1": total[None]}
    inputs = [onnx.helper.make_tensor_value_info(name, 1, [1, *hidden.shape]) for name in rows]
    del model.graph.input[:], model.graph.output[:]
    model.graph.input.extend(inputs)
    model.graph.output.extend([onnx.helper.make_tensor_value_info("out.0", 1, None)])
    joined: Floats = ort.InferenceSession(model.SerializeToString()).run(None, rows)[0][0]
    return joined


ALL_WAYS = (
    "llama",
    "olmo2",
    "gemma3",
    "mixtral",
    "neox-in-turn",
)  # heads, norms behind sums, experts, two sums in a block
CUTS = [(case, "f32", ways) for case in CASES for ways in ((2, 3, 4) if case in ALL_WAYS else (3,))]
CUTS += [
    ("llama", form, ways) for form, ways in (("8bit", 2), ("8bit", 4), ("4bit", 2), ("4bit", 3), ("f16", 3))
]


@pytest.mark.parametrize(("case", "weights", "ways"), CUTS)
def test_slices_add_up_to_the_unit(
    imported: Imported, tmp_path: Path, case: str, weights: WeightFormat, ways: int
) -> None:
    manifest, store = imported(case, weights)
    hidden = np.random.default_rng(7).standard_normal((TOKENS, manifest.hidden)).astype(np.float32)
    for unit in manifest.units[1:]:
        parts = unit_parts(unit, store)
        if any(state.shared for state in parts.kv):  # what is cached of a token is compared with all heads
            with pytest.raises(NotSliced):
                sliced(parts, [1.0] * ways)
            continue
        found = sliced(parts, [1.0] * ways)
        assert sum(each is not None for each in found.slices) > 1, "it is cut"
        made: list[Floats | None] = []
        for each in found.slices:
            made.append(
                None
                if each is None
                else made_of(manifest, put_slice(unit, each, store, store), store, hidden)
            )
        expected = made_of(manifest, unit, store, hidden)
        raw = np.memmap(store.blob_path(unit.blob.sha256), np.uint8, mode="r")
        vectors = {
            each.name: np.array(raw[each.offset : each.offset + each.bytes].view("<f4"))
            for each in unit.tensors
            if each.dtype == "f32" and len(each.shape) == 1
        }
        error = np.abs(together(found, made, hidden, vectors) - expected).max() / np.abs(expected).max()
        assert error < TOLERANCE, (unit.name, ways, error)
