"""A BERT sentence encoder in numpy, one text at a time, to compare the graph with; and tiny encoders in folders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

Doubles = npt.NDArray[np.float64]
erf = np.vectorize(math.erf)


def plain_bert(folder: Path, *texts: Sequence[int]) -> Doubles:
    """Each text's vector, one text after the other, from the files of a sentence-transformers folder."""
    config = json.loads((folder / "config.json").read_text())
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    modules = json.loads((folder / "modules.json").read_text())
    stored = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): tensor for name, tensor in stored.items()}
    return np.stack([_vector(config, pooling, modules, weights, tokens) for tokens in texts])


def _vector(
    config: dict[str, Any],
    pooling: dict[str, Any],
    modules: list[dict[str, Any]],
    weights: Mapping[str, npt.NDArray[np.float32]],
    tokens: Sequence[int],
) -> Doubles:
    """All that is multiplied becomes float64, because the rows of the texts are."""

    def linear(name: str, x: Doubles) -> Doubles:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x: Doubles) -> Doubles:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        scaled = (x - mean) / np.sqrt(variance + config["layer_norm_eps"])
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x: Doubles) -> Doubles:
        if config["hidden_act"] == "gelu":
            return x * (1 + erf(x / math.sqrt(2))) / 2
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2

    heads = config["num_attention_heads"]
    size = config["hidden_size"] // heads
    x = weights["embeddings.word_embeddings.weight"][list(tokens)].astype(np.float64)
    x = x + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = norm("embeddings.LayerNorm", x + weights["embeddings.token_type_embeddings.weight"][0])
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        q, k, v = (linear(f"{layer}.attention.self.{part}", x) for part in ("query", "key", "value"))
        mixed = []
        for head in range(heads):
            span = slice(head * size, (head + 1) * size)
            scores = q[:, span] @ k[:, span].T / math.sqrt(size)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed.append(shares / shares.sum(-1, keepdims=True) @ v[:, span])
        attended = linear(f"{layer}.attention.output.dense", np.concatenate(mixed, -1))
        x = norm(f"{layer}.attention.output.LayerNorm", attended + x)
        inner = gelu(linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", linear(f"{layer}.output.dense", inner) + x)
    pooled = x.mean(0) if pooling["pooling_mode_mean_tokens"] else x[0]
    normalizes = modules[-1]["type"].endswith("Normalize")
    return np.asarray(pooled / np.linalg.norm(pooled) if normalizes else pooled)


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "mesh", "of", "peers", "answers", "##s", "sky", "blue")


@dataclass(frozen=True)
class TinyBert:
    """Random weights in a folder. `config`, `pooling` and so on: what is written in place of the usual."""

    hidden: int = 32
    heads: int = 4
    blocks: int = 2
    prefix: str = ""
    cls: bool = False
    normalize: bool = True
    max_tokens: int | None = 12
    config: Mapping[str, Any] = field(default_factory=dict)
    pooling: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
        config = {
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": self.hidden,
            "intermediate_size": 3 * self.hidden,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 16,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.blocks,
            "position_embedding_type": "absolute",
            "vocab_size": len(WORDS),
        }
        kinds = self.modules or ("Transformer", "Pooling", *(["Normalize"] if self.normalize else []))
        written: dict[str, object] = {
            "config.json": config | dict(self.config),
            "1_Pooling/config.json": {
                "word_embedding_dimension": self.hidden,
                "pooling_mode_cls_token": self.cls,
                "pooling_mode_mean_tokens": not self.cls,
                "pooling_mode_max_tokens": False,
            }
            | dict(self.pooling),
            "modules.json": [
                {"idx": place, "path": f"{place}_{kind}" if place else "", "type": f"somewhere.models.{kind}"}
                for place, kind in enumerate(kinds)
            ],
            "sentence_bert_config.json": {"max_seq_length": self.max_tokens} | dict(self.lengths),
            "config_sentence_transformers.json": dict(self.prompts),
        }
        for name, content in written.items():
            (folder / name).write_text(json.dumps(content))
        save_file(self.weights(), folder / "model.safetensors")
        self.tokenizer().save(str(folder / "tokenizer.json"))
        return folder

    def weights(self) -> dict[str, npt.NDArray[Any]]:
        rng = np.random.default_rng(7)
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (len(WORDS), self.hidden),
            "embeddings.position_embeddings.weight": (16, self.hidden),
            "embeddings.token_type_embeddings.weight": (2, self.hidden),
            "embeddings.LayerNorm.weight": (self.hidden,),
            "embeddings.LayerNorm.bias": (self.hidden,),
            "pooler.dense.weight": (self.hidden, self.hidden),
        }
        ffn = 3 * self.hidden
        for number in range(self.blocks):
            for name, rows, columns in (
                *((f"attention.self.{part}", self.hidden, self.hidden) for part in ("query", "key", "value")),
                ("attention.output.dense", self.hidden, self.hidden),
                ("intermediate.dense", ffn, self.hidden),
                ("output.dense", self.hidden, ffn),
            ):
                shapes[f"encoder.layer.{number}.{name}.weight"] = (rows, columns)
                shapes[f"encoder.layer.{number}.{name}.bias"] = (rows,)
            for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                shapes[f"encoder.layer.{number}.{name}.weight"] = (self.hidden,)
                shapes[f"encoder.layer.{number}.{name}.bias"] = (self.hidden,)
        made: dict[str, npt.NDArray[Any]] = {
            f"{self.prefix}{name}": rng.normal(0, 0.5, shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        made[f"{self.prefix}embeddings.position_ids"] = np.arange(16, dtype=np.int64)[None]
        return {name: tensor for name, tensor in made.items() if name not in self.without} | dict(self.extra)

    def tokenizer(self) -> Tokenizer:
        """As such models have it: words in pieces, marks at both ends, and a length that is not to be held to."""
        made = Tokenizer(
            models.WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
        )
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        made.enable_truncation(5)
        made.enable_padding(length=5)
        return made
