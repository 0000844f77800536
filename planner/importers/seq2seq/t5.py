"""T5 (Raffel et al., 2020), its version 1.1 and FLAN-T5: norms without mean before each half, scores that are not
scaled, a bias of them by the distance of two tokens instead of positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Activation, Architecture, BlockKind
from planner.importers.encoders.family import EncoderFamily
from planner.importers.encoders.shape import EncoderShape
from planner.importers.hf_config import Numbers
from planner.importers.seq2seq.family import Seq2SeqFamily

LONGEST: Final = 512  # tokens of a source text, where the config does not say it

_ACTIVATIONS: Final[Mapping[str, tuple[Activation, bool]]] = {
    "relu": ("relu", False),
    "gated-gelu": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}
_ENCODER: Final = {
    "relative": ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias",),
    "layer.attention_norm": ("encoder.block.{block}.layer.0.layer_norm",),
    "layer.qkv": tuple(f"encoder.block.{{block}}.layer.0.SelfAttention.{part}" for part in "qkv"),
    "layer.o": ("encoder.block.{block}.layer.0.SelfAttention.o",),
    "layer.ffn_norm": ("encoder.block.{block}.layer.1.layer_norm",),
    "layer.down": ("encoder.block.{block}.layer.1.DenseReluDense.wo",),
    "final.norm": ("encoder.final_layer_norm",),
}
_DECODER: Final = {
    "embed.relative": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "attn.norm": "decoder.block.{block}.layer.0.layer_norm",
    **{f"attn.{part}": f"decoder.block.{{block}}.layer.0.SelfAttention.{part}" for part in "qkvo"},
    "cross.norm": "decoder.block.{block}.layer.1.layer_norm",
    **{f"cross.{part}": f"decoder.block.{{block}}.layer.1.EncDecAttention.{part}" for part in "qkvo"},
    "ffn.norm": "decoder.block.{block}.layer.2.layer_norm",
    "ffn.gate": "decoder.block.{block}.layer.2.DenseReluDense.wi_0",
    "ffn.down": "decoder.block.{block}.layer.2.DenseReluDense.wo",
    "head.norm": "decoder.final_layer_norm",
    "head.weight": "lm_head",
}


def _numbers(said: Numbers) -> tuple[EncoderShape, Architecture]:
    called = said.word("feed_forward_proj", "relu")
    if called not in _ACTIVATIONS:
        raise UnknownArchitecture(
            f"{said.where}: feed_forward_proj {called[:40]!r} is not supported; known are {', '.join(_ACTIVATIONS)}"
        )
    activation, gated = _ACTIVATIONS[called]
    hidden, heads, size = said.whole("d_model"), said.whole("num_heads"), said.whole("d_kv")
    blocks, longest = said.whole("num_layers"), said.whole("n_positions", LONGEST)
    far, buckets = (
        said.whole("relative_attention_max_distance", 128),
        said.whole("relative_attention_num_buckets", 32),
    )
    epsilon = said.real("layer_norm_epsilon", 1e-6)
    encoder = EncoderShape(
        blocks=blocks,
        hidden=hidden,
        heads=heads,
        ffn=said.whole("d_ff"),
        vocab=said.whole("vocab_size"),
        positions=longest,
        norm_epsilon=epsilon,
        activation=activation,
        table=False,
        buckets=buckets,
        far=far,
        norm_first=True,
        gated=gated,
        attention_bias=False,
        ffn_bias=False,
        norm_bias=False,
        head=size,
        embed_norm=False,
        rms=True,
        scaled=False,
    )
    scales = said.flag("scale_decoder_outputs", said.flag("tie_word_embeddings", True))
    return encoder, Architecture(
        family="t5",
        blocks=said.whole("num_decoder_layers", blocks),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=size,
        ffn=encoder.ffn,
        vocab=encoder.vocab,
        context=2 * longest,
        norm_epsilon=epsilon,
        rope_base=10_000.0,
        rope_dims=size,
        rope_scaling=None,
        rope_factors=None,
        qkv_bias=False,
        qk_norm=False,
        tied_embedding=not said.has_tensor("lm_head.weight"),
        activation=activation,
        gated=gated,
        attention_scale=1.0,
        logit_scale=hidden**-0.5 if scales and hidden else 1.0,
        encoded=longest,
        marked=True,
        buckets=buckets,
        far=far,
        pattern=(BlockKind(table=-1),),
    )


def _family(models: tuple[str, ...], gated: bool) -> Seq2SeqFamily:
    inner = ("wi_0", "wi_1") if gated else ("wi",)
    up = tuple(f"encoder.block.{{block}}.layer.1.DenseReluDense.{each}" for each in inner)
    return Seq2SeqFamily(
        title="T5, T5 1.1, FLAN-T5",
        apart="a bias of scores by the distance of two tokens, norms without mean",
        models=models,
        prefix="",
        encoder=EncoderFamily(
            "T5", "", models, "", {**_ENCODER, "layer.up": up}, lambda shape, said: shape, "relu"
        ),
        decoder={**_DECODER, "ffn.up": f"decoder.block.{{block}}.layer.2.DenseReluDense.{inner[-1]}"},
        words=("shared", "encoder.embed_tokens", "decoder.embed_tokens"),
        numbers=_numbers,
    )


T5: Final = _family(("t5",), gated=False)
T5_GATED: Final = _family(("t5",), gated=True)
