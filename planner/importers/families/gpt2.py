"""GPT-2: a table of positions instead of rotary embedding, matrices that are stored transposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture, BlockKind
from planner.importers.families.family import STACKED, Family, Names, Place, Said, Source, fused
from planner.importers.families.names import GGUF

_LAYER: Final = "transformer.h.{block}"
_FOLDER: Final[Names] = {
    "embed.weight": "transformer.wte.weight",
    "embed.positions": "transformer.wpe.weight",
    "head.norm": "transformer.ln_f.weight",
    "head.norm_bias": "transformer.ln_f.bias",
    "head.weight": "lm_head.weight",
    "attn.norm": f"{_LAYER}.ln_1.weight",
    "attn.norm_bias": f"{_LAYER}.ln_1.bias",
    **fused(STACKED, "attn", f"{_LAYER}.attn.c_attn", transposed=True),
    "attn.o": Place(f"{_LAYER}.attn.c_proj.weight", transposed=True),
    "attn.o_bias": f"{_LAYER}.attn.c_proj.bias",
    "ffn.norm": f"{_LAYER}.ln_2.weight",
    "ffn.norm_bias": f"{_LAYER}.ln_2.bias",
    "ffn.up": Place(f"{_LAYER}.mlp.c_fc.weight", transposed=True),
    "ffn.up_bias": f"{_LAYER}.mlp.c_fc.bias",
    "ffn.down": Place(f"{_LAYER}.mlp.c_proj.weight", transposed=True),
    "ffn.down_bias": f"{_LAYER}.mlp.c_proj.bias",
}


def _features(a: Architecture, said: Said) -> Architecture:
    return replace(
        a,
        kv_heads=a.heads,
        norm="layer",
        norm_bias=True,
        gated=False,
        qkv_bias=True,
        o_bias=True,
        ffn_bias=True,
        positions=a.context,
        pattern=(BlockKind(table=-1),),
    )


def _of_folder(a: Architecture, said: Said) -> Architecture:
    if said.flag("scale_attn_by_inverse_layer_idx", False) or not said.flag("scale_attn_weights", True):
        raise UnknownArchitecture(f"{said.where}: expected GPT-2's usual scale of scores, got another one")
    return _features(a, said)


GPT2: Final = Family(
    title="GPT-2",
    apart="a table of positions, layer norms, biases, tanh GELU without gate",
    gguf=Source(
        ("gpt2",),
        {**GGUF, **fused(STACKED, "attn", "blk.{block}.attn_qkv")},
        _features,
        keys={"attention.layer_norm_rms_epsilon": "attention.layer_norm_epsilon"},
    ),
    folder=Source(
        ("gpt2",),
        _FOLDER,
        _of_folder,
        ignored=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",),
        keys={
            "num_hidden_layers": "n_layer",
            "hidden_size": "n_embd",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "n_positions",
            "intermediate_size": "n_inner",
            "rms_norm_eps": "layer_norm_epsilon",
            "hidden_act": "activation_function",
        },
        prefix="transformer.",
    ),
    activations=("gelu_tanh", "gelu"),
    ffn=4,
)
