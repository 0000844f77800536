"""The numbers of a llama-family decoder, and what an importer of one opens.

An importer (GGUF, safetensors) yields a `SourceModel`; `planner.importers.decoder_units` alone knows how its tensors
become units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import SourceTensor, TokenizerSource

MOST_COUNTS: Final = {  # of an architecture, each at least 1
    "blocks": 2000,
    "hidden": 1 << 17,
    "heads": 1024,
    "kv_heads": 1024,
    "head_size": 1024,
    "ffn": 1 << 20,
    "vocab": 1 << 24,
    "context": 1 << 24,
    "rope_dims": 1024,
}


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
