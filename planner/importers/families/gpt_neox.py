"""GPT-NeoX and Pythia: halves of a block side by side, layer norms, biases, heads that turn in part."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.importers.architecture import Architecture
from planner.importers.families.family import GROUPED, STACKED, Family, Names, Said, Source, fused
from planner.importers.families.names import GGUF

_LAYER: Final = "gpt_neox.layers.{block}"
_FOLDER: Final[Names] = {
    "embed.weight": "gpt_neox.embed_in.weight",
    "head.norm": "gpt_neox.final_layer_norm.weight",
    "head.norm_bias": "gpt_neox.final_layer_norm.bias",
    "head.weight": "lm_head.weight",
    "attn.norm": f"{_LAYER}.input_layernorm.weight",
    "attn.norm_bias": f"{_LAYER}.input_layernorm.bias",
    **fused(GROUPED, "attn", f"{_LAYER}.attention.query_key_value"),
    "attn.o": f"{_LAYER}.attention.dense.weight",
    "attn.o_bias": f"{_LAYER}.attention.dense.bias",
    "ffn.norm": f"{_LAYER}.post_attention_layernorm.weight",
    "ffn.norm_bias": f"{_LAYER}.post_attention_layernorm.bias",
    "ffn.up": f"{_LAYER}.mlp.dense_h_to_4h.weight",
    "ffn.up_bias": f"{_LAYER}.mlp.dense_h_to_4h.bias",
    "ffn.down": f"{_LAYER}.mlp.dense_4h_to_h.weight",
    "ffn.down_bias": f"{_LAYER}.mlp.dense_4h_to_h.bias",
}


def _features(a: Architecture, said: Said, biased: bool) -> Architecture:
    return replace(
        a,
        kv_heads=a.heads,
        norm="layer",
        norm_bias=True,
        parallel=said.flag("use_parallel_residual", True),
        gated=False,
        qkv_bias=biased,
        o_bias=biased,
        ffn_bias=True,
    )


def _of_gguf(a: Architecture, said: Said) -> Architecture:
    return _features(a, said, said.has_tensor("blk.0.attn_qkv.bias"))


def _of_folder(a: Architecture, said: Said) -> Architecture:
    return _features(a, said, said.flag("attention_bias", True))


GPT_NEOX: Final = Family(
    title="GPT-NeoX, Pythia",
    apart="attention and feed-forward side by side, layer norms, biases, heads that turn in part",
    gguf=Source(
        ("gptneox",),
        {**GGUF, **fused(STACKED, "attn", "blk.{block}.attn_qkv")},
        _of_gguf,
        keys={"attention.layer_norm_rms_epsilon": "attention.layer_norm_epsilon"},
    ),
    folder=Source(
        ("gpt_neox",),
        _FOLDER,
        _of_folder,
        ignored=(r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),
        renamed={"embed_out.weight": "lm_head.weight"},
        keys={
            "rms_norm_eps": "layer_norm_eps",
            "rope_theta": "rotary_emb_base",
            "partial_rotary_factor": "rotary_pct",
        },
    ),
    activations=("gelu", "gelu_tanh"),
    partial=True,
    part=0.25,
)
