"""BART (Lewis et al., 2020) and Marian (Junczys-Dowmunt et al., 2018): norms behind sums, positions that are added to
embeddings, a bias of logits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture, BlockKind
from planner.importers.encoders.family import EncoderFamily
from planner.importers.encoders.shape import EncoderShape
from planner.importers.hf_config import ACTIVATIONS, Numbers
from planner.importers.seq2seq.family import Seq2SeqFamily

OFFSET: Final = 2  # rows of BART's table of positions before that of the first
EPSILON: Final = 1e-5

_ENCODER: Final = {
    "embed.positions": ("encoder.embed_positions",),
    "embed.norm": ("encoder.layernorm_embedding",),
    "layer.qkv": tuple(f"encoder.layers.{{block}}.self_attn.{part}_proj" for part in "qkv"),
    "layer.o": ("encoder.layers.{block}.self_attn.out_proj",),
    "layer.attention_norm": ("encoder.layers.{block}.self_attn_layer_norm",),
    "layer.up": ("encoder.layers.{block}.fc1",),
    "layer.down": ("encoder.layers.{block}.fc2",),
    "layer.ffn_norm": ("encoder.layers.{block}.final_layer_norm",),
    "final.norm": ("encoder.layer_norm",),
}
_DECODER: Final = {
    "embed.positions": "decoder.embed_positions",
    "embed.norm": "decoder.layernorm_embedding",
    **{f"attn.{part}": f"decoder.layers.{{block}}.self_attn.{part}_proj" for part in "qkv"},
    "attn.o": "decoder.layers.{block}.self_attn.out_proj",
    "attn.norm": "decoder.layers.{block}.self_attn_layer_norm",
    **{f"cross.{part}": f"decoder.layers.{{block}}.encoder_attn.{part}_proj" for part in "qkv"},
    "cross.o": "decoder.layers.{block}.encoder_attn.out_proj",
    "cross.norm": "decoder.layers.{block}.encoder_attn_layer_norm",
    "ffn.up": "decoder.layers.{block}.fc1",
    "ffn.down": "decoder.layers.{block}.fc2",
    "ffn.norm": "decoder.layers.{block}.final_layer_norm",
    "head.norm": "decoder.layer_norm",
    "head.weight": "lm_head",
    "head.bias": "final_logits_bias",
}


def _of_bart(said: Numbers) -> tuple[EncoderShape, Architecture]:
    encoder, decoder = _numbers(said)
    return replace(encoder, first_row=OFFSET), replace(decoder, embed_norm=True)


def _of_marian(said: Numbers) -> tuple[EncoderShape, Architecture]:
    encoder, decoder = _numbers(said)
    vocab = said.whole("decoder_vocab_size", encoder.vocab)
    if not said.flag("share_encoder_decoder_embeddings", True) or vocab != encoder.vocab:
        raise UnknownArchitecture(
            f"{said.where}: expected one vocabulary and one embedding of source and target texts"
        )
    return replace(encoder, embed_norm=False), decoder


def _numbers(said: Numbers) -> tuple[EncoderShape, Architecture]:
    called = said.word("activation_function", "gelu")
    activation = ACTIVATIONS.get(called)
    if activation is None:
        raise UnknownArchitecture(
            f"{said.where}: activation_function {called[:40]!r} is not supported; known are {', '.join(ACTIVATIONS)}"
        )
    if said.flag("normalize_before", False) or said.flag("add_final_layer_norm", False):
        raise UnknownArchitecture(f"{said.where}: expected norms behind sums and none before the head")
    hidden, heads = said.whole("d_model"), said.whole("decoder_attention_heads")
    positions = said.whole("max_position_embeddings", 1024)
    scale = hidden**0.5 if said.flag("scale_embedding", False) and hidden else 1.0
    encoder = EncoderShape(
        blocks=said.whole("encoder_layers"),
        hidden=hidden,
        heads=said.whole("encoder_attention_heads"),
        ffn=said.whole("encoder_ffn_dim"),
        vocab=said.whole("vocab_size"),
        positions=positions,
        norm_epsilon=EPSILON,
        activation=activation,
        embed_scale=scale,
    )
    size = hidden // max(heads, 1)
    return encoder, Architecture(
        family=said.word("model_type", ""),
        blocks=said.whole("decoder_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=size,
        ffn=said.whole("decoder_ffn_dim"),
        vocab=encoder.vocab,
        context=2 * positions,
        norm_epsilon=EPSILON,
        rope_base=10_000.0,
        rope_dims=size,
        rope_scaling=None,
        rope_factors=None,
        qkv_bias=True,
        qk_norm=False,
        tied_embedding=not said.has_tensor("lm_head.weight"),
        norm="layer",
        norm_bias=True,
        norm_before=False,
        norm_sum=True,
        norm_last=False,
        activation=activation,
        gated=False,
        o_bias=True,
        ffn_bias=True,
        embedding_scale=scale,
        positions=positions,
        encoded=positions,
        marked=True,
        logit_bias=True,
        pattern=(BlockKind(table=-1),),
    )


_WORDS: Final = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")


def _encoder(title: str, models: tuple[str, ...]) -> EncoderFamily:
    return EncoderFamily(title, "", models, "", _ENCODER, lambda shape, said: shape, "gelu")


BART: Final = Seq2SeqFamily(
    title="BART",
    apart="norms behind sums, learned positions, a bias of logits",
    models=("bart",),
    prefix="model.",
    encoder=_encoder("BART", ("bart",)),
    decoder=_DECODER,
    words=_WORDS,
    numbers=_of_bart,
    opens=True,
)
MARIAN: Final = Seq2SeqFamily(
    title="Marian",
    apart="as BART, with computed positions and SentencePiece of each language",
    models=("marian",),
    prefix="model.",
    encoder=_encoder("Marian", ("marian",)),
    decoder=_DECODER,
    words=_WORDS,
    numbers=_of_marian,
    computed=True,
)
