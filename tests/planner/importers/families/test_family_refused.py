"""Variants of families that are not known, and numbers that nobody's model has: each refused by one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import CorruptModel, MissingTensor, ModelError, UnknownArchitecture
from planner.importers.safetensors import open_safetensors
from tests.planner.importers.families.checkpoints import load
from tests.planner.tiny_models import safetensors_bytes

REFUSED: dict[str, tuple[str, dict[str, Any], type[ModelError], str]] = {
    "falcon, alibi": ("falcon-7b", {"alibi": True}, UnknownArchitecture, "got alibi or biases"),
    "falcon, biases": ("falcon-7b", {"bias": True}, UnknownArchitecture, "got alibi or biases"),
    "falcon, in turn": ("falcon-7b", {"parallel_attn": False}, UnknownArchitecture, "side by side expected"),
    "falcon, no heads": ("falcon-40b", {"num_kv_heads": 0}, CorruptModel, "key/value heads between 1"),
    "cohere, normed": ("cohere", {"use_qk_norm": True}, UnknownArchitecture, "without norm on q and k"),
    "cohere, no scale": ("cohere", {"logit_scale": 0.0}, CorruptModel, "logit scale above 0"),
    "cohere2, layers": (
        "cohere2",
        {"layer_types": ["full_attention"] * 4},
        UnknownArchitecture,
        "every 4th of layer_types",
    ),
    "cohere2, no pattern": (
        "cohere2",
        {"sliding_window_pattern": 0},
        CorruptModel,
        "between 1 and 1024, got 0",
    ),
    "cohere2, vast pattern": (
        "cohere2",
        {"sliding_window_pattern": 1 << 60},
        CorruptModel,
        "between 1 and 1024",
    ),
    "cohere2, no window": ("cohere2", {"sliding_window": "x"}, CorruptModel, "should be a whole number"),
    "granite, no scale": ("granite", {"logits_scaling": 0}, CorruptModel, "logits_scaling should be above 0"),
    "granite, negative": ("granite", {"residual_multiplier": -1.0}, CorruptModel, "residual scale above 0"),
    "gpt2, other scores": (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True},
        UnknownArchitecture,
        "usual scale of scores",
    ),
    "gpt2, more positions": (
        "gpt2",
        {"n_positions": 256},
        CorruptModel,
        r"wpe\.weight should be \(256, 64\)",
    ),
    "gpt2, activation": ("gpt2", {"activation_function": "silu"}, UnknownArchitecture, "got 'silu'"),
    "neox, nothing turns": (
        "pythia",
        {"rope_parameters": {"partial_rotary_factor": 0}},
        CorruptModel,
        "above 0",
    ),
    "neox, an odd part": (
        "pythia",
        {"rope_parameters": {"partial_rotary_factor": 0.2}},
        CorruptModel,
        "even number of rotary dimensions",
    ),
    "vast heads": ("pythia", {"head_dim": 10**400}, CorruptModel, "expected head size between 1 and 1024"),
    "olmoe, clipped": ("olmoe", {"clip_qkv": 8.0}, UnknownArchitecture, "without clip_qkv"),
    "no expert chosen": ("mixtral", {"num_experts_per_tok": 0}, CorruptModel, "got 0 of 8"),
    "more chosen than there are": ("mixtral", {"num_experts_per_tok": 9}, CorruptModel, "got 9 of 8"),
    "more experts": ("mixtral", {"num_local_experts": 9}, CorruptModel, "router|gate.weight should be"),
    "vast experts": (
        "mixtral",
        {"num_local_experts": 1024, "num_hidden_layers": 1024},
        CorruptModel,
        "at most 65536 experts in all blocks",
    ),
    "dense blocks": (
        "qwen2-moe",
        {"mlp_only_layers": [0]},
        UnknownArchitecture,
        "got dense blocks among them",
    ),
}


def _longrope(**changes: object) -> dict[str, object]:
    return {"rope_parameters": {**load("phi4-mini").config["rope_parameters"], **changes}}


REFUSED |= {
    "phi, too few factors": ("phi4-mini", _longrope(short_factor=[1.0]), CorruptModel, "expected 6 short"),
    "phi, negative factors": (
        "phi4-mini",
        _longrope(short_factor=[-1.0] * 6),
        CorruptModel,
        "factors above 0",
    ),
    "phi, words for factors": ("phi4-mini", _longrope(short_factor=["x"]), CorruptModel, "list of finite"),
    "phi, original": (
        "phi4-mini",
        _longrope(original_max_position_embeddings=1),
        CorruptModel,
        "original_max_position_embeddings above 1",
    ),
    "phi, amplitude": (
        "phi4-mini",
        _longrope(attention_factor=0.0),
        CorruptModel,
        "rotary amplitude above 0",
    ),
}


def _yarn(**changes: object) -> dict[str, object]:
    return {"rope_parameters": {**load("qwen3-yarn").config["rope_parameters"], **changes}}


REFUSED |= {
    "yarn, no factor": ("qwen3-yarn", _yarn(factor=0.0), CorruptModel, "of YaRN, factor"),
    "yarn, no original": (
        "qwen3-yarn",
        _yarn(original_max_position_embeddings=0),
        CorruptModel,
        "of YaRN, factor",
    ),
    "yarn, vast": ("qwen3-yarn", _yarn(beta_fast=1e300), CorruptModel, "of YaRN, factor"),
    "yarn, negative": ("qwen3-yarn", _yarn(beta_slow=-1.0), CorruptModel, "of YaRN, factor"),
    "yarn, a small base": ("qwen3-yarn", _yarn(rope_theta=1.0), CorruptModel, "rope base above 1"),
    "yarn, silent": ("qwen3-yarn", _yarn(attention_factor=0.0), CorruptModel, "rotary amplitude above 0"),
    "gpt-oss, layers": (
        "gpt-oss",
        {"layer_types": ["full_attention", "sliding_attention"]},
        UnknownArchitecture,
        "by turns",
    ),
    "gpt-oss, no biases": ("gpt-oss", {"attention_bias": False}, UnknownArchitecture, "with biases expected"),
    "gpt-oss, negative": ("gpt-oss", {"swiglu_limit": -7.0}, CorruptModel, "limit of experts above 0"),
    "gpt-oss, no sigmoid": ("gpt-oss", {"swiglu_alpha": 0.0}, CorruptModel, "sigmoid above 0"),
    "gpt-oss, more experts": ("gpt-oss", {"num_local_experts": 7}, CorruptModel, r"should be \(7, 64\)"),
    "olmo 3, layers": (
        "olmo3",
        {"layer_types": ["full_attention"] * 4},
        UnknownArchitecture,
        "every 4th of layer_types",
    ),
    "olmo 3, no window": ("olmo3", {"sliding_window": None}, CorruptModel, "should be a whole number"),
}


REFUSED |= {
    "deepseek, biases": (
        "deepseek-v2",
        {"attention_bias": True},
        UnknownArchitecture,
        "attention_bias false",
    ),
    "deepseek, every second": ("deepseek-v2", {"moe_layer_freq": 2}, UnknownArchitecture, "moe_layer_freq 2"),
    "deepseek, method": ("deepseek-v2", {"topk_method": "noaux"}, UnknownArchitecture, "got 'noaux'"),
    "deepseek, normed": (
        "deepseek-v2",
        {"norm_topk_prob": True},
        UnknownArchitecture,
        "norm_topk_prob false",
    ),
    "deepseek, groups": ("deepseek-v2", {"n_group": 3}, CorruptModel, "got 2 of 3"),
    "deepseek, no groups": ("deepseek-v2", {"topk_group": 0}, CorruptModel, "got 0 of 4"),
    "deepseek, small groups": ("deepseek-v2", {"num_experts_per_tok": 5}, CorruptModel, "2 groups of 2"),
    "deepseek, small latent": ("deepseek-v2", {"kv_lora_rank": 16}, CorruptModel, "kv_a_proj_with_mqa"),
    "deepseek, no latent": ("deepseek-v2", {"kv_lora_rank": 0}, CorruptModel, "are cached between 1"),
    "deepseek, vast latent": ("deepseek-v2", {"kv_lora_rank": 4096}, CorruptModel, "head size between 1"),
    "deepseek, odd turning": ("deepseek-v2", {"qk_rope_head_dim": 12}, CorruptModel, "a multiple of 16"),
    "deepseek, no scale": ("deepseek-v2", {"routed_scaling_factor": 0.0}, CorruptModel, "shares above 0"),
    "deepseek, dense width": (
        "deepseek-v2",
        {"intermediate_size": 0},
        CorruptModel,
        "without experts between",
    ),
    "deepseek, more dense": (
        "deepseek-v2",
        {"first_k_dense_replace": 2},
        MissingTensor,
        "layers.1.mlp.gate_proj",
    ),
    "deepseek 3, scores": ("deepseek-v3", {"scoring_func": "softmax"}, UnknownArchitecture, "of 'softmax'"),
    "deepseek 3, halves": ("deepseek-v3", {"rope_interleave": False}, UnknownArchitecture, "rope_interleave"),
    "deepseek 3, lone experts": ("deepseek-v3", {"n_group": 8, "topk_group": 8}, CorruptModel, "at least 2"),
    "deepseek 3, packed": (
        "deepseek-v3",
        {"quantization_config": {"quant_method": "gptq"}},
        UnknownArchitecture,
        "use the original or a GGUF file",
    ),
}


REFUSED |= {
    "llama 4, more chosen": (
        "llama4",
        {"num_experts_per_tok": 2},
        UnknownArchitecture,
        "one expert for each token",
    ),
    "llama 4, layers": (
        "llama4",
        {"layer_types": ["full_attention"] * 4},
        UnknownArchitecture,
        "expected layer_types",
    ),
    "llama 4, no step": (
        "llama4",
        {"moe_layers": None, "interleave_moe_layer_step": 0},
        CorruptModel,
        "between 1 and 1024, got 0",
    ),
    "llama 4, few flags": ("llama4", {"no_rope_layers": [1]}, CorruptModel, "for 4 blocks, got 1"),
    "llama 4, no floor": ("llama4", {"floor_scale": 0}, CorruptModel, "floor of temperatures between 1"),
    "llama 4, other blocks": (
        "llama4",
        {"moe_layers": [1, 3]},
        MissingTensor,
        "layers.0.feed_forward.gate_proj",
    ),
    "llama 4, tuning": ("llama4", {"attn_temperature_tuning": "x"}, CorruptModel, "should be a whole number"),
    "llama3, factors": (
        "llama4",
        {"rope_parameters": {**load("llama4").config["rope_parameters"], "high_freq_factor": 0.5}},
        CorruptModel,
        "at least the low_freq_factor",
    ),
}


@pytest.mark.parametrize(("case", "changes", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_by_one_line(
    tmp_path: Path, case: str, changes: dict[str, Any], error: type[ModelError], words: str
) -> None:
    checkpoint = load(case)
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**checkpoint.config, **changes}))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(checkpoint.weights(), "F32"))
    with pytest.raises(error, match=words) as caught:
        open_safetensors(folder)
    assert str(caught.value).startswith("bad: ")
    assert "\n" not in str(caught.value)
