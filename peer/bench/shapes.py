"""Models of random weights in the shapes of known ones: what memory and imports are measured with.

A model's tensors are slices of one file of random blocks for each file type, mapped as those of a GGUF file are, and
read by the same code. Weights are small enough that activations stay finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from planner.importers.architecture import Architecture
from planner.importers.gguf import GgufTensor
from planner.importers.gguf_file import FileTensor
from planner.importers.layout import tensor_shapes
from planner.model.sources import TokenizerSource
from planner.types import WeightFormat

WRITTEN_AT_ONCE: Final = 16 << 20
STEP_BLOCKS: Final = 977  # from a tensor's first block to that of the next: no two tensors are the same
# By the form that a model is imported to, the file type of its matrices and that of its embedding.
_TYPES: Final[Mapping[WeightFormat, tuple[GGMLQuantizationType, GGMLQuantizationType]]] = {
    "8bit": (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q8_0),
    "4bit": (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0),
    "f32": (GGMLQuantizationType.F16, GGMLQuantizationType.F16),
    "f16": (GGMLQuantizationType.F16, GGMLQuantizationType.F16),
}


def _shape(
    family: str, blocks: int, hidden: int, heads: tuple[int, int, int], ffn: int, vocab: int, tied: bool
) -> Architecture:
    """`heads`: of queries, of keys, and their size."""
    return Architecture(
        family=family,
        blocks=blocks,
        hidden=hidden,
        heads=heads[0],
        kv_heads=heads[1],
        head_size=heads[2],
        ffn=ffn,
        vocab=vocab,
        context=32_768,
        norm_epsilon=1e-5,
        rope_base=1e6,
        rope_dims=heads[2],
        rope_scaling=None,
        rope_factors=None,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied_embedding=tied,
    )


SHAPES: Final[Mapping[str, Architecture]] = {
    "135m": _shape("llama", 30, 576, (9, 3, 64), 1536, 49_152, True),  # SmolLM2-135M
    "360m": _shape("llama", 32, 960, (15, 5, 64), 2560, 49_152, True),  # SmolLM2-360M
    "0.5b": _shape("qwen2", 24, 896, (14, 2, 64), 4864, 151_936, True),  # Qwen2.5-0.5B
    "1b": _shape("llama", 16, 2048, (32, 8, 64), 8192, 128_256, True),  # Llama 3.2 1B
    "1.7b": _shape("llama", 24, 2048, (32, 32, 64), 8192, 49_152, True),  # SmolLM2-1.7B
    "3b": _shape("llama", 28, 3072, (24, 8, 128), 8192, 128_256, True),  # Llama 3.2 3B
    "4b": _shape("qwen3", 36, 2560, (32, 8, 128), 9728, 151_936, True),  # Qwen3-4B
    "8b": _shape("llama", 32, 4096, (32, 8, 128), 14_336, 128_256, False),  # Llama 3.1 8B
}


@dataclass(frozen=True)
class RandomModel:
    """A SourceModel; `folder` takes the files of random blocks, each as large as the largest tensor needs."""

    name: str
    architecture: Architecture
    weights: WeightFormat
    folder: Path
    with_minima: bool = False  # 4-bit blocks as Q4_1 has them
    tokenizer: TokenizerSource = field(
        default_factory=lambda: TokenizerSource(b"{}", None, None, (0,), False)
    )
    sampling: None = None

    def tensor(self, name: str) -> GgufTensor:
        """Raises KeyError for a name that the shape does not have."""
        shapes = tensor_shapes(self.architecture)
        shape, place = shapes[name], list(shapes).index(name)
        if len(shape) == 1:
            ones = np.ones(shape, "<f4").view(np.uint8)
            return GgufTensor(FileTensor(name, GGMLQuantizationType.F32, shape, ones))
        matrix, table = _TYPES[self.weights]
        kind = table if name.endswith(".weight") else matrix
        if kind == GGMLQuantizationType.Q4_0 and self.with_minima:
            kind = GGMLQuantizationType.Q4_1
        values, block = GGML_QUANT_SIZES[kind]
        size = math.prod(shape) // values * block
        most = max(
            math.prod(other)
            for each, other in shapes.items()
            if len(other) > 1 and (table == matrix or each.endswith(".weight") == name.endswith(".weight"))
        )
        step = STEP_BLOCKS * block
        path = self.folder / f"{kind.name}.random"
        if not path.exists():
            _write(path, kind, most // values * block + step * len(shapes))
        content = np.memmap(path, np.uint8, "r")[place * step :][:size]
        return GgufTensor(FileTensor(name, kind, shape, content.reshape(shape[0], -1)))


def cut_to(architecture: Architecture, bytes_a_weight: float, most_bytes: int) -> Architecture:
    """The same shape with as many of its blocks as `most_bytes` hold beside embedding and head; at least one."""
    shapes = tensor_shapes(replace(architecture, blocks=1))
    block = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(("attn.", "ffn.")))
    tables = architecture.vocab * architecture.hidden * (1 if architecture.tied_embedding else 2)
    room = int((most_bytes / bytes_a_weight - tables) // block)
    return replace(architecture, blocks=max(1, min(architecture.blocks, room)))


def _write(path: Path, kind: GGMLQuantizationType, size: int) -> None:
    """Random blocks whose weights are about 0.02 large."""
    rng = np.random.default_rng(1)
    _, block = GGML_QUANT_SIZES[kind]
    count = WRITTEN_AT_ONCE // block
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        for _ in range(-(-size // (count * block))):
            if kind == GGMLQuantizationType.F16:
                file.write(
                    (rng.standard_normal(count, np.float32) * np.float32(0.02)).astype("<f2").tobytes()
                )
                continue
            blocks = rng.integers(0, 256, (count, block), np.uint8)
            spread = 74 if kind == GGMLQuantizationType.Q8_0 else 4.6  # of what a block's whole numbers are
            scale = (rng.random(count, np.float32) + np.float32(0.5)) * np.float32(0.02 / spread)
            blocks[:, :2] = scale.astype("<f2").view(np.uint8).reshape(count, 2)
            if kind == GGMLQuantizationType.Q4_1:
                blocks[:, 2:4] = (scale * np.float32(-7.4)).astype("<f2").view(np.uint8).reshape(count, 2)
            file.write(blocks.tobytes())
    beside.replace(path)
