"""Mixtures of experts: Mixtral, OLMoE, Qwen2-MoE and Qwen3-MoE."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture
from planner.importers.families.family import Family, Names, Said, Source, every_block
from planner.importers.families.llama import EXPERTS_OF_GGUF, LLAMA, of_folder, of_gguf, with_experts
from planner.importers.families.names import FOLDER

_MIXTRAL: Final = "model.layers.{block}.block_sparse_moe"
_MLP: Final = "model.layers.{block}.mlp"
_EXPERTS: Final[Names] = {
    **FOLDER,
    "ffn.router": f"{_MLP}.gate.weight",
    "ffn.gate_e": f"{_MLP}.experts.{{expert}}.gate_proj.weight",
    "ffn.up_e": f"{_MLP}.experts.{{expert}}.up_proj.weight",
    "ffn.down_e": f"{_MLP}.experts.{{expert}}.down_proj.weight",
    "ffn.shared_gate": f"{_MLP}.shared_expert.gate_proj.weight",
    "ffn.shared_up": f"{_MLP}.shared_expert.up_proj.weight",
    "ffn.shared_down": f"{_MLP}.shared_expert.down_proj.weight",
    "ffn.shared_share": f"{_MLP}.shared_expert_gate.weight",
}


def _mixtral_of_folder(a: Architecture, said: Said) -> Architecture:
    a = every_block(a, said.whole("sliding_window", 0))
    return replace(
        a,
        experts=said.whole("num_local_experts"),
        experts_chosen=said.whole("num_experts_per_tok"),
        experts_normed=True,
    )


def _of_folder(a: Architecture, said: Said) -> Architecture:
    return replace(
        a,
        experts=said.whole("num_local_experts", 0) or said.whole("num_experts"),
        experts_chosen=said.whole("num_experts_per_tok"),
        experts_normed=said.flag("norm_topk_prob", False),
    )


def _rows_normed(a: Architecture) -> Architecture:
    return replace(a, qk_norm=True, head_norm="row")


def _olmoe_of_folder(a: Architecture, said: Said) -> Architecture:
    if said.real("clip_qkv", 0.0):
        raise UnknownArchitecture(
            f"{said.where}: OLMoE without clip_qkv expected; this variant is not supported"
        )
    biased = said.flag("attention_bias", False)
    return replace(_rows_normed(_of_folder(a, said)), qkv_bias=biased, o_bias=biased)


def _olmoe_of_gguf(a: Architecture, said: Said) -> Architecture:
    return _rows_normed(with_experts(a, said, normed=False))


def _qwen_of_folder(a: Architecture, said: Said) -> Architecture:
    if said.whole("decoder_sparse_step", 1) != 1 or said.reals("mlp_only_layers"):
        raise UnknownArchitecture(
            f"{said.where}: experts in every block expected, got dense blocks among them; "
            "this variant is not supported"
        )
    a = _of_folder(of_folder(a, said), said)
    return replace(
        a,
        ffn=said.whole("moe_intermediate_size"),
        shared_ffn=said.whole("shared_expert_intermediate_size", 0),
    )


def _qwen_of_gguf(a: Architecture, said: Said, normed: bool) -> Architecture:
    a = with_experts(of_gguf(a, said), said, normed)
    return replace(
        a,
        ffn=said.whole("expert_feed_forward_length"),
        shared_ffn=said.whole("expert_shared_feed_forward_length", 0),
    )


MIXTRAL: Final = Family(
    title="Mixtral",
    apart="experts",
    gguf=LLAMA.gguf,
    folder=Source(
        ("mixtral",),
        {
            **FOLDER,
            "ffn.router": f"{_MIXTRAL}.gate.weight",
            "ffn.gate_e": f"{_MIXTRAL}.experts.{{expert}}.w1.weight",
            "ffn.up_e": f"{_MIXTRAL}.experts.{{expert}}.w3.weight",
            "ffn.down_e": f"{_MIXTRAL}.experts.{{expert}}.w2.weight",
        },
        _mixtral_of_folder,
    ),
)
OLMOE: Final = Family(
    title="OLMoE",
    apart="experts, norm on rows of q and k",
    gguf=Source(("olmoe",), EXPERTS_OF_GGUF, _olmoe_of_gguf),
    folder=Source(("olmoe",), _EXPERTS, _olmoe_of_folder),
)
QWEN2_MOE: Final = Family(
    title="Qwen1.5-MoE, Qwen2-MoE",
    apart="experts, one that every token has, bias on q, k and v",
    gguf=Source(("qwen2moe",), EXPERTS_OF_GGUF, lambda a, said: _qwen_of_gguf(a, said, False)),
    folder=Source(("qwen2_moe",), _EXPERTS, _qwen_of_folder),
)
QWEN3_MOE: Final = Family(
    title="Qwen3-MoE",
    apart="experts, norm on q and k",
    gguf=Source(("qwen3moe",), EXPERTS_OF_GGUF, lambda a, said: _qwen_of_gguf(a, said, True)),
    folder=Source(("qwen3_moe",), _EXPERTS, _qwen_of_folder),
    head_size=128,
)
