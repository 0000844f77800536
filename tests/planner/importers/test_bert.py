"""Embedding models: what a folder must say, what is stored of it, and that the graph computes what plain numpy does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from planner.errors import (
    CorruptModel,
    CorruptStore,
    MissingTensor,
    ModelError,
    NoSuchModel,
    UnknownArchitecture,
    UnknownTokenizer,
)
from planner.importers.bert import open_encoder
from planner.importers.registry import resolve, resolve_encoder
from planner.model.encoder import decode_encoder, encode_encoder
from planner.model.encoder_graph import encoder_graph, put_encoder
from planner.model.manifest import decode_manifest
from planner.model.onnx_graph import IR_VERSION, OPSET
from planner.model.store import Store
from tests.planner.plain_bert import TinyBert, plain_bert
from tests.planner.tiny_models import TinyModel

ROWS = ([2, 4, 5, 3], [2, 10, 3], [2, 4, 5, 6, 7, 8, 9, 10, 11, 1, 4, 3])
LINEAR = "encoder.layer.1.intermediate.dense"


@pytest.mark.parametrize(
    "tiny",
    [
        TinyBert(),
        TinyBert(cls=True, normalize=False, prefix="bert.", blocks=1),
        TinyBert(heads=1, hidden=24, config={"hidden_act": "gelu_new", "layer_norm_eps": 1e-5}),
    ],
    ids=["mean", "first row", "tanh"],
)
def test_the_graph_computes_what_numpy_does(tmp_path: Path, tiny: TinyBert) -> None:
    """Several texts at once, filled up to the longest: what fills up has no part in any vector."""
    folder = tiny.write(tmp_path / "tiny")
    store = Store(tmp_path / "store")
    model_id = put_encoder(open_encoder(folder), store)
    assert put_encoder(open_encoder(folder), store) == model_id
    manifest = decode_encoder(store.manifest_bytes(model_id))
    assert (manifest.name, manifest.numbers.max_tokens) == ("tiny", 12)
    graph = encoder_graph(manifest)
    shown = onnx.load_from_string(graph)
    assert shown.ir_version == IR_VERSION
    assert {entry.domain: entry.version for entry in shown.opset_import}[""] == OPSET
    outside = [one for one in shown.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
    assert len(outside) == sum(len(part.tensors) for part in manifest.parts)
    options = ort.SessionOptions()
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(store.root / "blobs")
    )
    session = ort.InferenceSession(graph, options, ["CPUExecutionProvider"])
    tokens, mask = np.full((3, 12), 9, np.int64), np.zeros((3, 12), np.float32)
    for place, row in enumerate(ROWS):
        tokens[place, : len(row)], mask[place, : len(row)] = row, 1
    (found,) = session.run(["embedding"], {"tokens": tokens, "mask": mask})
    expected = plain_bert(folder, *ROWS)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def rewrite(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def nan() -> np.ndarray[Any, Any]:
    return np.full(96, np.nan, np.float32)


REFUSED: dict[str, tuple[TinyBert, Callable[[Path], None] | None, type[ModelError], str]] = {
    "family": (
        TinyBert(config={"model_type": "mpnet"}),
        None,
        UnknownArchitecture,
        "'mpnet'.*known are bert",
    ),
    "activation": (TinyBert(config={"hidden_act": "relu"}), None, UnknownArchitecture, "hidden_act 'relu'"),
    "positions": (
        TinyBert(config={"position_embedding_type": "relative_key"}),
        None,
        UnknownArchitecture,
        "position_embedding_type 'absolute', got 'relative_key'",
    ),
    "heads": (TinyBert(config={"num_attention_heads": 5}), None, CorruptModel, "shared evenly by 5 heads"),
    "width": (
        TinyBert(config={"hidden_size": 64}),
        None,
        CorruptModel,
        r"should be \(12, 64\), is \(12, 32\)",
    ),
    "blocks": (TinyBert(config={"num_hidden_layers": 0}), None, CorruptModel, "blocks from 1 to"),
    "deeper": (TinyBert(config={"num_hidden_layers": 3}), None, MissingTensor, r"encoder\.layer\.2\."),
    "missing": (TinyBert(without=(f"{LINEAR}.bias",)), None, MissingTensor, r"intermediate\.dense\.bias"),
    "stranger": (
        TinyBert(extra={"encoder.layer.0.adapter.weight": np.ones(2, np.float32)}),
        None,
        UnknownArchitecture,
        r"adapter\.weight has no place in bert",
    ),
    "modules": (
        TinyBert(modules=("Transformer", "Pooling", "Dense", "Normalize")),
        None,
        UnknownArchitecture,
        "at most Normalize, got Transformer, Pooling, Dense, Normalize",
    ),
    "no modules": (TinyBert(), remove("modules.json"), NoSuchModel, r"no modules\.json"),
    "modules are a number": (TinyBert(), rewrite("modules.json", "3"), CorruptModel, "should list modules"),
    "modules leave": (
        TinyBert(),
        rewrite(
            "modules.json",
            json.dumps([{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "../other"}]),
        ),
        CorruptModel,
        "expected one beside it",
    ),
    "pooling": (
        TinyBert(pooling={"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}),
        None,
        UnknownArchitecture,
        "got pooling_mode_max_tokens",
    ),
    "two poolings": (
        TinyBert(pooling={"pooling_mode_cls_token": True}),
        None,
        UnknownArchitecture,
        "expected one",
    ),
    "no pooling": (
        TinyBert(),
        remove("1_Pooling/config.json"),
        NoSuchModel,
        r"1_Pooling has no config\.json",
    ),
    "prompts": (
        TinyBert(prompts={"default_prompt_name": "query"}),
        None,
        UnknownArchitecture,
        "default prompt",
    ),
    "lower": (TinyBert(lengths={"do_lower_case": True}), None, UnknownArchitecture, "do_lower_case"),
    "length": (TinyBert(max_tokens=0), None, CorruptModel, "max_tokens from 1"),
    "no config": (TinyBert(), remove("config.json"), NoSuchModel, r"no config\.json"),
    "no tokenizer": (TinyBert(), remove("tokenizer.json"), UnknownTokenizer, r"has no tokenizer\.json"),
}


@pytest.mark.parametrize(("tiny", "act", "error", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_one_clear_line(
    tmp_path: Path, tiny: TinyBert, act: Callable[[Path], None] | None, error: type[ModelError], says: str
) -> None:
    folder = tiny.write(tmp_path / "bad")
    if act:
        act(folder)
    with pytest.raises(error, match=says) as caught:
        open_encoder(folder)
    assert "\n" not in str(caught.value)


def test_numbers_that_are_none_are_found_at_import(tmp_path: Path) -> None:
    folder = TinyBert(extra={f"{LINEAR}.bias": nan()}).write(tmp_path / "bad")
    with pytest.raises(CorruptModel, match=r"layer\.1\.up\.bias: finite numbers expected"):
        put_encoder(open_encoder(folder), Store(tmp_path / "store"))


def test_each_kind_of_model_has_its_place(tmp_path: Path) -> None:
    words = TinyModel().write_folder(tmp_path / "words")
    with pytest.raises(UnknownArchitecture, match="answers in words and makes no embeddings"):
        resolve_encoder(str(words), tmp_path)
    folder = TinyBert(max_tokens=None).write(tmp_path / "tiny")
    assert resolve_encoder(str(folder), tmp_path).numbers.max_tokens == 16  # as many as it has positions
    with pytest.raises(UnknownArchitecture, match="makes embeddings and answers no questions"):
        resolve(str(folder), tmp_path)


def test_a_manifest_is_checked_field_by_field(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    encoded = store.manifest_bytes(put_encoder(open_encoder(TinyBert().write(tmp_path / "tiny")), store))
    manifest = decode_encoder(encoded)
    assert encode_encoder(manifest) == encoded
    with pytest.raises(CorruptStore, match="format"):
        decode_manifest(encoded)
    for broken, says in (
        (replace(manifest, parts=manifest.parts[:-1]), "embed and 2 layers expected"),
        (replace(manifest, parts=manifest.parts[::-1]), "in order"),
        (replace(manifest, numbers=replace(manifest.numbers, heads=3)), "shared evenly by 3 heads"),
        (replace(manifest, numbers=replace(manifest.numbers, max_tokens=17)), "do not fit 16 positions"),
        (replace(manifest, numbers=replace(manifest.numbers, hidden=36)), "embed should hold other tensors"),
        (replace(manifest, numbers=replace(manifest.numbers, blocks=0)), "from 1 to"),
        (replace(manifest, numbers=replace(manifest.numbers, pooling="max")), "one of mean, cls"),  # type: ignore[arg-type]
    ):
        with pytest.raises(CorruptStore, match=says):
            decode_encoder(encode_encoder(broken))
    for garbage in (b"", b"[]", b"{}", encoded[:-1], encoded.replace(b"shoal-encoder-1", b"shoal-encoder-2")):
        with pytest.raises(CorruptStore):
            decode_encoder(garbage)
