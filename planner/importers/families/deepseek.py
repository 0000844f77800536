"""DeepSeek-V2 and V3: latent attention, a first few dense blocks, experts beside one that every token has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.architecture import MOST_COUNTS, Architecture, Latent, Routing, Scores
from planner.importers.families.family import Family, Names, Part, Place, Said, Source
from planner.importers.families.llama import EXPERTS_OF_GGUF
from planner.importers.families.names import FOLDER
from planner.importers.rotary import Order

EPSILON: Final = 1e-6  # of the norms within attention, which config.json does not say
SIGMOID: Final = 2  # llama.cpp's number of the scores of V3; 1 and none are softmax
FIRST_BLOCKS: Final = 1 << 10  # more dense ones than any model has blocks
_MLP: Final = "model.layers.{block}.mlp"
_ATTENTION: Final = "model.layers.{block}.self_attn"


def _rows_of(which: str) -> Callable[[Architecture], Order]:
    """Rows of keys or values where each head has them below one another."""

    def order(a: Architecture) -> Order:
        latent = _latent(a)
        rows = np.arange(_height(a), dtype=np.intp).reshape(a.heads, -1)
        chosen = rows[:, : latent.plain] if which == "k" else rows[:, latent.plain :]
        return chosen.reshape(-1)

    return order


def _latent(a: Architecture) -> Latent:
    assert a.latent is not None
    return a.latent


def _height(a: Architecture) -> int:
    return a.heads * (_latent(a).plain + _latent(a).value)


def _joint(name: str) -> Names:
    return {f"attn.{part}_b": Place(name, Part(_height, _rows_of(part))) for part in "kv"}


_QUERIES_MADE: Final = "model.layers.0.self_attn.q_a_proj.weight"
_USUAL_2: Final = {
    "n_routed_experts": 64,
    "moe_intermediate_size": 1407,
    "n_shared_experts": 2,
    "first_k_dense_replace": 0,
}
_USUAL_3: Final = {
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
}
_NAMES: Final[Names] = {
    **FOLDER,
    "attn.q_a": f"{_ATTENTION}.q_a_proj.weight",
    "attn.q_a_norm": f"{_ATTENTION}.q_a_layernorm.weight",
    "attn.q_b": f"{_ATTENTION}.q_b_proj.weight",
    "attn.kv_a": f"{_ATTENTION}.kv_a_proj_with_mqa.weight",
    "attn.kv_a_norm": f"{_ATTENTION}.kv_a_layernorm.weight",
    **_joint(f"{_ATTENTION}.kv_b_proj.weight"),
    "ffn.router": f"{_MLP}.gate.weight",
    "ffn.router_correction": f"{_MLP}.gate.e_score_correction_bias",
    "ffn.gate_e": f"{_MLP}.experts.{{expert}}.gate_proj.weight",
    "ffn.up_e": f"{_MLP}.experts.{{expert}}.up_proj.weight",
    "ffn.down_e": f"{_MLP}.experts.{{expert}}.down_proj.weight",
    "ffn.shared_gate": f"{_MLP}.shared_experts.gate_proj.weight",
    "ffn.shared_up": f"{_MLP}.shared_experts.up_proj.weight",
    "ffn.shared_down": f"{_MLP}.shared_experts.down_proj.weight",
}
_GGUF_NAMES: Final[Names] = {
    **EXPERTS_OF_GGUF,
    "attn.q_a": "blk.{block}.attn_q_a.weight",
    "attn.q_a_norm": "blk.{block}.attn_q_a_norm.weight",
    "attn.q_b": "blk.{block}.attn_q_b.weight",
    "attn.kv_a": "blk.{block}.attn_kv_a_mqa.weight",
    "attn.kv_a_norm": "blk.{block}.attn_kv_a_norm.weight",
    **_joint("blk.{block}.attn_kv_b.weight"),
    "ffn.router_correction": "blk.{block}.exp_probs_b.bias",
}
_APART: Final[Names] = {  # of files that are not older than 2025
    "attn.k_b": Place("blk.{block}.attn_k_b.weight", by_head=True, transposed=True),
    "attn.v_b": Place("blk.{block}.attn_v_b.weight", by_head=True),
}


def _gguf_variant(a: Architecture) -> Names:
    return {} if _latent(a).joint else _APART


def _attended(a: Architecture, latent: Latent, turning: int, loud: float) -> Architecture:
    """`loud`: what YaRN multiplies queries and keys by, as far as scores are."""
    return replace(
        a,
        latent=latent,
        kv_heads=1,
        head_size=turning + latent.rank,
        rope_dims=turning,
        attention_scale=loud * loud / math.sqrt(max(latent.plain + turning, 1)),
    )


def _with_experts(
    a: Architecture,
    experts: int,
    chosen: int,
    width: int,
    shared: int,
    first: int,
    routing: Routing,
) -> Architecture:
    """Experts in all blocks behind the first `first` ones, which are as wide as `a` says."""
    if not experts:
        return a
    return replace(
        a,
        experts=experts,
        experts_chosen=chosen,
        ffn=width,
        dense=frozenset(range(min(first, a.blocks, FIRST_BLOCKS))),
        dense_ffn=a.ffn,
        shared_ffn=shared * width,
        shared_gated=False,
        routing=routing,
    )


# --- GGUF --------------------------------------------------------------------------------------------------


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    turning, rank = said.whole("rope.dimension_count"), said.whole("attention.kv_lora_rank")
    keys = said.whole("attention.key_length_mla", 0) or said.whole("attention.key_length")
    latent = Latent(
        rank=rank,
        plain=_difference(said, keys, turning),
        value=said.whole("attention.value_length_mla", 0) or said.whole("attention.value_length"),
        query_rank=said.whole("attention.q_lora_rank") if said.has_tensor("blk.0.attn_q_a.weight") else 0,
        epsilon=a.norm_epsilon,
        joint=said.has_tensor("blk.0.attn_kv_b.weight"),
    )
    stretched = 1.0 if a.rope_scaling is None else a.rope_scaling.factor
    loud = 1 + said.real("rope.scaling.yarn_log_multiplier", 0.0) * math.log(max(stretched, 1.0))
    a = _attended(replace(a, rope_amplitude=1.0), latent, turning, loud)
    scores: Scores = "sigmoid" if said.whole("expert_gating_func", 0) == SIGMOID else "softmax"
    groups = said.whole("expert_group_count", 0) or 1
    routing = Routing(
        scores=scores,
        groups=groups,
        groups_chosen=said.whole("expert_group_used_count", 0) or groups,
        corrected=any(said.has_tensor(f"blk.{block}.exp_probs_b.bias") for block in range(_few(a))),
        scale=said.real("expert_weights_scale", 0.0) or 1.0,
    )
    experts = said.whole("expert_count", 0)
    a = replace(a, experts_normed=said.flag("expert_weights_norm", False))
    return _with_experts(
        a,
        experts,
        said.whole("expert_used_count", 0),
        said.whole("expert_feed_forward_length") if experts else 0,
        said.whole("expert_shared_count", 0),
        said.whole("leading_dense_block_count", 0),
        routing,
    )


def _few(a: Architecture) -> int:
    return min(a.blocks, FIRST_BLOCKS)


def _difference(said: Said, keys: int, turning: int) -> int:
    if not 0 < turning < keys <= MOST_COUNTS["hidden"]:
        raise CorruptModel(
            f"{said.where}: expected keys of which a part turns, got {turning} of {keys} numbers"
        )
    return keys - turning


# --- folders -----------------------------------------------------------------------------------------------


def _folder(a: Architecture, said: Said, usual: Mapping[str, int], routing: Routing) -> Architecture:
    """`usual`: numbers that transformers leaves out of config.json where they are these."""
    for flag in ("attention_bias", "mlp_bias"):
        if said.flag(flag, False):
            raise UnknownArchitecture(f"{said.where}: {flag} false expected; this variant is not supported")
    if said.whole("moe_layer_freq", 1) != 1:
        raise UnknownArchitecture(
            f"{said.where}: expected experts in every block behind the first ones, got moe_layer_freq "
            f"{said.whole('moe_layer_freq')}; this variant is not supported"
        )
    latent = Latent(
        rank=said.whole("kv_lora_rank", 512),
        plain=said.whole("qk_nope_head_dim", 128),
        value=said.whole("v_head_dim", 128),
        query_rank=said.whole("q_lora_rank", 1536) if said.has_tensor(_QUERIES_MADE) else 0,
        epsilon=EPSILON,
    )
    a = _attended(a, latent, said.whole("qk_rope_head_dim", 64), _loud(a, said))
    return _with_experts(
        a,
        said.whole("n_routed_experts", usual["n_routed_experts"]),
        said.whole("num_experts_per_tok", usual.get("num_experts_per_tok")),
        said.whole("moe_intermediate_size", usual["moe_intermediate_size"]),
        said.whole("n_shared_experts", usual["n_shared_experts"]),
        said.whole("first_k_dense_replace", usual["first_k_dense_replace"]),
        routing,
    )


def _loud(a: Architecture, said: Said) -> float:
    rope = said.rope()
    if rope is None or rope.word("rope_type", rope.word("type", "default")) == "default":
        return 1.0
    over_all = rope.real("mscale_all_dim", 0.0)
    stretched = 1.0 if a.rope_scaling is None else a.rope_scaling.factor
    return 0.1 * over_all * math.log(stretched) + 1 if stretched > 1 else 1.0


def _of_folder_2(a: Architecture, said: Said) -> Architecture:
    method = said.word("topk_method", "greedy")
    if method not in ("greedy", "gready", "group_limited_greedy"):
        raise UnknownArchitecture(
            f"{said.where}: expected topk_method greedy or group_limited_greedy, got {method[:40]!r}; this variant "
            "is not supported"
        )
    if said.flag("norm_topk_prob", False):
        raise UnknownArchitecture(
            f"{said.where}: expected norm_topk_prob false, as every published DeepSeek-V2 has it: what true means "
            "there is not agreed on"
        )
    limited = method == "group_limited_greedy"
    routing = Routing(
        "softmax",
        said.whole("n_group") if limited else 1,
        said.whole("topk_group") if limited else 1,
        scale=said.real("routed_scaling_factor", 1.0),
    )
    return _folder(a, said, _USUAL_2, routing)


def _of_folder_3(a: Architecture, said: Said) -> Architecture:
    method, scores = said.word("topk_method", "noaux_tc"), said.word("scoring_func", "sigmoid")
    if (method, scores) != ("noaux_tc", "sigmoid"):
        raise UnknownArchitecture(
            f"{said.where}: expected topk_method noaux_tc of scoring_func sigmoid, got {method[:40]!r} of "
            f"{scores[:40]!r}; this variant is not supported"
        )
    if not said.flag("rope_interleave", True):
        raise UnknownArchitecture(
            f"{said.where}: rope_interleave true expected; this variant is not supported"
        )
    routing = Routing(
        "sigmoid",
        said.whole("n_group", 8),
        said.whole("topk_group", 4),
        corrected=True,
        scale=said.real("routed_scaling_factor", 2.5),
    )
    return replace(_folder(a, said, _USUAL_3, routing), experts_normed=said.flag("norm_topk_prob", True))


_GGUF: Final = Source(("deepseek2",), _GGUF_NAMES, _of_gguf, interleaved=True, variant=_gguf_variant)
DEEPSEEK2: Final = Family(
    title="DeepSeek-V2, V2-Lite, V2.5",
    apart="latent attention, experts in groups beside one that every token has, a dense first block",
    gguf=_GGUF,
    folder=Source(("deepseek_v2",), _NAMES, _of_folder_2, interleaved=True),
    own_heads=True,
)
DEEPSEEK3: Final = Family(
    title="DeepSeek-V3, R1",
    apart="as DeepSeek-V2; experts by sigmoid scores that are corrected",
    gguf=_GGUF,
    folder=Source(
        ("deepseek_v3",),
        _NAMES,
        _of_folder_3,
        interleaved=True,
        ignored=(r"model\.layers\.61\..*",),  # what predicts a further token, behind the 61 blocks
    ),
    own_heads=True,
)
