"""The numbers of a llama-family decoder, and what an importer hands to the unit builder.

An importer (GGUF, safetensors) yields a `SourceModel`; `planner.model.units` alone knows how its tensors become units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from planner.model.sampling_defaults import SamplingDefaults

HEAD_GROUP: Final = 16  # onnxruntime's GroupQueryAttention with rotary embedding takes multiples of it only


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3 frequency scaling (kind "llama3"), or "linear" division of positions by `factor`."""

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True)
class Architecture:
    """Shapes and constants of one model. All counts are per model, `head_size` is per attention head."""

    family: str  # "llama", "mistral", "qwen2", "qwen3"
    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    context: int  # longest context the model was trained for, tokens
    norm_epsilon: float
    rope_base: float
    rope_dims: int  # leading dimensions of each head that rotate; head_size for all of these families
    rope_scaling: RopeScaling | None
    rope_factors: (
        tuple[float, ...] | None
    )  # divisors per frequency (GGUF's rope_freqs.weight), rope_dims/2 of them
    qkv_bias: bool
    qk_norm: bool
    tied_embedding: bool

    @property
    def kernel_head_size(self) -> int:
        """Values per head as the attention kernel computes and caches them: `head_size` and zeros, to whole groups."""
        return -(-self.head_size // HEAD_GROUP) * HEAD_GROUP


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """`tokenizer_json`: a Hugging Face tokenizer.json. `end_tokens`: ids that end an answer (EOS, end of turn)."""

    tokenizer_json: bytes
    chat_template: str | None  # Jinja source, as in the model file; None also where that says nothing
    bos_token: int | None
    end_tokens: tuple[int, ...]
    add_bos: bool

    def __post_init__(self) -> None:
        if self.chat_template is not None and not self.chat_template.strip():
            object.__setattr__(self, "chat_template", None)


@dataclass(frozen=True, slots=True)
class BlockQuantized:
    """A weight of shape (rows, columns) whose file form is `d * q + m` per block of 32 columns, exactly.

    q: uint8 (rows, columns), values 0..15 for bits=4 and 0..255 for bits=8 (zero point added); d: float32
    (rows, columns/32); m: float32 (rows, columns/32) or None where w = d * (q - 2**(bits-1)) (Q4_0, Q8_0).
    """

    bits: int
    q: npt.NDArray[np.uint8]
    d: npt.NDArray[np.float32]
    m: npt.NDArray[np.float32] | None


class SourceTensor(Protocol):
    """One weight: (rows=outputs, columns=inputs), or (n,) for vectors; rows already in half-split rotary order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first, as `tensor_shapes` counts them."""

    @property
    def kind(self) -> str:
        """File type, e.g. "Q4_1", "Q8_0", "F32", "BF16"."""

    def float32(self) -> npt.NDArray[np.float32]:
        """The weight dequantized, C-contiguous."""

    def blocks(self) -> BlockQuantized | None:
        """The exact block form for Q4_0, Q4_1 and Q8_0; None for every other file type."""

    def rows(self, first: int, stop: int) -> SourceTensor:
        """Rows [first, stop) of a matrix as a tensor of their own; nothing is read for it."""


class SourceModel(Protocol):
    """A model opened for import. Tensor names are ours:

    embed.weight, head.weight (absent when tied), head.norm, and per block i: attn.{i}.norm, attn.{i}.q|k|v|o,
    attn.{i}.q_bias|k_bias|v_bias (qkv_bias), attn.{i}.q_norm|k_norm (qk_norm), ffn.{i}.norm, ffn.{i}.gate|up|down.
    """

    @property
    def name(self) -> str:
        """What the model is called, for people."""

    @property
    def architecture(self) -> Architecture:
        """The numbers of the model."""

    @property
    def tokenizer(self) -> TokenizerSource:
        """The tokenizer with its special tokens and the chat template."""

    @property
    def sampling(self) -> SamplingDefaults | None:
        """How its answers are drawn by its own settings; None where its files say nothing of that."""

    def tensor(self, name: str) -> SourceTensor:
        """Raises planner.errors.MissingTensor, naming it, when the file lacks it."""
