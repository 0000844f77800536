"""Checkpoints as GGUF files: llama.cpp's names of tensors and order of rows, as its converter makes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

from tests.planner.importers.families.checkpoints import Checkpoint, Floats

_ARCHITECTURES: Final = {
    "mistral": "llama",
    "gpt_neox": "gptneox",
    "cohere": "command-r",
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
    "olmo3": "olmo2",
    "llama4_text": "llama4",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
}
_PERMUTED: Final = ("llama", "granite")


def write(
    checkpoint: Checkpoint,
    path: Path,
    packed: Mapping[str, npt.NDArray[np.uint8]] | None = None,
    joint: bool = False,
) -> Path:
    """The checkpoint as a file of float32. `packed`: rows of MXFP4, by the name of a tensor of transformers. `joint`:
    of latent attention, what makes keys and values in one tensor, as older files have it.
    """
    config = checkpoint.config
    kind = config["model_type"]
    arch = _ARCHITECTURES.get(kind, kind)
    writer = gguf.GGUFWriter(path, arch)
    said = _Config(config)
    heads, blocks = said.whole("num_attention_heads", "n_head"), said.whole("num_hidden_layers", "n_layer")
    hidden = said.whole("hidden_size", "n_embd")
    head = config.get("head_dim") or hidden // heads
    kv_heads = _kv_heads(config, heads)
    writer.add_block_count(blocks)
    writer.add_embedding_length(hidden)
    writer.add_context_length(said.whole("max_position_embeddings", "n_positions"))
    writer.add_feed_forward_length(
        config.get("intermediate_size_mlp")
        or config.get("intermediate_size")
        or config.get("ffn_hidden_size")
        or 4 * hidden
    )
    writer.add_head_count(heads)
    if "kv_lora_rank" in config:
        head, kv_heads = config["qk_rope_head_dim"], heads if joint else 1
        _latent(writer, config, joint)
    elif head * heads != hidden:
        writer.add_key_length(head)
        writer.add_value_length(head)
    writer.add_head_count_kv(kv_heads)
    for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"):
        if key in config:
            writer.add_layer_norm_eps(config[key])
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    if rope:
        writer.add_rope_freq_base(rope["rope_theta"])
        writer.add_rope_dimension_count(int(head * rope.get("partial_rotary_factor", 1.0)))
    if rope.get("rope_type") == "yarn":
        _yarn(writer, rope)
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    _METADATA.get(kind, _nothing)(writer, config)
    _tokenizer(writer, said.whole("vocab_size"))
    rows: dict[str, npt.NDArray[Any]] = {}
    for name, raw in (packed or {}).items():
        rows |= _parted(name, raw, turned=False)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[_key(arch)], blocks)
    weights = checkpoint.weights()
    if "kv_lora_rank" in config and not joint:
        weights = _keys_apart(weights, config)
    for name, weight in _converted(kind, weights, heads, kv_heads, head).items():
        called = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert called is not None, name
        if name not in rows:
            writer.add_tensor(called, np.ascontiguousarray(weight))
        else:
            raw = np.ascontiguousarray(rows[name])
            writer.add_tensor(called, raw, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    for name, factors in _rope_factors(rope, head).items():
        writer.add_tensor(name, factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class _Config:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def whole(self, *keys: str) -> int:
        return int(next(self._config[key] for key in keys if key in self._config))


def _key(arch: str) -> str:
    return next(key.name for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    if config["model_type"] == "falcon":
        if config.get("new_decoder_architecture"):
            return int(config["num_kv_heads"])
        return 1 if config.get("multi_query", True) else heads
    return int(config.get("num_key_value_heads", heads))


def _nothing(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    pass


def _yarn(writer: gguf.GGUFWriter, rope: Mapping[str, Any]) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if "attention_factor" in rope:  # which llama.cpp multiplies by what follows from the factor
        usual = 0.1 * np.log(rope["factor"]) + 1
        writer.add_rope_scaling_attn_factors(float(rope["attention_factor"] / usual))


def _granite(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])


def _neox(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_parallel_residual(config.get("use_parallel_residual", True))


def _phi3(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    original = config.get("original_max_position_embeddings")
    if original:
        longer = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(longer) / np.log(original))))


def _cohere(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_logit_scale(config["logit_scale"])


def _experts(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_expert_count(config.get("num_local_experts") or config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _gpt_oss(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    _experts(writer, config)
    writer.add_expert_feed_forward_length(config["intermediate_size"])


def _llama4(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_interleave_moe_layer_step(config.get("interleave_moe_layer_step", 1))
    if "attention_chunk_size" in config:  # which llama.cpp does not read
        writer.add_sliding_window(config["attention_chunk_size"])
    if "floor_scale" in config:
        writer.add_attn_temperature_length(config["floor_scale"])
        writer.add_attn_temperature_scale(config["attn_scale"])


def _latent(writer: gguf.GGUFWriter, config: Mapping[str, Any], joint: bool) -> None:
    turning, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
    key, value = config["qk_nope_head_dim"] + turning, config["v_head_dim"]
    writer.add_kv_lora_rank(rank)
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_key_length(key if joint else rank + turning)
    writer.add_value_length(value if joint else rank)
    if not joint:
        writer.add_key_length_mla(key)
        writer.add_value_length_mla(value)
    writer.add_leading_dense_block_count(config.get("first_k_dense_replace", 0))
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config.get("routed_scaling_factor", 1.0))
    if config["model_type"] == "deepseek_v3":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(config.get("norm_topk_prob", True))
    if config.get("n_group"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    over_all = config["rope_parameters"].get("mscale_all_dim")
    if over_all:
        writer.add_rope_scaling_yarn_log_mul(0.1 * over_all)


def _keys_apart(weights: dict[str, Floats], config: Mapping[str, Any]) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]
    for name, weight in weights.items():
        if not name.endswith("kv_b_proj.weight"):
            found[name] = weight
            continue
        by_head = weight.reshape(-1, plain + value, weight.shape[1])
        found[name.replace("kv_b", "k_b")] = by_head[:, :plain].swapaxes(1, 2)
        found[name.replace("kv_b", "v_b")] = by_head[:, plain:]
    return found


def _gemma2(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_attn_logit_softcapping(config.get("attn_logit_softcapping", 50.0))
    writer.add_final_logit_softcapping(config.get("final_logit_softcapping", 30.0))


def _gemma3(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(config["rope_parameters"]["full_attention"]["factor"])


_METADATA: Final[Mapping[str, Callable[[gguf.GGUFWriter, Mapping[str, Any]], None]]] = {
    "granite": _granite,
    "gpt_neox": _neox,
    "phi3": _phi3,
    "cohere": _cohere,
    "cohere2": _cohere,
    "mixtral": _experts,
    "olmoe": _experts,
    "qwen2_moe": _experts,
    "qwen3_moe": _experts,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
}


def _converted(
    kind: str, weights: dict[str, Floats], heads: int, kv_heads: int, head: int
) -> dict[str, Floats]:
    """Tensors as llama.cpp's converter stores them, still under transformers' names."""
    found: dict[str, Floats] = {}
    for name, weight in weights.items():
        if kind in ("llama", "mistral", "granite", "mixtral") and ".self_attn." in name:
            if ".q_proj." in name:
                weight = _neighbours(weight, heads)
            elif ".k_proj." in name:
                weight = _neighbours(weight, kv_heads)
        elif "query_key_value" in name:
            grouped = weight.reshape(kv_heads, heads // kv_heads + 2, head, *weight.shape[1:])
            parts = (grouped[:, :-2], grouped[:, [-2]], grouped[:, [-1]])
            weight = np.concatenate([part.reshape(-1, *weight.shape[1:]) for part in parts])
        elif kind.startswith("gemma") and name.endswith("norm.weight"):
            weight = weight + np.float32(1)
        elif kind == "gpt2" and weight.ndim == 2 and (".attn." in name or ".mlp." in name):
            weight = weight.T
        elif name.endswith(".e_score_correction_bias"):
            name = name.replace("_bias", ".bias")
        elif name.endswith(".sinks"):
            name = f"{name}.weight"
        elif kind == "llama4_text" and ".experts." in name:
            turned = weight.swapaxes(1, 2)
            parts = [turned] if "gate_up" not in name else np.split(turned, 2, axis=1)
            kinds = ("down",) if len(parts) == 1 else ("gate", "up")
            for which, each in zip(kinds, parts, strict=True):
                found[f"{name.rpartition('.')[0]}.{which}_proj.weight"] = each
            continue
        elif kind == "gpt_oss" and ".experts." in name:
            found |= _parted(name, weight)
            continue
        found[name] = weight
    return _stacked(found)


def _parted(name: str, weight: npt.NDArray[Any], turned: bool = True) -> dict[str, npt.NDArray[Any]]:
    """Gate, up and down of experts, rows first, of what transformers keeps with gate and up by turns. `turned`: with
    columns first.
    """
    whole = name.removesuffix("_bias")
    kind = ".bias" if name.endswith("_bias") else ".weight"
    rows = weight.swapaxes(1, 2) if turned and kind == ".weight" else weight
    if not whole.endswith("gate_up_proj"):
        return {f"{whole}{kind}": rows}
    halves = rows[:, ::2], rows[:, 1::2]
    return {
        whole.replace("gate_up", part) + kind: half for part, half in zip(("gate", "up"), halves, strict=True)
    }


def _stacked(weights: dict[str, Floats]) -> dict[str, Floats]:
    """Experts of a block in one tensor, under the name that the table of names knows."""
    found: dict[str, Floats] = {}
    experts: dict[str, list[Floats]] = {}
    for name, weight in weights.items():
        match = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if match is None:
            found[name] = weight
        else:
            experts.setdefault(f"{match[1]}.{match[3]}", []).insert(int(match[2]), weight)
    return {**found, **{name: np.stack(each) for name, each in experts.items()}}


def _neighbours(weight: Floats, heads: int) -> Floats:
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    turned: Floats = halves.swapaxes(1, 2).reshape(weight.shape)
    return turned


def _rope_factors(rope: Mapping[str, Any], head: int) -> dict[str, Floats]:
    match rope.get("rope_type"):
        case "longrope":
            return {
                f"rope_factors_{which}.weight": np.array(rope[f"{which}_factor"], np.float32)
                for which in ("short", "long")
            }
        case "llama3":
            turns = 1.0 / rope["rope_theta"] ** (np.arange(0, head, 2) / head)
            waves, old = 2 * np.pi / turns, rope["original_max_position_embeddings"]
            low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
            smooth = (old / waves - low) / ((high - low) or 1)  # of equal ones nothing is between
            between = 1 / ((1 - smooth) / factor + smooth)
            factors = np.where(waves < old / high, 1.0, np.where(waves > old / low, factor, between))
            return {"rope_freqs.weight": factors.astype(np.float32)}
        case _:
            return {}


def _tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["w", "1", "w1", *(f"t{i}" for i in range(3, vocab))])
    writer.add_token_types([1] * vocab)
    writer.add_token_merges(["w 1"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
