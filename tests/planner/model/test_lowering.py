"""Graphs of decoders: what they lower to, computed by onnxruntime, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from planner.errors import CorruptModel, CorruptStore
from planner.importers.decoder_units import build_model
from planner.importers.unit_graphs import INPUT, UnitGraph
from planner.model.decoder_building import build_decoder
from planner.model.lowering import Shard, make_graphs, make_shard
from planner.model.manifest import Manifest, decode_manifest, encode_manifest
from planner.model.onnxruntime_import import ort
from planner.model.store import Store
from tests.peer.made_up_models import MadeUpModel, small_architecture
from tests.vectors.make_lowering import EDITS, odd


@pytest.fixture(name="built")
def fixture_built(tmp_path: Path) -> tuple[Manifest, Store]:
    store = Store(tmp_path)
    return decode_manifest(store.manifest_bytes(build_decoder(odd(), store))), store


def _logits(shard: Shard, hidden: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(shard.blobs))
    return np.concatenate(
        [ort.InferenceSession(part, options).run(None, {"hidden": hidden})[0] for part in shard.heads], axis=1
    )


def test_a_manifest_survives_its_json(built: tuple[Manifest, Store]) -> None:
    manifest, _ = built
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert [unit.kind for unit in manifest.units] == ["embed", "attn", "ffn", "attn", "head"]
    assert [unit.state for unit in manifest.units] == [
        (),
        ("key.0", "value.0", "key.1", "value.1"),
        (),
        ("key.2", "value.2"),
        (),
    ]


def test_a_head_in_parts_gives_the_logits_of_the_whole(
    built: tuple[Manifest, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, store = built
    hidden = np.random.default_rng(0).standard_normal((3, manifest.hidden), np.float32)
    last = len(manifest.units) - 1
    whole = make_shard(manifest, store, last, last + 1)
    monkeypatch.setattr("planner.model.lowering.HEAD_PART_BYTES", manifest.units[-1].resident_bytes // 3)
    monkeypatch.setattr("planner.model.lowering.PART_ROWS", 8)
    parts = make_shard(manifest, store, last, last + 1)
    assert len(whole.heads) == 1 < len(parts.heads)
    expected = _logits(whole, hidden)  # kernels add up in another order where a part ends inside their tiles
    assert _logits(parts, hidden) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    few = make_shard(manifest, store, last, last + 1, vocabulary=7)
    assert _logits(few, hidden) == pytest.approx(expected[:, :7], rel=1e-5, abs=1e-5)


def test_a_head_that_looks_at_all_logits_is_one_part(
    built: tuple[Manifest, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, store = built
    graph = UnitGraph()
    logits = graph.linear(INPUT, "head", manifest.vocab, manifest.hidden)
    softened = store.put_blob([graph.finish(graph.one("LogSoftmax", logits, axis=-1))])
    units = (*manifest.units[:-1], replace(manifest.units[-1], graph=softened))
    manifest = replace(manifest, units=units)
    monkeypatch.setattr("planner.model.lowering.HEAD_PART_BYTES", 1)
    shard = make_shard(manifest, store, 4, 5, vocabulary=7)
    assert len(shard.heads) == 1
    logits_of = _logits(shard, np.ones((1, manifest.hidden), np.float32))
    assert logits_of.shape == (1, manifest.vocab)
    assert np.exp(logits_of).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", EDITS)
def test_a_graph_that_breaks_the_rules_is_refused(
    name: str, built: tuple[Manifest, Store], tmp_path: Path
) -> None:
    manifest, store = built
    place, edit = EDITS[name]
    model = onnx.ModelProto.FromString(odd().units[place].graph)
    edit(model)
    graph = store.put_blob([model.SerializeToString()])
    units = list(manifest.units)
    units[place] = replace(units[place], graph=graph)
    with pytest.raises(CorruptStore, match=r"import the model again"):
        make_graphs(replace(manifest, units=tuple(units)), store, place, place + 1, "cpu")


def test_an_import_with_a_graph_that_no_peer_runs_keeps_no_weights(tmp_path: Path) -> None:
    source = odd()
    graph = UnitGraph()
    broken = graph.finish(graph.linear(INPUT, "up", 95, 64))
    units = (*source.units[:2], replace(source.units[2], graph=broken), *source.units[3:])
    store = Store(tmp_path)
    with pytest.raises(CorruptModel, match=r"odd cannot be kept: .*\(95, 64\) expected"):
        build_decoder(replace(source, units=units), store)
    assert store.models() == []


def test_weights_of_an_expert_are_in_the_branch_that_computes_it(tmp_path: Path) -> None:
    source = MadeUpModel(small_architecture(experts=4, experts_chosen=1, shared_ffn=40), {})
    store = Store(tmp_path)
    manifest = decode_manifest(store.manifest_bytes(build_model(source, "8bit", store)))
    (place, unit), *_ = [(at, each) for at, each in enumerate(manifest.units) if each.kind == "ffn"]
    body = make_graphs(manifest, store, place, place + 1, "cpu").body
    assert body is not None
    graph = onnx.ModelProto.FromString(body).graph
    assert not [each.name for each in graph.initializer if "/experts." in each.name]
    branches = [node for node in graph.node if node.op_type == "If"]
    assert len(branches) == 4
    for expert, node in enumerate(branches):
        then = next(each.g for each in node.attribute if each.name == "then_branch")
        other = next(each.g for each in node.attribute if each.name == "else_branch")
        held = {each.name for each in then.initializer}
        assert held == {
            f"u{place}/experts.{expert}.{part}.{form}"
            for part in ("gate_up", "down")
            for form in ("q8", "scale")
        }
        assert [each.op_type for each in other.node] == ["Identity"]
    one = 3 * 64 * 96
    assert unit.flops_per_token == 2 * (unit.params - 3 * one)


def test_each_expert_is_one_run_of_bytes(tmp_path: Path) -> None:
    source = MadeUpModel(small_architecture(experts=4, experts_chosen=1), {})
    store = Store(tmp_path)
    manifest = decode_manifest(store.manifest_bytes(build_model(source, "4bit", store)))
    unit = next(each for each in manifest.units if each.kind == "ffn")
    order = [tensor.name.split(".")[1] for tensor in unit.tensors if tensor.name.startswith("experts.")]
    assert order == sorted(order)
    assert sorted(tensor.offset for tensor in unit.tensors) == [tensor.offset for tensor in unit.tensors]
