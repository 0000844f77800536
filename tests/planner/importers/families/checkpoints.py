"""Small random checkpoints of every family: the numbers of their config.json, and weights that anybody can make again.

`python -m tests.planner.importers.families.make_reference` makes what transformers computes of them, once, into the
folder reference/; the suite needs neither torch nor transformers.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models

from tests.planner.tiny_models import safetensors_bytes

REFERENCE: Final = Path(__file__).parent / "reference"
POSITIONS: Final = 64  # of which logits are compared
PROMPT: Final = 16
GREEDY: Final = 48  # tokens that follow a prompt
_VOCABULARY: Final = ("embed_tokens.weight", "lm_head.weight")
Floats = npt.NDArray[np.float32]

_SIZES: Final = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 48,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _rope(**more: object) -> dict[str, object]:
    return {"rope_type": "default", "rope_theta": 10000.0, **more}


_LLAMA3: Final = _rope(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
_YARN: Final = _rope(
    rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0, original_max_position_embeddings=32
)
_LONGROPE: Final = _rope(
    rope_type="longrope",
    short_factor=[1.0, 1.125, 1.25, 1.5, 2.0, 4.0],
    long_factor=[8.0, 9.0, 10.0, 11.0, 12.0, 16.0],
    partial_rotary_factor=0.75,
    original_max_position_embeddings=96,
)

_GEMMA: Final = {
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 16,
    "tie_word_embeddings": True,
}

_NULL: Final = object()  # null in config.json, where None leaves a name out
_LATENT: Final = {
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 20,
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "n_routed_experts": 8,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
}

_LLAMA4: Final = {
    "num_hidden_layers": 4,
    "head_dim": 24,
    "intermediate_size": 40,
    "intermediate_size_mlp": 72,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
}

# By case: model_type, and what its config has beside or instead of _SIZES.
CASES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "llama": ("llama", {"rope_parameters": _LLAMA3, "head_dim": 24, "tie_word_embeddings": False}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "phi3": ("phi3", {"sliding_window": 20}),
    "phi4-mini": (
        "phi3",
        {
            "rope_parameters": _LONGROPE,
            "original_max_position_embeddings": 96,
            "tie_word_embeddings": True,
            "head_dim": None,
        },
    ),
    "olmo2": ("olmo2", {}),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 0.5,
            "residual_multiplier": 1.25,
            "attention_multiplier": 0.125,
            "logits_scaling": 8.0,
            "tie_word_embeddings": True,
        },
    ),
    "starcoder2": ("starcoder2", {"norm_epsilon": 1e-5, "sliding_window": None}),
    "pythia": (
        "gpt_neox",
        {"num_key_value_heads": None, "rope_parameters": _rope(partial_rotary_factor=0.25)},
    ),
    "neox-in-turn": (
        "gpt_neox",
        {
            "use_parallel_residual": False,
            "num_key_value_heads": None,
            "rope_parameters": _rope(partial_rotary_factor=0.5),
            "num_attention_heads": 2,
        },
    ),
    "gpt2": ("gpt2", {"intermediate_size": None, "num_key_value_heads": None, "n_inner": None}),
    "falcon-7b": ("falcon", {"intermediate_size": None, "num_key_value_heads": None, "multi_query": True}),
    "falcon-40b": (
        "falcon",
        {"intermediate_size": None, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "falcon-11b": (
        "falcon",
        {
            "intermediate_size": None,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
        },
    ),
    "cohere": ("cohere", {"logit_scale": 0.25}),
    "mixtral": ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}),
    "olmoe": ("olmoe", {"num_experts": 8, "num_experts_per_tok": 3, "num_key_value_heads": 4}),
    "qwen2-moe": (
        "qwen2_moe",
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "shared_expert_intermediate_size": 72,
        },
    ),
    "qwen3-moe": (
        "qwen3_moe",
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
            "head_dim": 32,
        },
    ),
    "gpt-oss": (
        "gpt_oss",
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "head_dim": 32,
            "rope_parameters": _YARN | {"truncate": False},
        },
    ),
    "deepseek-v2-lite": (
        "deepseek_v2",
        {
            **_LATENT,
            "q_lora_rank": _NULL,
            "n_shared_experts": 2,
            "topk_method": "greedy",
            "num_experts_per_tok": 3,
            "rope_parameters": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    "deepseek-v2": (
        "deepseek_v2",
        {
            **_LATENT,
            "q_lora_rank": 48,
            "n_shared_experts": 1,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 2,
            "routed_scaling_factor": 4.0,
            "rope_parameters": _rope(),
        },
    ),
    "deepseek-v3": (
        "deepseek_v3",
        {
            **_LATENT,
            "q_lora_rank": 48,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 3,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "llama4": (
        "llama4_text",
        {
            **_LLAMA4,
            "rope_parameters": _LLAMA3 | {"low_freq_factor": 1.0, "high_freq_factor": 1.0},
        },
    ),
    "llama4-chunks": (
        "llama4_text",
        {
            **_LLAMA4,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 20,
            "floor_scale": 8,
            "attn_scale": 0.5,
            "rope_parameters": _rope(),
        },
    ),
    "olmo3": (
        "olmo3",
        {
            "num_hidden_layers": 4,
            "sliding_window": 16,
            "rope_parameters": {"full_attention": _YARN, "sliding_attention": _rope()},
        },
    ),
    "qwen3-yarn": (
        "qwen3",
        {"head_dim": 32, "rope_parameters": _YARN | {"attention_factor": 1.25 * (0.1 * math.log(4.0) + 1)}},
    ),
    "cohere2": ("cohere2", {"logit_scale": 0.25, "sliding_window": 16, "num_hidden_layers": 4}),
    "gemma2": ("gemma2", {**_GEMMA, "num_hidden_layers": 3, "rope_parameters": _rope()}),
    "gemma3": (
        "gemma3_text",
        {
            **_GEMMA,
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": _rope(rope_theta=1_000_000.0, rope_type="linear", factor=8.0),
                "sliding_attention": _rope(),
            },
        },
    ),
}


def config_of(case: str) -> tuple[str, dict[str, Any]]:
    """model_type and arguments of its transformers config."""
    kind, changes = CASES[case]
    numbers = {name: value for name, value in {**_SIZES, **changes}.items() if value is not None}
    return kind, {name: None if value is _NULL else value for name, value in numbers.items()}


@dataclass(frozen=True)
class Checkpoint:
    """What is committed of a case. `shapes`: of every tensor, as transformers calls it."""

    name: str
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    seed: int
    logits: Floats  # (POSITIONS, vocabulary)
    greedy: tuple[tuple[int, ...], ...]  # GREEDY tokens after each of two prompts

    @property
    def tokens(self) -> list[int]:
        """Those of which there are logits."""
        return tokens_of(self.name, POSITIONS)

    @property
    def prompts(self) -> tuple[list[int], list[int]]:
        """Two prompts that a batch answers together."""
        return tokens_of(f"{self.name}, one", PROMPT), tokens_of(f"{self.name}, two", PROMPT)

    def weights(self) -> dict[str, Floats]:
        """Every tensor of the checkpoint."""
        return weights_of(self.shapes, self.seed)

    def but(self, **changes: Any) -> Checkpoint:
        """The same with other numbers in its config; of vocab_size, tensors change with it."""
        rows = changes.get("vocab_size", self.config["vocab_size"])
        shapes = {
            name: (rows, *shape[1:]) if name.endswith(_VOCABULARY) else shape
            for name, shape in self.shapes.items()
        }
        return replace(self, config={**self.config, **changes}, shapes=shapes)


def load(case: str) -> Checkpoint:
    """What is committed of a case."""
    kept = json.loads((REFERENCE / f"{case}.json").read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(kept["logits"]), "<f4").reshape(POSITIONS, -1)
    shapes = {name: tuple(shape) for name, shape in kept["shapes"].items()}
    return Checkpoint(case, kept["config"], shapes, kept["seed"], logits, tuple(map(tuple, kept["greedy"])))


def write_folder(checkpoint: Checkpoint, folder: Path, called: Callable[[str], str] = str) -> Path:
    """The checkpoint as transformers saves it, with a tokenizer of one word for each token. `called`: other names of
    tensors.
    """
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(checkpoint.config))
    weights = {called(name): weight for name, weight in checkpoint.weights().items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights, "F32"))
    vocabulary = {f"w{i}": i for i in range(checkpoint.config["vocab_size"])}
    (folder / "tokenizer.json").write_text(Tokenizer(models.WordLevel(vocabulary, unk_token="w3")).to_str())
    return folder


def tokens_of(name: str, count: int) -> list[int]:
    """Random tokens, no control tokens among them."""
    found: list[int] = np.random.default_rng([*name.encode()]).integers(4, 48, count).tolist()
    return found


def weights_of(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Floats]:
    """Random weights by name and shape, so large that no part of a block is lost in the rest."""

    def one(name: str, shape: tuple[int, ...]) -> Floats:
        noise = np.random.default_rng([seed, *name.encode()]).standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            noise *= np.float32(0.1)
            return noise if name.endswith("bias") else 1 + noise
        wide = "embed" in name or ".wte." in name or ".wpe." in name
        return noise * np.float32(0.25) if wide else noise / np.float32(np.sqrt(min(shape[-2:])))

    return {name: one(name, shape) for name, shape in shapes.items()}
