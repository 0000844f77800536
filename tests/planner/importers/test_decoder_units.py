"""Graphs of decoders hold no weights, point into blobs, and refuse tensors that do not fit them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from planner.errors import CorruptStore
from planner.importers.architecture import Architecture, RopeScaling
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.importers.rotary import rotary_frequencies
from planner.model.lowering import make_shard, rotary_tables
from planner.model.manifest import Manifest, decode_manifest
from planner.model.onnx_graph import IR_VERSION, OPSET
from planner.model.store import Store

Model = tuple[Manifest, Store]


@pytest.fixture(scope="module", params=["8bit", "4bit"])
def model(request: Any, smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    store = Store(tmp_path_factory.mktemp("store"))
    model_id = build_model(open_gguf(smollm2_gguf), request.param, store)
    return decode_manifest(store.manifest_bytes(model_id)), store


def graphs(manifest: Manifest, store: Store, first: int, stop: int) -> list[onnx.ModelProto]:
    shard = make_shard(manifest, store, first, stop)
    return [onnx.load_from_string(part) for part in (shard.body, *shard.heads) if part is not None]


def test_graphs_are_small_and_their_data_lies_in_the_units_blobs(model: Model) -> None:
    manifest, store = model
    for graph in graphs(manifest, store, 0, len(manifest.units)):
        assert graph.ByteSize() < 300_000
        assert graph.ir_version == IR_VERSION
        assert {entry.domain: entry.version for entry in graph.opset_import}[""] == OPSET
        sizes = {unit.blob.sha256: unit.blob.bytes for unit in manifest.units}
        for initializer in graph.graph.initializer:
            where = {entry.key: entry.value for entry in initializer.external_data}
            if not where:
                assert initializer.ByteSize() < 200
                continue
            count = int(np.prod(initializer.dims))
            width = {onnx.TensorProto.FLOAT: 4, onnx.TensorProto.FLOAT16: 2}.get(initializer.data_type, 1)
            assert int(where["length"]) == count * width
            assert int(where["offset"]) + count * width <= sizes[where["location"]]


def test_only_the_residual_stream_crosses_a_border(model: Model) -> None:
    manifest, store = model
    (body,) = graphs(manifest, store, 2, 4)
    inputs = [value.name for value in body.graph.input]
    assert inputs == ["hidden", "seqlens", "total", "cos", "sin", "key.1", "value.1"]
    assert [value.name for value in body.graph.output] == ["hidden.out", "key.1.out", "value.1.out"]


def test_what_a_shard_holds(model: Model) -> None:
    manifest, store = model
    units = len(manifest.units)
    whole, tail, embed = (make_shard(manifest, store, *run) for run in ((0, units), (60, units), (0, 1)))
    assert [pair.number for pair in whole.kv] == [*range(30)]
    assert (tail.kv, tail.embed, len(tail.heads)) == ((), None, 1)
    assert (embed.body, embed.heads, embed.weight_bytes) == (None, (), 0)
    assert {(pair.heads, pair.head_size) for pair in whole.kv} == {(3, 64)}
    assert whole.weight_bytes == sum(unit.resident_bytes for unit in manifest.units)


@pytest.mark.parametrize("run", [(-1, 2), (3, 3), (4, 2), (0, 63)])
def test_runs_outside_the_model(model: Model, run: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected inside"):
        make_shard(*model, *run)


def test_a_tensor_of_another_shape_is_refused(model: Model) -> None:
    manifest, store = model
    unit = manifest.units[1]
    for tensors, words in (
        (tuple(t for t in unit.tensors if t.name != "o.scale"), "o.scale: .* got none"),
        (
            tuple(dataclasses.replace(t, shape=(t.shape[0] // 2, *t.shape[1:])) for t in unit.tensors),
            "qkv.scale: .* expected, got",
        ),
    ):
        broken = dataclasses.replace(unit, tensors=tensors)
        changed = dataclasses.replace(manifest, units=(manifest.units[0], broken, *manifest.units[2:]))
        with pytest.raises(CorruptStore, match=f"unit attn.0, tensor {words}"):
            make_shard(changed, store, 0, 3)


def small(**changes: Any) -> Architecture:
    numbers: dict[str, Any] = {
        "family": "llama",
        "blocks": 1,
        "hidden": 64,
        "heads": 1,
        "kv_heads": 1,
        "head_size": 64,
    }
    numbers |= {
        "ffn": 64,
        "vocab": 10,
        "context": 64,
        "norm_epsilon": 1e-5,
        "rope_base": 5e5,
        "rope_dims": 64,
    }
    numbers |= {
        "rope_scaling": None,
        "rope_factors": None,
        "qkv_bias": False,
        "qk_norm": False,
        "tied_embedding": True,
    }
    return Architecture(**(numbers | changes))


def test_rotary_tables_follow_their_formulas() -> None:
    plain = 5e5 ** (-np.arange(32) / 32)
    for architecture, frequency in (
        (small(), plain),
        (small(rope_scaling=RopeScaling("linear", 4.0)), plain / 4),
        (small(rope_factors=tuple(range(1, 33))), plain / np.arange(1, 33)),
    ):
        cos, sin = rotary_tables(rotary_frequencies(architecture), 9)
        angles = np.arange(9)[:, None] * frequency
        np.testing.assert_allclose(cos, np.cos(angles), atol=1e-7)
        np.testing.assert_allclose(sin, np.sin(angles), atol=1e-7)


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones() -> None:
    """Llama 3.1's own rule, written as its authors do: by wave length."""
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    expected = []
    for frequency in 5e5 ** (-np.arange(32) / 32):
        wave = 2 * np.pi / frequency
        if wave < 8192 / 4:
            expected.append(frequency)
        elif wave > 8192:
            expected.append(frequency / 8)
        else:
            smooth = (8192 / wave - 1) / (4 - 1)
            expected.append((1 - smooth) * frequency / 8 + smooth * frequency)
    _, sin = rotary_tables(rotary_frequencies(small(rope_scaling=scaling)), 2)
    np.testing.assert_allclose(sin[1], np.sin(expected), rtol=1e-6)
