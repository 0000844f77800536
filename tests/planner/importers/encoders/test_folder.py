"""Encoders in folders: what a folder must say, and that what is unknown is refused in one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from planner.errors import (
    CorruptModel,
    MissingTensor,
    ModelError,
    NoSuchModel,
    UnknownArchitecture,
    UnknownTokenizer,
)
from planner.importers.encoders.file import encoder_file
from planner.importers.encoders.folder import open_encoder
from planner.importers.registry import locate, resolve
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.encoders.checkpoints import load
from tests.planner.plain_bert import TinyBert
from tests.planner.stored_encoder import put_encoder

LINEAR = "encoder.layer.1.intermediate.dense"


def rewrite(name: str, content: str) -> Callable[[Path], None]:

    def edit(folder: Path) -> None:
        (folder / name).write_text(content)

    return edit


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def nan() -> np.ndarray[Any, Any]:
    return np.full(96, np.nan, np.float32)


REFUSED: dict[str, tuple[TinyBert, Callable[[Path], None] | None, type[ModelError], str]] = {
    "family": (
        TinyBert(config={"model_type": "deberta-v2"}),
        None,
        UnknownArchitecture,
        "'deberta-v2' is not supported; the nearest that is: distilbert",
    ),
    "activation": (TinyBert(config={"hidden_act": "mish"}), None, UnknownArchitecture, "hidden_act 'mish'"),
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
        TinyBert(modules=("Transformer", "Pooling", "LayerNorm", "Normalize")),
        None,
        UnknownArchitecture,
        "Dense or Normalize alone, got Transformer, Pooling, LayerNorm, Normalize",
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
        TinyBert(pooling={"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}),
        None,
        UnknownArchitecture,
        "got pooling_mode_lasttoken",
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
    "length": (TinyBert(max_tokens=0), None, CorruptModel, "max_seq_length of at least 1"),
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
    with (
        pytest.raises(CorruptModel, match=r"layer\.1\.up\.bias: finite numbers expected"),
        encoder_file(open_encoder(folder), Store(tmp_path / "store")),
    ):
        pass


def test_each_kind_of_model_has_its_place(tmp_path: Path) -> None:
    folder = TinyBert(max_tokens=None).write(tmp_path / "tiny")
    source = locate(str(folder), tmp_path).open()
    assert (source.name, getattr(source, "longest", 0)) == ("tiny", 16)  # as many as it has positions
    with pytest.raises(UnknownArchitecture, match="makes embeddings and answers no questions"):
        resolve(str(folder), tmp_path)
    ranks = load("bert-scores").write(tmp_path / "ranks")
    with pytest.raises(UnknownArchitecture, match="ranks texts and answers no questions"):
        resolve(str(ranks), tmp_path)


def changed(name: str, said: Mapping[str, object]) -> Callable[[Path], None]:
    """Other entries in a JSON file of a folder; None takes one away."""

    def act(folder: Path) -> None:
        found = {**json.loads((folder / name).read_text()), **said}
        (folder / name).write_text(
            json.dumps({key: value for key, value in found.items() if value is not None})
        )

    return act


def without_mark(folder: Path) -> None:
    """A tokenizer that joins the texts of a pair with nothing between."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    tokenizer.save(str(folder / "tokenizer.json"))


def of_dense(said: Mapping[str, object]) -> Callable[[Path], None]:
    return changed("2_Dense/config.json", said)


OTHERS: dict[str, tuple[str, Callable[[Path], None], type[ModelError], str]] = {
    "labels": (
        "bert-classes",
        changed("config.json", {"id2label": {"0": "no", "1": "no", "2": "yes"}}),
        CorruptModel,
        "id2label of config.json should name 1 to 4096 classes from 0 on, no two alike",
    ),
    "numbered labels": (
        "bert-classes",
        changed("config.json", {"id2label": {"1": "no", "2": "yes", "3": "both"}}),
        CorruptModel,
        "should name 1 to 4096 classes from 0 on",
    ),
    "more labels": (
        "bert-classes",
        changed("config.json", {"id2label": {"0": "no", "1": "yes"}}),
        CorruptModel,
        r"should be \(2, 48\), is \(3, 48\)",
    ),
    "regression": (
        "bert-classes",
        changed("config.json", {"problem_type": "regression"}),
        UnknownArchitecture,
        "problem_type 'regression' is not supported; known are single_label_classification",
    ),
    "scores": (
        "bert-scores",
        changed("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.Softplus"}}),
        UnknownArchitecture,
        "scores through 'Softplus' are not supported",
    ),
    "pairs": ("bert-scores", without_mark, UnknownArchitecture, "no mark between the two texts"),
    "head": (
        "modernbert-scores",
        changed("config.json", {"classifier_pooling": "last"}),
        UnknownArchitecture,
        "a classifier of 'gelu' over 'last'",
    ),
    "dense": (
        "bert-dense",
        of_dense({"activation_function": "torch.nn.modules.activation.SELU"}),
        UnknownArchitecture,
        "activation 'SELU' of a Dense",
    ),
    "narrow dense": (
        "bert-dense",
        of_dense({"in_features": 32}),
        CorruptModel,
        "numbers of 48, makes 24 of 32",
    ),
    "wide dense": (
        "bert-dense",
        of_dense({"out_features": 32}),
        CorruptModel,
        r"should be \(32, 48\), is \(24, 48\)",
    ),
    "buckets": (
        "mpnet",
        changed("config.json", {"relative_attention_num_buckets": 6}),
        CorruptModel,
        "buckets of distances expected, a multiple of 4, got 6",
    ),
    "layers": (
        "modernbert",
        changed("config.json", {"layer_types": ["full_attention"]}),
        CorruptModel,
        "4 bases of rotary embedding expected, got 1",
    ),
    "kinds of layers": (
        "modernbert",
        changed("config.json", {"layer_types": ["chunked"] * 4}),
        UnknownArchitecture,
        "layer_types of full_attention and sliding_attention expected",
    ),
    "rope": (
        "nomic",
        changed("config.json", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
        UnknownArchitecture,
        "a scaled rotary embedding",
    ),
    "norms": (
        "nomic",
        changed("config.json", {"prenorm": True}),
        UnknownArchitecture,
        "expected prenorm False",
    ),
    "odd heads": (
        "nomic",
        changed("config.json", {"num_attention_heads": 16}),
        CorruptModel,
        "an even head size, got 3",
    ),
    "positions": (
        "roberta",
        changed("config.json", {"pad_token_id": 79}),
        CorruptModel,
        "positions from 1 to",
    ),
}


@pytest.mark.parametrize(("case", "act", "error", "says"), OTHERS.values(), ids=OTHERS.keys())
def test_variants_of_other_families_are_refused(
    tmp_path: Path, case: str, act: Callable[[Path], None], error: type[ModelError], says: str
) -> None:
    folder = load(case).write(tmp_path / "bad")
    act(folder)
    with pytest.raises(error, match=says) as caught:
        open_encoder(folder)
    assert "\n" not in str(caught.value)


def test_the_same_folder_is_the_same_model(tmp_path: Path) -> None:
    """Also as newer versions of sentence-transformers write what follows the encoder."""
    store = Store(tmp_path / "store")
    folder = load("bert").write(tmp_path / "folder")
    model = put_encoder(open_encoder(folder), store)
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"embedding_dimension": 48, "pooling_mode": "mean", "include_prompt": True})
    )
    assert put_encoder(open_encoder(folder), store) == model
    manifest = decode_graph_manifest(store.manifest_bytes(model))
    assert manifest.text is not None
    assert (manifest.name, manifest.text.vectors, manifest.text.longest) == ("folder", "embedding", 64)
    assert replace(manifest.text, vectors=None).inputs == ("tokens", "mask")
