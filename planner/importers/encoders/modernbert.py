"""ModernBERT and NomicBERT: rotary embedding and gated feed-forward layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from planner.errors import CorruptModel, UnknownArchitecture
from planner.importers.encoders.family import EncoderFamily, Names
from planner.importers.encoders.shape import EncoderShape, ScoreHead
from planner.importers.hf_config import Numbers

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"

_MODERNBERT: Final[Names] = {
    "embed.words": ("embeddings.tok_embeddings",),
    "embed.norm": ("embeddings.norm",),
    "layer.qkv": ("layers.{block}.attn.Wqkv",),
    "layer.o": ("layers.{block}.attn.Wo",),
    "layer.attention_norm": ("layers.{block}.attn_norm",),
    "layer.up": ("layers.{block}.mlp.Wi",),
    "layer.down": ("layers.{block}.mlp.Wo",),
    "layer.ffn_norm": ("layers.{block}.mlp_norm",),
    "final.norm": ("final_norm",),
    "head.dense": ("head.dense",),
    "head.norm": ("head.norm",),
    "head.out": ("classifier",),
}
_NOMIC: Final[Names] = {
    "embed.words": ("embeddings.word_embeddings",),
    "embed.kinds": ("embeddings.token_type_embeddings",),
    "embed.norm": ("emb_ln",),
    "layer.qkv": ("encoder.layers.{block}.attn.Wqkv",),
    "layer.o": ("encoder.layers.{block}.attn.out_proj",),
    "layer.attention_norm": ("encoder.layers.{block}.norm1",),
    "layer.up": ("encoder.layers.{block}.mlp.fc12", "encoder.layers.{block}.mlp.fc11"),
    "layer.down": ("encoder.layers.{block}.mlp.fc2",),
    "layer.ffn_norm": ("encoder.layers.{block}.norm2",),
    "head.dense": ("pooler.dense",),
    "head.out": ("classifier",),
}
_NOMIC_OTHER: Final[Names] = {  # as newer versions of transformers call them
    **_NOMIC,
    "embed.norm": ("embeddings.LayerNorm",),
    "layer.qkv": tuple(f"layers.{{block}}.self_attn.{part}_proj" for part in "qkv"),
    "layer.o": ("layers.{block}.self_attn.o_proj",),
    "layer.attention_norm": ("layers.{block}.post_attention_layernorm",),
    "layer.up": ("layers.{block}.mlp.gate_proj", "layers.{block}.mlp.up_proj"),
    "layer.down": ("layers.{block}.mlp.down_proj",),
    "layer.ffn_norm": ("layers.{block}.post_mlp_layernorm",),
}


def _base(said: Numbers, kind: str, key: str, usual: float) -> float:
    """The base of rotary embedding in blocks of this kind, in either spelling."""
    found = said.within("rope_parameters")
    within = None if found is None else found.within(kind)
    if within is None:
        return said.real(key, usual)
    if within.word("rope_type", "default") != "default":
        raise UnknownArchitecture(f"{said.where}: a scaled rotary embedding is not supported")
    return within.real("rope_theta", usual)


def _of_modernbert(shape: EncoderShape, said: Numbers) -> EncoderShape:
    types: Sequence[str] | None = said.words("layer_types")
    if types is None:
        every = said.whole("global_attn_every_n_layers", 3)
        if every < 1:
            raise CorruptModel(f"{said.where}: global_attn_every_n_layers of at least 1 expected")
        types = [SLIDING if block % every else FULL for block in range(min(shape.blocks, 1 << 10))]
    if not set(types) <= {FULL, SLIDING}:
        raise UnknownArchitecture(f"{said.where}: layer_types of {FULL} and {SLIDING} expected")
    bases = {
        FULL: _base(said, FULL, "global_rope_theta", 160_000.0),
        SLIDING: _base(said, SLIDING, "local_rope_theta", 10_000.0),
    }
    near = said.whole("local_attention", 128) // 2
    return replace(
        shape,
        table=False,
        rotary=tuple(bases[kind] for kind in types),
        windows=tuple(near if kind == SLIDING else 0 for kind in types),
        norm_first=True,
        gated=True,
        attention_bias=said.flag("attention_bias", False),
        ffn_bias=said.flag("mlp_bias", False),
        norm_bias=said.flag("norm_bias", False),
    )


_HEAD_ACTIVATIONS: Final[dict[str, Literal["gelu", "relu", "silu"]]] = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
}


def _modernbert_head(said: Numbers) -> ScoreHead:
    called, pooling = said.word("classifier_activation", "gelu"), said.word("classifier_pooling", "cls")
    if called not in _HEAD_ACTIVATIONS or pooling not in ("cls", "mean"):
        raise UnknownArchitecture(
            f"{said.where}: a classifier of {called[:40]!r} over {pooling[:40]!r} is not supported"
        )
    return ScoreHead(
        _HEAD_ACTIVATIONS[called], said.flag("classifier_bias", False), norm=True, mean=pooling == "mean"
    )


def _of_nomic(shape: EncoderShape, said: Numbers) -> EncoderShape:
    for key, usual in (("prenorm", False), ("use_rms_norm", False), ("rotary_emb_interleaved", False)):
        if said.flag(key, usual) != usual:
            raise UnknownArchitecture(f"{said.where}: expected {key} {usual}; this variant is not supported")
    for key in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"):
        if said.flag(key, False):
            raise UnknownArchitecture(f"{said.where}: expected no {key}; this variant is not supported")
    if said.real("rotary_emb_fraction", 1.0) != 1.0:
        raise UnknownArchitecture(f"{said.where}: heads that rotate in part are not supported")
    rope = said.within("rope_parameters")
    if rope is not None and rope.word("rope_type", "default") != "default":
        raise UnknownArchitecture(f"{said.where}: a scaled rotary embedding is not supported")
    base = said.real("rotary_emb_base", 1000.0) if rope is None else rope.real("rope_theta", 1000.0)
    return replace(
        shape,
        table=False,
        kinds=said.whole("type_vocab_size", 2),
        rotary=(base,) * min(shape.blocks, 1 << 10),
        gated=True,
        attention_bias=False,
        ffn_bias=False,
    )


MODERNBERT: Final = EncoderFamily(
    title="ModernBERT",
    apart="rotary embedding, two blocks of three look at near tokens alone, norms first, gated, few biases",
    models=("modernbert",),
    prefix="model.",
    names=_MODERNBERT,
    features=_of_modernbert,
    activation="gelu",
    epsilon=1e-5,
    epsilon_key="norm_eps",
    head=_modernbert_head,
    keys={"hidden_act": ("hidden_activation",)},
    ignored=(r"decoder\..*", r"head\..*"),
)
NOMIC_BERT: Final = EncoderFamily(
    title="NomicBERT",
    apart="rotary embedding, gated, no biases of linears",
    models=("nomic_bert",),
    gguf="nomic-bert",
    prefix="nomic_bert.",
    names=_NOMIC,
    features=_of_nomic,
    activation="silu",
    head=lambda said: ScoreHead("tanh"),
    keys={
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner",),
        "hidden_act": ("activation_function",),
        "layer_norm_eps": ("layer_norm_epsilon",),
        "max_position_embeddings": ("max_trained_positions", "n_positions"),
    },
    ignored=(r"pooler\..*", r"cls\..*", r"(rotary_emb|.*)\.(inv_freq|original_inv_freq)"),
    other=_NOMIC_OTHER,
    other_mark="embeddings.LayerNorm.weight",
)
