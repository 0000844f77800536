"""Whether an ONNX file takes texts: by the tokenizer beside it and the names of its inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from planner.errors import UnknownTokenizer
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import import_graph
from planner.importers.onnx.text_inputs import text_inputs, tokenizer_beside
from planner.importers.registry import locate
from planner.model.graph_manifest import GraphManifest, Value, ValueType, decode_graph_manifest
from planner.model.store import Store

VECTORS: Any = json.loads((Path(__file__).parents[3] / "vectors" / "text_inputs.json").read_text("utf-8"))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Says that it cuts texts to three tokens; its [PAD] is token 0."""
    file = tmp_path / "tokenizer.json"
    file.write_text(VECTORS["tokenizer"][0], "utf-8")
    return file


def model(width: int | str = "length", **inputs: ValueType) -> GraphManifest:
    values = tuple(Value(name, dtype, ("texts", width), ()) for name, dtype in inputs.items())
    return GraphManifest("m", tuple(inputs), (), {}, values, ())


@pytest.mark.parametrize(
    ("manifest", "longest", "found"),
    [
        (model(input_ids="int64"), 0, ("input_ids", None, None, 3)),
        (model(input_ids="int64", attention_mask="int64"), 0, ("input_ids", "attention_mask", None, 3)),
        (
            model(attention_mask="int64", token_type_ids="int64", input_ids="int64"),
            0,
            ("input_ids", "attention_mask", "token_type_ids", 3),
        ),
        (model(tokens="int64", mask="float32"), 256, ("tokens", "mask", None, 256)),
        (model(128, input_ids="int32"), 0, ("input_ids", None, None, 128)),
        (model(128, input_ids="int32"), 256, None),
        (model(input_ids="float32"), 0, None),
        (model(input_ids="int64", pixels="float32"), 0, None),
        (model(x="int64"), 0, None),
    ],
)
def test_what_texts_become(
    tokenizer: Path,
    manifest: GraphManifest,
    longest: int,
    found: tuple[str, str | None, str | None, int] | None,
) -> None:
    made = text_inputs(manifest, tokenizer, longest)
    assert (made is None) == (found is None)
    if made is not None:
        content, text = made
        assert content == tokenizer.read_bytes()
        assert (text.tokens, text.mask, text.types, text.longest) == found
        text.tokenizer.check()


def test_without_a_word_of_the_tokenizer_a_text_has_512_tokens(tokenizer: Path) -> None:
    rules = json.loads(tokenizer.read_text("utf-8"))
    tokenizer.write_text(json.dumps({**rules, "truncation": None}))
    made = text_inputs(model(input_ids="int64"), tokenizer, 0)
    assert made is not None
    assert made[1].longest == 512


def test_a_tokenizer_lies_beside_the_file_or_above_a_folder_of_exports(tokenizer: Path) -> None:
    folder = tokenizer.parent
    for name in ("onnx", "other"):
        (folder / name).mkdir()
    assert tokenizer_beside(folder / "model.onnx") == tokenizer
    assert tokenizer_beside(folder / "onnx" / "model.onnx") == tokenizer
    assert tokenizer_beside(folder / "other" / "model.onnx") is None


def test_a_tokenizer_that_cannot_be_read_is_an_error(tokenizer: Path) -> None:
    tokenizer.write_text("{}")
    with pytest.raises(UnknownTokenizer, match=r"tokenizer\.json beside the model cannot be read: "):
        text_inputs(model(input_ids="int64"), tokenizer, 0)
    assert text_inputs(model(x="int64"), tokenizer, 0) is None, "it belongs to another model"


def test_an_import_keeps_the_tokenizer_in_the_store(tokenizer: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    graph = helper.make_graph(
        [helper.make_node("Cast", ["input_ids"], ["y"], to=TensorProto.FLOAT)],
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["texts", "length"])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    located = locate(str(file), tmp_path / "cache")
    assert set(located.files) == {"model.onnx", "tokenizer.json"}, "another tokenizer is another model"
    source = located.open()
    assert isinstance(source, SourceGraph)
    store = Store(tmp_path / "store")
    manifest = decode_graph_manifest(store.manifest_bytes(import_graph(source, store)))
    assert manifest.text is not None
    assert store.is_sound(manifest.text.tokenizer)
    bare = decode_graph_manifest(store.manifest_bytes(import_graph(replace(source, tokenizer=None), store)))
    assert bare == replace(manifest, text=None)
