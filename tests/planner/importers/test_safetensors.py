"""Hugging Face folders: every family, sharded or not, equal to the GGUF of the same weights; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from planner.errors import (
    CorruptModel,
    MissingTensor,
    ModelError,
    NoSuchModel,
    UnknownArchitecture,
    UnknownTokenizer,
)
from planner.importers.architecture import RopeScaling
from planner.importers.gguf import open_gguf
from planner.importers.layout import tensor_shapes
from planner.importers.safetensors import open_safetensors

if TYPE_CHECKING:
    from tests.planner.tiny_models import TinyModel

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, own head": {"tied": False},
    "llama, biased": {"bias": True},
    "mistral": {"family": "mistral", "tied": False},
    "qwen2": {"family": "qwen2", "bias": True},
    "qwen3": {"family": "qwen3", "qk_norm": True, "head_size": 128, "tied": False},
}


@pytest.mark.parametrize("changes", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("shards", [1, 3])
def test_folder_and_gguf_of_the_same_weights_are_the_same_model(
    tiny_model: TinyModel, tmp_path: Path, changes: dict[str, Any], shards: int
) -> None:
    model = tiny_model.but(**changes)
    folder = open_safetensors(model.write_folder(tmp_path / "tiny", shards=shards))
    file = open_gguf(model.write_gguf(tmp_path / "tiny.gguf"))
    a, b = folder.architecture, file.architecture
    assert (folder.name, a.family) == ("tiny", model.family)
    for field in (
        "blocks",
        "hidden",
        "heads",
        "kv_heads",
        "head_size",
        "ffn",
        "vocab",
        "context",
        "rope_base",
    ):
        assert getattr(a, field) == getattr(b, field), field
    for field in ("rope_dims", "rope_scaling", "rope_factors", "qkv_bias", "qk_norm", "tied_embedding"):
        assert getattr(a, field) == getattr(b, field), field
    assert a.norm_epsilon == pytest.approx(b.norm_epsilon)
    for name, shape in tensor_shapes(a).items():
        ours, theirs = folder.tensor(name), file.tensor(name)
        assert ours.shape == theirs.shape == shape
        np.testing.assert_array_equal(ours.float32(), theirs.float32(), name)
        assert ours.blocks() is None
    s, t = folder.tokenizer, file.tokenizer
    assert (
        (s.bos_token, s.end_tokens, s.add_bos)
        == (t.bos_token, t.end_tokens, t.add_bos)
        == (258, (259,), False)
    )
    assert s.chat_template == t.chat_template


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_every_number_type_is_read_exactly(tiny_model: TinyModel, tmp_path: Path, dtype: str) -> None:
    source = open_safetensors(tiny_model.write_folder(tmp_path / "m", dtype=dtype))
    for name, weight in tiny_model.weights().items():
        assert source.tensor(name).kind == dtype
        np.testing.assert_array_equal(source.tensor(name).float32(), weight)
        assert source.tensor(name).float32().flags.c_contiguous


def test_what_the_safetensors_package_writes_is_read(tiny_model: TinyModel, tmp_path: Path) -> None:
    path = tiny_model.write_folder(tmp_path / "m") / "model.safetensors"
    save_file(load_file(path), path, metadata={"format": "np"})
    source = open_safetensors(path.parent)
    for name, weight in tiny_model.weights().items():
        np.testing.assert_array_equal(source.tensor(name).float32(), weight, name)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("config", "base", "scaling"),
    [
        ({"rope_scaling": LLAMA3}, 10_000.0, RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)),
        ({"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}, 5e5, RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 10_000.0, RopeScaling("linear", 2.0)),
        ({"rope_scaling": None, "rope_theta": 1_000_000}, 1e6, None),
        ({"rope_scaling": {"rope_type": "default"}}, 10_000.0, None),
    ],
)
def test_rope_in_both_spellings(
    tiny_model: TinyModel, tmp_path: Path, config: dict[str, Any], base: float, scaling: RopeScaling | None
) -> None:
    a = open_safetensors(tiny_model.write_folder(tmp_path / "m", config=config)).architecture
    assert (a.rope_base, a.rope_scaling, a.rope_factors) == (base, scaling, None)


@pytest.mark.parametrize(
    ("family", "config", "context"),
    [
        ("mistral", {"sliding_window": 64}, 64),
        ("mistral", {"sliding_window": None}, 512),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": False}, 512),
        ("qwen2", {"sliding_window": 64}, 512),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True}, 64),
    ],
)
def test_context_ends_where_a_window_would_begin_to_slide(
    tiny_model: TinyModel, tmp_path: Path, family: str, config: dict[str, Any], context: int
) -> None:
    folder = tiny_model.but(family=family).write_folder(tmp_path / "m", config=config)
    assert open_safetensors(folder).architecture.context == context


def test_what_the_config_leaves_out(tiny_model: TinyModel, tmp_path: Path) -> None:
    without = (
        "tie_word_embeddings",
        "head_dim",
        "num_key_value_heads",
        "rms_norm_eps",
        "rope_theta",
        "hidden_act",
    )
    model = tiny_model.but(kv_heads=4)
    a = open_safetensors(model.write_folder(tmp_path / "m", without=without)).architecture
    assert (a.tied_embedding, a.head_size, a.kv_heads, a.norm_epsilon, a.rope_base) == (
        True,
        64,
        4,
        1e-6,
        10_000.0,
    )


def test_a_tied_model_may_carry_a_copy_of_its_head(tiny_model: TinyModel, tmp_path: Path) -> None:
    extra = {"lm_head.weight": tiny_model.weights()["embed.weight"]}
    source = open_safetensors(tiny_model.write_folder(tmp_path / "m", extra=extra))
    assert source.architecture.tied_embedding
    with pytest.raises(MissingTensor, match=r"no tensor head\.weight"):
        source.tensor("head.weight")


@pytest.mark.parametrize(
    ("files", "template", "ends", "bos"),
    [
        ({}, "{{ messages[0]['content'] }}", (259,), False),
        (
            {"generation_config.json": {"eos_token_id": [257, 259, 9999]}},
            "{{ messages[0]['content'] }}",
            (259, 257),
            False,
        ),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}]
                }
            },
            "D",
            (259,),
            False,
        ),
        ({"tokenizer_config.json": {}, "chat_template.jinja": "J"}, "J", (259,), False),
        ({"tokenizer_config.json": {"chat_template": "C"}, "chat_template.jinja": "J"}, "J", (259,), False),
        ({"tokenizer_config.json": {}, "chat_template.jinja": "\ufeffa\r\nb"}, "a\nb", (259,), False),
        ({"tokenizer_config.json": {"chat_template": {"default": "D"}}}, "D", (259,), False),
        ({"tokenizer_config.json": {}, "chat_template.json": {"chat_template": "O"}}, "O", (259,), False),
        ({"tokenizer_config.json": {}}, None, (259,), False),
        ({"tokenizer_config.json": {"bos_token": "<|im_start|>", "add_bos_token": True}}, None, (259,), True),
    ],
)
def test_tokenizer_settings(
    tiny_model: TinyModel,
    tmp_path: Path,
    files: dict[str, Any],
    template: str | None,
    ends: tuple[int, ...],
    bos: bool,
) -> None:
    folder = tiny_model.write_folder(tmp_path / "m")
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    source = open_safetensors(folder).tokenizer
    assert (source.chat_template, source.end_tokens, source.add_bos) == (template, ends, bos)
    assert source.tokenizer_json == (folder / "tokenizer.json").read_bytes()


def rewrite(name: str, content: str | bytes) -> Callable[[Path], None]:
    raw = content.encode() if isinstance(content, str) else content

    def edit(folder: Path) -> None:
        (folder / name).write_bytes(raw)

    return edit


def remove(*names: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return act


def header(entry: object, body: bytes = b"") -> Callable[[Path], None]:
    text = json.dumps({"model.norm.weight": entry}).encode()
    return rewrite("model.safetensors", len(text).to_bytes(8, "little") + text + body)


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")


def index(weight_map: object) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return act


REFUSED: dict[str, tuple[dict[str, Any], Callable[[Path], None] | None, type[ModelError], str]] = {
    "family": (
        {"config": {"model_type": "qwen9_vl"}},
        None,
        UnknownArchitecture,
        "model_type 'qwen9_vl' is not supported; the nearest that is: qwen.*; `shoal models --families` lists",
    ),
    "quantized": (
        {"config": {"quantization_config": {"bits": 4}}},
        None,
        UnknownArchitecture,
        "quantized exports",
    ),
    "activation": (
        {"config": {"hidden_act": "gelu"}},
        None,
        UnknownArchitecture,
        "expected hidden_act silu, got 'gelu'",
    ),
    "dynamic": (
        {"config": {"rope_scaling": {"rope_type": "dynamic", "factor": 4}}},
        None,
        UnknownArchitecture,
        "rope scaling 'dynamic'",
    ),
    "part rotates": ({"config": {"partial_rotary_factor": 0.5}}, None, UnknownArchitecture, "rotate in part"),
    "no layers": (
        {"without": ("num_hidden_layers",)},
        None,
        CorruptModel,
        "num_hidden_layers should be a whole number, is 'None'",
    ),
    "odd number": (
        {"config": {"rope_theta": "x"}},
        None,
        CorruptModel,
        "rope_theta should be a finite number",
    ),
    "no factor": (
        {"config": {"rope_scaling": {"type": "linear", "factor": -1}}},
        None,
        CorruptModel,
        "factor should be above 0",
    ),
    "hidden": (
        {"config": {"hidden_size": 128}},
        None,
        CorruptModel,
        r"embed_tokens\.weight should be \(288, 128\), is \(288, 256\)",
    ),
    "missing": (
        {"without": ("model.layers.1.mlp.up_proj.weight",)},
        None,
        MissingTensor,
        r"mlp\.up_proj\.weight \(ffn\.1\.up\) is missing",
    ),
    "no head": ({"config": {"tie_word_embeddings": False}}, None, MissingTensor, r"lm_head\.weight"),
    "stranger": (
        {"extra": {"model.layers.0.odd.weight": np.ones(4, np.float32)}},
        None,
        UnknownArchitecture,
        r"odd\.weight has no place in llama",
    ),
    "no config": (
        {},
        remove("config.json"),
        NoSuchModel,
        r"no config\.json: expected a Hugging Face model folder",
    ),
    "config is no JSON": ({}, rewrite("config.json", "{"), CorruptModel, r"config\.json is not JSON"),
    "config is a list": ({}, rewrite("config.json", "[]"), CorruptModel, "should be an object, is a list"),
    "no tokenizer": ({}, remove("tokenizer.json"), UnknownTokenizer, r"has no tokenizer\.json"),
    "bad tokenizer": (
        {},
        rewrite("tokenizer.json", "{}"),
        UnknownTokenizer,
        r"tokenizer\.json cannot be read",
    ),
    "no weights": ({}, remove("model.safetensors"), NoSuchModel, "has neither model.safetensors nor"),
    "pickle": ({}, only_pickle, NoSuchModel, "only pickled weights, which are never opened"),
    "empty": ({}, rewrite("model.safetensors", b""), CorruptModel, "ends early"),
    "not safetensors": ({}, rewrite("model.safetensors", b"PK\x03\x04" * 99), CorruptModel, "does not fit"),
    "header is no JSON": (
        {},
        rewrite("model.safetensors", (4).to_bytes(8, "little") + b"oops"),
        CorruptModel,
        "not JSON",
    ),
    "header is a list": (
        {},
        rewrite("model.safetensors", (2).to_bytes(8, "little") + b"[]"),
        CorruptModel,
        "should be an object",
    ),
    "entry": ({}, header({"dtype": "F32"}), CorruptModel, "should have dtype, shape and data_offsets"),
    "negative shape": (
        {},
        header({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}),
        CorruptModel,
        "should have dtype",
    ),
    "int8": (
        {},
        header({"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}, bytes(4)),
        UnknownArchitecture,
        "is I8; supported are",
    ),
    "lengths": (
        {},
        header({"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}, bytes(4)),
        CorruptModel,
        "needs 16 bytes, has 4",
    ),
    "backwards": (
        {},
        header({"dtype": "F32", "shape": [4], "data_offsets": [32, 16]}, bytes(40)),
        CorruptModel,
        "needs 16 bytes, has -16",
    ),
    "cut": (
        {},
        header({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, bytes(8)),
        CorruptModel,
        "the file ends early",
    ),
    "index leaves": (
        {},
        index({"a": "../x.safetensors"}),
        CorruptModel,
        "expected a .safetensors file beside it",
    ),
    "index pickle": ({}, index({"a": "x.bin"}), CorruptModel, "expected a .safetensors file beside it"),
    "index shape": ({}, index(["a"]), CorruptModel, "should hold a weight_map"),
    "shard missing": (
        {},
        index({"a": "model-00002-of-00002.safetensors"}),
        NoSuchModel,
        "which is missing: download",
    ),
    "tensor not there": (
        {},
        index({"odd": "model-00001-of-00001.safetensors"}),
        MissingTensor,
        "tensor odd is not in",
    ),
}


@pytest.mark.parametrize(("how", "act", "error", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_one_clear_line(
    tiny_model: TinyModel,
    tmp_path: Path,
    how: dict[str, Any],
    act: Callable[[Path], None] | None,
    error: type[ModelError],
    says: str,
) -> None:
    folder = tiny_model.write_folder(tmp_path / "bad", **how)
    if act:
        act(folder)
    with pytest.raises(error, match=says) as caught:
        open_safetensors(folder)
    assert "\n" not in str(caught.value)
