"""BERT and its closest relatives: learned positions, a norm behind each sum, GELU without gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.encoders.family import EncoderFamily, Names
from planner.importers.encoders.shape import EncoderShape, ScoreHead
from planner.importers.hf_config import Numbers

_BERT: Final[Names] = {
    "embed.words": ("embeddings.word_embeddings",),
    "embed.kinds": ("embeddings.token_type_embeddings",),
    "embed.positions": ("embeddings.position_embeddings",),
    "embed.norm": ("embeddings.LayerNorm",),
    "layer.qkv": tuple(
        f"encoder.layer.{{block}}.attention.self.{part}" for part in ("query", "key", "value")
    ),
    "layer.o": ("encoder.layer.{block}.attention.output.dense",),
    "layer.attention_norm": ("encoder.layer.{block}.attention.output.LayerNorm",),
    "layer.up": ("encoder.layer.{block}.intermediate.dense",),
    "layer.down": ("encoder.layer.{block}.output.dense",),
    "layer.ffn_norm": ("encoder.layer.{block}.output.LayerNorm",),
}
_IGNORED: Final = (
    r"embeddings\.(position_ids|token_type_ids)",
    r"pooler\..*",
    r"cls\..*",
    r"lm_head\..*",
)
_DISTILBERT: Final[Names] = {
    "embed.words": ("embeddings.word_embeddings",),
    "embed.positions": ("embeddings.position_embeddings",),
    "embed.norm": ("embeddings.LayerNorm",),
    "layer.qkv": tuple(f"transformer.layer.{{block}}.attention.{part}_lin" for part in "qkv"),
    "layer.o": ("transformer.layer.{block}.attention.out_lin",),
    "layer.attention_norm": ("transformer.layer.{block}.sa_layer_norm",),
    "layer.up": ("transformer.layer.{block}.ffn.lin1",),
    "layer.down": ("transformer.layer.{block}.ffn.lin2",),
    "layer.ffn_norm": ("transformer.layer.{block}.output_layer_norm",),
    "head.dense": ("pre_classifier",),
    "head.out": ("classifier",),
}
_MPNET: Final[Names] = {
    **{ours: names for ours, names in _BERT.items() if ours != "embed.kinds"},
    "relative": ("encoder.relative_attention_bias",),
    "layer.qkv": tuple(f"encoder.layer.{{block}}.attention.attn.{part}" for part in "qkv"),
    "layer.o": ("encoder.layer.{block}.attention.attn.o",),
    "layer.attention_norm": ("encoder.layer.{block}.attention.LayerNorm",),
    "head.dense": ("classifier.dense",),
    "head.out": ("classifier.out_proj",),
}


def _of_bert(shape: EncoderShape, said: Numbers) -> EncoderShape:
    if said.word("position_embedding_type", "absolute") != "absolute" or said.flag("is_decoder", False):
        kind = said.word("position_embedding_type", "absolute")
        raise UnknownArchitecture(
            f"{said.where}: expected position_embedding_type 'absolute', got {kind[:40]!r}, or it is a decoder"
        )
    return replace(shape, kinds=said.whole("type_vocab_size", 2))


def _of_roberta(shape: EncoderShape, said: Numbers) -> EncoderShape:
    return _after_the_pad(_of_bert(shape, said), said)


def _of_mpnet(shape: EncoderShape, said: Numbers) -> EncoderShape:
    return _after_the_pad(replace(shape, buckets=said.whole("relative_attention_num_buckets", 32)), said)


def _after_the_pad(shape: EncoderShape, said: Numbers) -> EncoderShape:
    """Positions are counted from the row behind that of the token that fills up."""
    first = said.whole("pad_token_id", 1) + 1
    return replace(shape, first_row=first, positions=shape.positions - first)


def _tanh(said: Numbers) -> ScoreHead:
    return ScoreHead("tanh")


def _relu(said: Numbers) -> ScoreHead:
    return ScoreHead("relu")


BERT: Final = EncoderFamily(
    title="BERT",
    apart="",
    models=("bert",),
    gguf="bert",
    prefix="bert.",
    names={**_BERT, "head.dense": ("pooler.dense",), "head.out": ("classifier",)},
    features=_of_bert,
    activation="gelu",
    head=_tanh,
    ignored=_IGNORED,
)
ROBERTA: Final = EncoderFamily(
    title="RoBERTa, XLM-RoBERTa",
    apart="positions counted behind the padding token, byte-level or Unigram tokens",
    models=("roberta", "xlm-roberta"),
    prefix="roberta.",
    names={**_BERT, "head.dense": ("classifier.dense",), "head.out": ("classifier.out_proj",)},
    features=_of_roberta,
    activation="gelu",
    head=_tanh,
    ignored=_IGNORED,
)
DISTILBERT: Final = EncoderFamily(
    title="DistilBERT",
    apart="no kinds of texts",
    models=("distilbert",),
    prefix="distilbert.",
    names=_DISTILBERT,
    features=lambda shape, said: shape,
    activation="gelu",
    head=_relu,
    keys={
        "hidden_size": ("dim",),
        "num_hidden_layers": ("n_layers",),
        "num_attention_heads": ("n_heads",),
        "intermediate_size": ("hidden_dim",),
        "hidden_act": ("activation",),
    },
    ignored=(*_IGNORED, r"vocab_(transform|layer_norm|projector)\..*"),
)
MPNET: Final = EncoderFamily(
    title="MPNet",
    apart="a bias of scores by the distance of two tokens, no kinds of texts",
    models=("mpnet",),
    prefix="mpnet.",
    names=_MPNET,
    features=_of_mpnet,
    activation="gelu",
    head=_tanh,
    ignored=_IGNORED,
)
