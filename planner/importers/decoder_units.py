"""Units of the decoders that GGUF files and Hugging Face folders have: what each computes, and where its weights lie.

Each block is two units, attention and feed-forward, both added to the residual stream. q, k, v are one linear (`qkv`),
gate and up another (`gate_up`): rows below one another.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture, SourceModel
from planner.importers.unit_graphs import INPUT, MICROSOFT, UnitGraph
from planner.model.blob_plan import BlobPlan
from planner.model.decoder_building import DecoderSource, UnitSource, build_decoder
from planner.model.graph_manifest import KvState
from planner.model.lowering import kernel_head_size
from planner.model.store import Store
from planner.model.units import Progress, StoredParts
from planner.types import WeightFormat

ROPE_SCALINGS: Final = ("llama3", "linear")


def build_model(
    source: SourceModel, weights: WeightFormat, store: Store, progress: Progress | None = None
) -> str:
    """Cuts `source` into units and puts them into `store`; returns the model id. Raises as build_decoder."""
    return build_decoder(decoder_source(source, weights), store, progress)


def decoder_source(source: SourceModel, weights: WeightFormat) -> DecoderSource:
    """What is stored of `source`. Raises ModelError for numbers and tensors that do not fit."""
    a = source.architecture
    _check(a)
    return DecoderSource(
        name=source.name,
        weights=weights,
        vocab=a.vocab,
        hidden=a.hidden,
        context=a.context,
        scratch=max(2 * a.ffn, a.hidden),
        rotary=(_rotary_table(a),),
        tokenizer=source.tokenizer,
        sampling=source.sampling,
        blobs=_blobs(source, weights),
        units=_units(a),
    )


def _powers(base: float, count: int) -> npt.NDArray[np.float64]:
    """`base` to the power of -i/count for i < count, rounded once: numpy's last bits depend on the processor, and the
    id of a model on these.
    """
    with localcontext() as context:
        context.prec = 50
        exact, steps = Decimal(base), [Decimal(-step) / count for step in range(count)]
        return np.array([float(exact**step) for step in steps])


def rotary_frequencies(architecture: Architecture) -> npt.NDArray[np.float64]:
    """By how much a position turns each of rope_dims/2 pairs, with the model's frequency scaling applied."""
    half = architecture.rope_dims // 2
    frequency = _powers(architecture.rope_base, half)
    scaling = architecture.rope_scaling
    if architecture.rope_factors is not None:
        frequency = frequency / np.asarray(architecture.rope_factors, np.float64)
    elif scaling is not None and scaling.kind == "llama3":
        turns = scaling.original_context * frequency / (2 * np.pi)
        span = scaling.high_freq_factor - scaling.low_freq_factor
        smooth = np.clip((turns - scaling.low_freq_factor) / span, 0, 1)
        frequency = frequency * (smooth + (1 - smooth) / scaling.factor)
    if scaling is not None and scaling.kind == "linear":
        frequency = frequency / scaling.factor
    return frequency


def _rotary_table(a: Architecture) -> tuple[float, ...]:
    """One frequency for two values of a head; what fills heads up does not turn."""
    frequencies = np.zeros((a.rope_dims + kernel_head_size(a.head_size) - a.head_size) // 2)
    frequencies[: a.rope_dims // 2] = rotary_frequencies(a)
    return tuple(frequencies.tolist())


def _check(architecture: Architecture) -> None:
    if architecture.rope_dims != architecture.head_size:
        raise UnknownArchitecture(
            f"models that rotate whole heads expected, got rotary over {architecture.rope_dims} of "
            f"{architecture.head_size} head dimensions"
        )
    if architecture.rope_scaling is not None and architecture.rope_scaling.kind not in ROPE_SCALINGS:
        raise UnknownArchitecture(
            f'rope scaling "{architecture.rope_scaling.kind}" is not known; llama3 and linear are'
        )


# --- weights -----------------------------------------------------------------------------------------------


def _blobs(source: SourceModel, weights: WeightFormat) -> dict[str, BlobPlan]:
    """The plan of each blob, by the unit it is made for; a tied head lies in that of the embedding."""
    a = source.architecture
    embed = StoredParts(source, weights)
    embed.table("embed", a.vocab, a.hidden)
    head = embed if a.tied_embedding else StoredParts(source, weights)
    head.vector("norm", [("head.norm", a.hidden)])
    if not a.tied_embedding:
        head.table("head", a.vocab, a.hidden)
    plans = {"embed": embed.plan()} | ({} if a.tied_embedding else {"head": head.plan()})
    for block in range(a.blocks):
        plans[f"attn.{block}"] = _attn_blob(source, block, weights)
        plans[f"ffn.{block}"] = _ffn_blob(source, block, weights)
    return plans


def _attn_blob(source: SourceModel, block: int, weights: WeightFormat) -> BlobPlan:
    a = source.architecture
    prefix = f"attn.{block}"
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    sizes = (("q", queries), ("k", keys), ("v", keys))
    blob = StoredParts(source, weights)
    blob.vector("norm", [(f"{prefix}.norm", a.hidden)])
    blob.linear("qkv", [(f"{prefix}.{part}", rows) for part, rows in sizes], a.hidden)
    if a.qkv_bias:
        blob.vector("qkv.bias", [(f"{prefix}.{part}_bias", rows) for part, rows in sizes])
    if a.qk_norm:
        blob.vector("q_norm", [(f"{prefix}.q_norm", a.head_size)])
        blob.vector("k_norm", [(f"{prefix}.k_norm", a.head_size)])
    blob.linear("o", [(f"{prefix}.o", a.hidden)], queries)
    return blob.plan()


def _ffn_blob(source: SourceModel, block: int, weights: WeightFormat) -> BlobPlan:
    a = source.architecture
    prefix = f"ffn.{block}"
    blob = StoredParts(source, weights)
    blob.vector("norm", [(f"{prefix}.norm", a.hidden)])
    blob.linear("gate_up", [(f"{prefix}.gate", a.ffn), (f"{prefix}.up", a.ffn)], a.hidden)
    blob.linear("down", [(f"{prefix}.down", a.hidden)], a.ffn)
    return blob.plan()


# --- graphs ------------------------------------------------------------------------------------------------


def _units(a: Architecture) -> list[UnitSource]:
    graph = UnitGraph()
    embed = graph.finish(graph.embedding("embed", a.vocab, a.hidden))
    attn, ffn = _attn_graph(a), _ffn_graph(a)
    kv = (KvState(a.kv_heads, kernel_head_size(a.head_size)),)
    units = [UnitSource("embed", embed, "embed")]
    for block in range(a.blocks):
        units.append(UnitSource(f"attn.{block}", attn, f"attn.{block}", kv))
        units.append(UnitSource(f"ffn.{block}", ffn, f"ffn.{block}"))
    return [*units, UnitSource("head", _head_graph(a), "embed" if a.tied_embedding else "head")]


def _attn_graph(a: Architecture) -> bytes:
    graph = UnitGraph()
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    normed = graph.norm(INPUT, "norm", a.norm_epsilon)
    qkv = graph.linear(normed, "qkv", queries + 2 * keys, a.hidden, bias="qkv.bias" if a.qkv_bias else "")
    operands = _normed_heads(graph, a, qkv) if a.qk_norm else [qkv]
    attended = graph.attention(*operands, heads=a.heads, kv_heads=a.kv_heads, head_size=a.head_size)
    return graph.finish(graph.one("Add", INPUT, graph.linear(attended, "o", a.hidden, queries)))


def _normed_heads(graph: UnitGraph, a: Architecture, qkv: str) -> list[str]:
    """q, k, v from packed rows, q and k normalized per head."""
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    q, k, v = graph.add("Split", qkv, graph.sizes(queries, keys, keys), outputs=3, axis=-1)
    heads, flat = graph.sizes(0, 0, -1, a.head_size), graph.sizes(0, 0, -1)
    found = []
    for part, weight in ((q, "q_norm"), (k, "k_norm")):
        normed = graph.norm(graph.one("Reshape", part, heads), weight, a.norm_epsilon)
        found.append(graph.one("Reshape", normed, flat))
    return [*found, v]


def _ffn_graph(a: Architecture) -> bytes:
    graph = UnitGraph()
    normed = graph.norm(INPUT, "norm", a.norm_epsilon)
    both = graph.linear(normed, "gate_up", 2 * a.ffn, a.hidden)
    gate, up = graph.add("Split", both, graph.sizes(a.ffn, a.ffn), outputs=2, axis=-1)
    active = graph.one("QuickGelu", gate, domain=MICROSOFT, alpha=1.0)
    inner = graph.one("Mul", active, up)
    return graph.finish(graph.one("Add", INPUT, graph.linear(inner, "down", a.hidden, a.ffn)))


def _head_graph(a: Architecture) -> bytes:
    graph = UnitGraph()
    normed = graph.norm(INPUT, "norm", a.norm_epsilon)
    return graph.finish(graph.linear(normed, "embed" if a.tied_embedding else "head", a.vocab, a.hidden))
