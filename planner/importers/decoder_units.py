"""Units of the decoders that GGUF files and Hugging Face folders have, and where their weights lie.

Each block is two units, attention and feed-forward, both added to the residual stream; a block whose two halves take
the same rows is one unit. q, k, v are one linear (`qkv`), gate and up another (`gate_up`): rows below one another.
What units compute is in planner.importers.decoder_graphs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.architecture import Architecture, Latent, SourceModel
from planner.importers.decoder_graphs import (
    MARK_VALUES,
    attn_graph,
    block_graph,
    cross_graph,
    embed_graph,
    ffn_graph,
    head_graph,
)
from planner.importers.rotary import rotary_tables_of
from planner.model.blob_plan import BlobPlan
from planner.model.decoder_building import DecoderSource, UnitSource, build_decoder
from planner.model.graph_manifest import KvState
from planner.model.lowering import kernel_head_size
from planner.model.manifest import MOST_AXES, Sight
from planner.model.source_text import SourceText
from planner.model.speech import Speech
from planner.model.store import Store
from planner.model.units import Progress, StoredParts
from planner.types import WeightFormat

ROPE_SCALINGS: Final = ("llama3", "linear", "yarn")


def build_model(
    source: SourceModel,
    weights: WeightFormat,
    store: Store,
    progress: Progress | None = None,
    speech: Speech | None = None,
    *,
    expert_units: int = 1,
    sight: Sight | None = None,
    text: SourceText | None = None,
) -> str:
    """Cuts `source` into units and puts them into `store`; returns the model id. `sight`: how it is given pictures;
    `text`: how it is given source texts. Raises as `decoder_source` and build_decoder.
    """
    made = replace(decoder_source(source, weights, expert_units, speech), sight=sight, source=text)
    return build_decoder(made, store, progress)


def decoder_source(
    source: SourceModel, weights: WeightFormat, expert_units: int = 1, speech: Speech | None = None
) -> DecoderSource:
    """What is stored of `source`. `expert_units`: how many units, each with a blob of its own, the experts of each
    block are divided among; rows that cross borders have twice the values then. `speech`: how it writes what is said,
    where it does. Raises ModelError for numbers and tensors that do not fit.
    """
    a = source.architecture
    if expert_units != 1:
        a = replace(a, expert_units=expert_units)
    if not 1 <= a.expert_units <= max(1, a.experts):
        raise UnknownArchitecture(
            f"{source.name}: experts of a block in 1 to {max(1, a.experts)} units expected, since it has "
            f"{a.experts or 'no'} experts, got {expert_units}"
        )
    _check(a)
    return DecoderSource(
        name=source.name,
        weights=weights,
        vocab=a.vocab,
        hidden=a.row,
        context=a.context,
        scratch=_scratch(a),
        rotary=rotary_tables_of(a),
        tokenizer=source.tokenizer,
        sampling=source.sampling,
        speech=speech,
        blobs=_blobs(source, a, weights),
        units=_units(a),
    )


def _scratch(a: Architecture) -> int:
    """The widest row of activations of a token."""
    halves = 1 + a.gated
    widest = max(halves * a.ffn, halves * a.dense_ffn, halves * a.shared_ffn, a.row)
    return max(widest, a.heads * a.head_size) if a.latent is not None else widest


def _check(architecture: Architecture) -> None:
    if architecture.experts and (
        architecture.parallel
        or architecture.norm_after
        or architecture.residual_scale != 1
        or architecture.activation != "silu"
    ):
        raise UnknownArchitecture("experts with SiLU in a block of two halves, added as they are, expected")
    a = architecture
    if a.axes and (sum(a.axes) != a.head_size // 2 or len(a.axes) != MOST_AXES or a.experts or a.parallel):
        raise UnknownArchitecture(
            f"{MOST_AXES} axes of places that turn the {a.head_size // 2} pairs of a head, in blocks of two halves "
            f"without experts, expected, got axes of {', '.join(map(str, a.axes))}"
        )
    if a.axes and a.encoded:
        raise UnknownArchitecture("axes of places or encoded rows expected, got both")
    if architecture.rope_scaling is not None and architecture.rope_scaling.kind not in ROPE_SCALINGS:
        raise UnknownArchitecture(
            f'rope scaling "{architecture.rope_scaling.kind}" is not known; llama3, linear and yarn are'
        )


# --- weights -----------------------------------------------------------------------------------------------


def _blobs(source: SourceModel, a: Architecture, weights: WeightFormat) -> dict[str, BlobPlan]:
    """The plan of each blob, by the unit it is made for; a tied head lies in that of the embedding."""
    embed = StoredParts(source, weights)
    embed.table("embed", a.vocab, a.hidden)
    head = embed if a.tied_embedding else StoredParts(source, weights)
    if a.norm_last:
        _norm(head, a, "norm", "head.norm")
    if not a.tied_embedding:
        head.table("head", a.vocab, a.hidden)
    if a.logit_bias:
        head.vector("logits", [("head.bias", a.vocab)])
    plans = {"embed": embed.plan()} | ({} if a.tied_embedding else {"head": head.plan()})
    for block in range(a.blocks):
        attn = StoredParts(source, weights)
        if a.positions and not block:
            attn.matrix("positions", "embed.positions", a.positions, a.hidden)
        if a.embed_norm and not block:
            _norm(attn, a, "embed_norm", "embed.norm")
        if a.buckets:
            attn.matrix("relative", "embed.relative", a.buckets, a.heads)
        _attn_parts(attn, a, block)
        if a.parallel:
            _ffn_parts(attn, a, block)
        plans[f"attn.{block}"] = attn.plan()
        if a.encoded:
            cross = StoredParts(source, weights)
            _cross_parts(cross, a, block)
            plans[f"cross.{block}"] = cross.plan()
        for part in a.parts(block):
            ffn = StoredParts(source, weights)
            _ffn_parts(ffn, a, block, part)
            plans[_ffn_name(a, block, part)] = ffn.plan()
    return plans


def _norm(blob: StoredParts, a: Architecture, name: str, source: str) -> None:
    blob.vector(name, [(source, a.hidden)])
    if a.norm_bias:
        blob.vector(f"{name}.bias", [(f"{source}_bias", a.hidden)])


def _attn_parts(blob: StoredParts, a: Architecture, block: int) -> None:
    prefix = f"attn.{block}"
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    sizes = (("q", queries), ("k", keys), ("v", keys))
    if a.norm_before or a.norm_sum:
        _norm(blob, a, "norm", f"{prefix}.norm")
    if a.latent is not None:
        _latent_parts(blob, a, a.latent, prefix)
        return
    blob.linear("qkv", [(f"{prefix}.{part}", rows) for part, rows in sizes], a.hidden)
    if a.qkv_bias:
        blob.vector("qkv.bias", [(f"{prefix}.{part}_bias", rows) for part, rows in sizes])
    if a.qk_norm:
        widths = (a.head_size, a.head_size) if a.head_norm == "head" else (queries, keys)
        blob.vector("q_norm", [(f"{prefix}.q_norm", widths[0])])
        blob.vector("k_norm", [(f"{prefix}.k_norm", widths[1])])
    if a.sinks:
        blob.vector("sinks", [(f"{prefix}.sinks", a.heads)])
    blob.linear("o", [(f"{prefix}.o", a.hidden)], queries)
    if a.o_bias:
        blob.vector("o.bias", [(f"{prefix}.o_bias", a.hidden)])
    if a.norm_after:
        _norm(blob, a, "after", f"{prefix}.after")


def _cross_parts(blob: StoredParts, a: Architecture, block: int) -> None:
    prefix, width = f"cross.{block}", a.heads * a.head_size
    _norm(blob, a, "norm", f"{prefix}.norm")
    for name, parts in (("q", ("q",)), ("kv", ("k", "v"))):
        blob.linear(name, [(f"{prefix}.{part}", width) for part in parts], a.hidden)
        if a.qkv_bias:
            blob.vector(f"{name}.bias", [(f"{prefix}.{part}_bias", width) for part in parts])
    blob.linear("o", [(f"{prefix}.o", a.hidden)], width)
    if a.o_bias:
        blob.vector("o.bias", [(f"{prefix}.o_bias", a.hidden)])


def _ffn_name(a: Architecture, block: int, part: int) -> str:
    """What the unit of a block's feed-forward is called; `part`: of those that its experts are divided among."""
    return f"ffn.{block}" if len(a.parts(block)) == 1 else f"ffn.{block}.{part}"


def _ffn_parts(blob: StoredParts, a: Architecture, block: int, part: int = 0) -> None:
    a = a.of_block(block)
    prefix = f"ffn.{block}"
    own = "ffn_" if a.parallel else ""  # one blob has the tensors of both halves
    if (a.norm_before or a.norm_sum) and not a.one_norm:
        _norm(blob, a, f"{own}norm", f"{prefix}.norm")
    if a.experts:
        _expert_parts(blob, a, prefix, part)
        return
    inner = ("gate", "up") if a.gated else ("up",)
    name = "_".join(inner)
    blob.linear(name, [(f"{prefix}.{part}", a.ffn) for part in inner], a.hidden)
    if a.ffn_bias:
        blob.vector(f"{name}.bias", [(f"{prefix}.{part}_bias", a.ffn) for part in inner])
    blob.linear("down", [(f"{prefix}.down", a.hidden)], a.ffn)
    if a.ffn_bias:
        blob.vector("down.bias", [(f"{prefix}.down_bias", a.hidden)])
    if a.norm_after:
        _norm(blob, a, f"{own}after", f"{prefix}.after")


def _latent_parts(blob: StoredParts, a: Architecture, latent: Latent, prefix: str) -> None:
    queries = a.heads * (latent.plain + a.rope_dims)
    first = ("q_a", latent.query_rank) if latent.query_rank else ("q", queries)
    parts = (first, ("kv_a", latent.rank + a.rope_dims))
    blob.linear("q_kv", [(f"{prefix}.{part}", rows) for part, rows in parts], a.hidden)
    if latent.query_rank:
        blob.vector("q_norm", [(f"{prefix}.q_a_norm", latent.query_rank)])
        blob.linear("q_b", [(f"{prefix}.q_b", queries)], latent.query_rank)
    blob.vector("kv_norm", [(f"{prefix}.kv_a_norm", latent.rank)])
    for part, rows in (("k_b", latent.plain), ("v_b", latent.value)):
        blob.matrices(part, f"{prefix}.{part}", a.heads, rows, latent.rank)
    blob.linear("o", [(f"{prefix}.o", a.hidden)], a.heads * latent.value)


def _expert_parts(blob: StoredParts, a: Architecture, prefix: str, part: int) -> None:
    """Router and shared expert, then one expert after the other: each is one run of bytes."""
    blob.plain("router", [(f"{prefix}.router", a.experts)], a.hidden)
    if a.router_bias:
        blob.vector("router.bias", [(f"{prefix}.router_bias", a.experts)])
    if a.routing.corrected:
        blob.vector("router.correction", [(f"{prefix}.router_correction", a.experts)])
    if a.shared_ffn and not part:
        if a.shared_gated:
            blob.plain("shared.share", [(f"{prefix}.shared_share", 1)], a.hidden)
        shared = [(f"{prefix}.shared_{each}", a.shared_ffn) for each in ("gate", "up")]
        blob.linear("shared.gate_up", shared, a.hidden)
        blob.linear("shared.down", [(f"{prefix}.shared_down", a.hidden)], a.shared_ffn)
    for place, expert in enumerate(a.experts_of(part)):
        both = [(f"{prefix}.{each}_e{expert}", a.ffn) for each in ("gate", "up")]
        blob.linear(f"experts.{place}.gate_up", both, a.hidden)
        blob.linear(f"experts.{place}.down", [(f"{prefix}.down_e{expert}", a.hidden)], a.ffn)
        if a.expert_bias:
            biases = [(f"{prefix}.{each}_bias_e{expert}", a.ffn) for each in ("gate", "up")]
            blob.vector(f"experts.{place}.gate_up.bias", biases)
            blob.vector(f"experts.{place}.down.bias", [(f"{prefix}.down_bias_e{expert}", a.hidden)])


# --- units -------------------------------------------------------------------------------------------------


def _units(a: Architecture) -> list[UnitSource]:
    units = [UnitSource("embed", embed_graph(a), "embed")]
    parts = range(0 if a.parallel else a.expert_units)
    ffn = [ffn_graph(a, part) for part in parts]
    dense = {block: ffn_graph(a.of_block(block)) for block in sorted(a.dense)}
    unused = a.experts - a.experts_chosen
    idle = [3 * a.hidden * a.ffn * len(a.experts_of(part)) * unused // max(1, a.experts) for part in parts]
    cross = cross_graph(a) if a.encoded else b""
    for block in range(a.blocks):
        kind = a.kind(block)
        own = KvState(a.kv_heads, kernel_head_size(a.head_size), kind.window, a.latent is not None)
        kv: tuple[KvState, ...] = (own,)
        if a.marked and not block:
            kv += (KvState(1, kernel_head_size(MARK_VALUES), None),)
        graph = (block_graph if a.parallel else attn_graph)(a, kind, not block)
        units.append(UnitSource(f"attn.{block}", graph, f"attn.{block}", kv))
        if a.encoded:
            looked = (KvState(a.heads, kernel_head_size(a.head_size), None),)
            units.append(UnitSource(f"cross.{block}", cross, f"cross.{block}", looked))
        for part in a.parts(block):
            name = _ffn_name(a, block, part)
            if block in dense:
                units.append(UnitSource(name, dense[block], name))
            else:
                units.append(UnitSource(name, ffn[part], name, idle_params=idle[part]))
    return [*units, UnitSource("head", head_graph(a), "embed" if a.tied_embedding else "head")]
