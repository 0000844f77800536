"""Encoders of GGUF files make the vectors of the folder that they were converted from, and cut texts the same way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from peer.gateway.embedder import LocalEncoder
from peer.model.text_inputs import TextReader
from planner.errors import ModelError, UnknownArchitecture, UnknownTokenizer
from planner.importers.encoders.folder import OpenedEncoder, open_encoder
from planner.importers.encoders.gguf import open_gguf_encoder
from planner.importers.encoders.shape import Floats
from planner.importers.gguf_file import read_gguf
from planner.importers.registry import locate
from planner.importers.tokenizer import word_piece
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.encoders.checkpoints import TEXTS, load, write_folder
from tests.planner.importers.families.checkpoints import weights_of
from tests.planner.stored_encoder import put_encoder

CLOSE = 1e-5  # of vectors of length one
ARCHITECTURES: Final = {"bert": "bert", "nomic_bert": "nomic-bert"}
CONTROL, NORMAL = 3, 1
_NAMES: Final = {  # of ours, without a block's number, as the converter calls them
    "embed.words": ("token_embd",),
    "embed.kinds": ("token_types",),
    "embed.positions": ("position_embd",),
    "embed.norm": ("token_embd_norm",),
    "layer.o": ("attn_output",),
    "layer.attention_norm": ("attn_output_norm",),
    "layer.down": ("ffn_down",),
    "layer.ffn_norm": ("layer_output_norm",),
}
Change = Callable[[gguf.GGUFWriter], None]


def file_of(
    path: Path,
    source: OpenedEncoder,
    rules: Mapping[str, Any],
    arch: str,
    packed: GGMLQuantizationType | None = None,
    pooling: int = 1,
    more: Change = lambda _: None,
) -> Path:
    """The encoder as a file of float32, or of `packed` matrices, as llama.cpp's converter writes it."""
    shape, gated = source.shape, source.shape.gated
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(shape.blocks)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(shape.norm_epsilon)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType(pooling))
    if shape.rotary:
        writer.add_rope_freq_base(shape.rotary[0])
    add_vocabulary(writer, rules)
    more(writer)
    parts = {
        **_NAMES,
        "layer.qkv": ("attn_qkv",) if gated else ("attn_q", "attn_k", "attn_v"),
        "layer.up": ("ffn_gate", "ffn_up") if gated else ("ffn_up",),
    }
    for ours in source.files:
        name, _, kind = ours.rpartition(".")
        block = ""
        if name.startswith("layer."):
            _, number, part = name.split(".")
            name, block = f"layer.{part}", f"blk.{number}."
        names, numbers = parts[name], source.tensor(ours)
        for called, rows in zip(names, np.split(numbers, len(names)), strict=True):
            if packed is not None and rows.ndim == 2 and not rows.shape[1] % 32:
                writer.add_tensor(f"{block}{called}.{kind}", quantize(rows, packed), raw_dtype=packed)
            else:
                writer.add_tensor(f"{block}{called}.{kind}", np.ascontiguousarray(rows))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_vocabulary(writer: gguf.GGUFWriter, rules: Mapping[str, Any]) -> None:
    """The tokens of a tokenizer.json of WordPiece."""
    vocab = rules["model"]["vocab"]
    special = {each["id"] for each in rules["added_tokens"] if each["special"]}

    def spelled(text: str, token: int) -> str:
        if token in special or (text.startswith("[") and text.endswith("]")):
            return text
        return text[2:] if text.startswith("##") else f"\u2581{text}"

    texts = sorted(vocab, key=vocab.get)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([spelled(text, token) for token, text in enumerate(texts)])
    writer.add_token_types([CONTROL if token in special else NORMAL for token in range(len(texts))])
    for name, mark in (("bos", "[CLS]"), ("seperator", "[SEP]"), ("unknown", "[UNK]"), ("padding", "[PAD]")):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", vocab[mark])


def vectors(store: Store, source: OpenedEncoder) -> Floats:
    model = put_encoder(source, store)
    manifest = decode_graph_manifest(store.manifest_bytes(model))
    assert manifest.text is not None
    reader = TextReader(manifest, store.blob_path(manifest.text.tokenizer.sha256).read_bytes())

    async def here(work: Callable[[], Any]) -> Any:
        return work()

    return np.concatenate([asyncio.run(LocalEncoder(store, model, 1).outputs(reader.rows(TEXTS), here))])


def rules_of(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    return read


@pytest.mark.parametrize("case", ["bert", "nomic"])
def test_a_file_makes_the_vectors_of_its_folder(case: str, tmp_path: Path) -> None:
    folder = load(case).write(tmp_path / "folder")
    source, store = open_encoder(folder), Store(tmp_path / "store")
    path = file_of(tmp_path / "made.gguf", source, rules_of(folder), ARCHITECTURES[load(case).case.kind])
    opened = locate(str(path), tmp_path).open()
    assert isinstance(opened, OpenedEncoder)
    assert opened.name == "made"
    found, expected = vectors(store, opened), vectors(store, source)
    np.testing.assert_allclose(found, expected, atol=CLOSE)
    np.testing.assert_allclose(expected, load(case).made, atol=CLOSE)  # which transformers made


def test_packed_weights_are_what_they_stand_for(tmp_path: Path) -> None:
    """The vectors are those of a folder whose matrices hold what 8 bits say."""
    kind, known = GGMLQuantizationType.Q8_0, load("bert")
    wider = {48: 64, 80: 96}  # whole blocks of 32
    config = {
        key: wider.get(value, value) if type(value) is int else value for key, value in known.config.items()
    }
    shapes = {name: tuple(wider.get(size, size) for size in shape) for name, shape in known.shapes.items()}
    assert known.config["vocab_size"] not in wider
    weights = weights_of(shapes, 5)
    folder = write_folder(tmp_path / "folder", known.case, config, weights, {})
    source, store = open_encoder(folder), Store(tmp_path / "store")
    path = file_of(tmp_path / "packed.gguf", source, rules_of(folder), "bert", kind)
    assert read_gguf(path).tensors["blk.0.ffn_up.weight"].kind is kind
    unpacked = {
        name: dequantize(quantize(each, kind), kind) if each.ndim == 2 else each
        for name, each in weights.items()
    }
    plain = write_folder(tmp_path / "plain", known.case, config, unpacked, {})
    found = vectors(store, open_gguf_encoder(read_gguf(path)))
    np.testing.assert_allclose(found, vectors(store, open_encoder(plain)), atol=CLOSE)
    assert np.abs(found - vectors(store, source)).max() > CLOSE


def test_a_real_vocabulary_cuts_as_its_own_file_does(minilm_folder: Path, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "words.gguf", "bert")
    add_vocabulary(writer, rules_of(minilm_folder))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    real = Tokenizer.from_file(str(minilm_folder / "tokenizer.json"))
    real.no_padding()
    real.no_truncation()
    made = word_piece(read_gguf(tmp_path / "words.gguf"), real.get_vocab_size())
    for text in (
        "Why is the sky blue?",
        "Crème brûlée, naïve façade",
        "人工智能 is artificial intelligence",
        "unbelievable-looking @user #tags 3.14159 \t\n",
        "[CLS] is a mark, [unused3] is none; ¿qué? 🙂",
        "antidisestablishmentarianism " * 3,
        "",
    ):
        assert made.encode(text).ids == real.encode(text).ids, text
        pair = made.encode(text, "and another"), real.encode(text, "and another")
        assert pair[0].ids == pair[1].ids
        assert pair[0].type_ids == pair[1].type_ids


@pytest.mark.parametrize(
    ("arch", "pooling", "more", "error", "says"),
    [
        ("modern-bert", 1, None, UnknownArchitecture, "'modern-bert' is not supported in GGUF files"),
        ("bert", 4, None, UnknownArchitecture, "pooling_type 1 .* or 2 .* expected, got 4"),
        ("bert", 0, None, UnknownArchitecture, "expected, got 0"),
        ("bert", 1, "stranger", UnknownArchitecture, "tensor blk.0.odd.weight has no place"),
        ("bert", 1, "words", UnknownTokenizer, "tokenizer model 't5' of an encoder"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(
    arch: str, pooling: int, more: str | None, error: type[ModelError], says: str, tmp_path: Path
) -> None:
    folder = load("bert").write(tmp_path / "folder")

    def change(writer: gguf.GGUFWriter) -> None:
        if more == "stranger":
            writer.add_tensor("blk.0.odd.weight", np.ones(4, np.float32))
        if more == "words":
            writer.kv_data[0].pop("tokenizer.ggml.model")
            writer.add_tokenizer_model("t5")

    path = file_of(
        tmp_path / "made.gguf", open_encoder(folder), rules_of(folder), arch, pooling=pooling, more=change
    )
    with pytest.raises(error, match=says) as caught:
        open_gguf_encoder(read_gguf(path))
    assert "\n" not in str(caught.value)
