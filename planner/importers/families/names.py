"""Names of tensors that most families share."""

from __future__ import annotations

from typing import Final

from planner.importers.families.family import Names

GGUF: Final[Names] = {
    "embed.weight": "token_embd.weight",
    "embed.positions": "position_embd.weight",
    "head.norm": "output_norm.weight",
    "head.norm_bias": "output_norm.bias",
    "head.weight": "output.weight",
    "attn.norm": "blk.{block}.attn_norm.weight",
    "attn.norm_bias": "blk.{block}.attn_norm.bias",
    "attn.q": "blk.{block}.attn_q.weight",
    "attn.k": "blk.{block}.attn_k.weight",
    "attn.v": "blk.{block}.attn_v.weight",
    "attn.o": "blk.{block}.attn_output.weight",
    "attn.q_bias": "blk.{block}.attn_q.bias",
    "attn.k_bias": "blk.{block}.attn_k.bias",
    "attn.v_bias": "blk.{block}.attn_v.bias",
    "attn.o_bias": "blk.{block}.attn_output.bias",
    "attn.q_norm": "blk.{block}.attn_q_norm.weight",
    "attn.k_norm": "blk.{block}.attn_k_norm.weight",
    "attn.after": "blk.{block}.post_attention_norm.weight",
    "ffn.norm": "blk.{block}.ffn_norm.weight",
    "ffn.norm_bias": "blk.{block}.ffn_norm.bias",
    "ffn.gate": "blk.{block}.ffn_gate.weight",
    "ffn.up": "blk.{block}.ffn_up.weight",
    "ffn.down": "blk.{block}.ffn_down.weight",
    "ffn.up_bias": "blk.{block}.ffn_up.bias",
    "ffn.down_bias": "blk.{block}.ffn_down.bias",
    "ffn.after": "blk.{block}.post_ffw_norm.weight",
}
FOLDER: Final[Names] = {
    "embed.weight": "model.embed_tokens.weight",
    "head.norm": "model.norm.weight",
    "head.norm_bias": "model.norm.bias",
    "head.weight": "lm_head.weight",
    "attn.norm": "model.layers.{block}.input_layernorm.weight",
    "attn.norm_bias": "model.layers.{block}.input_layernorm.bias",
    "attn.q": "model.layers.{block}.self_attn.q_proj.weight",
    "attn.k": "model.layers.{block}.self_attn.k_proj.weight",
    "attn.v": "model.layers.{block}.self_attn.v_proj.weight",
    "attn.o": "model.layers.{block}.self_attn.o_proj.weight",
    "attn.q_bias": "model.layers.{block}.self_attn.q_proj.bias",
    "attn.k_bias": "model.layers.{block}.self_attn.k_proj.bias",
    "attn.v_bias": "model.layers.{block}.self_attn.v_proj.bias",
    "attn.o_bias": "model.layers.{block}.self_attn.o_proj.bias",
    "attn.q_norm": "model.layers.{block}.self_attn.q_norm.weight",
    "attn.k_norm": "model.layers.{block}.self_attn.k_norm.weight",
    "ffn.norm": "model.layers.{block}.post_attention_layernorm.weight",
    "ffn.norm_bias": "model.layers.{block}.post_attention_layernorm.bias",
    "ffn.gate": "model.layers.{block}.mlp.gate_proj.weight",
    "ffn.up": "model.layers.{block}.mlp.up_proj.weight",
    "ffn.down": "model.layers.{block}.mlp.down_proj.weight",
}
