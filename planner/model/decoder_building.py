"""How the units of a decoder get into a store: their graphs, the blobs of their weights, and the manifest."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import onnx

from planner.errors import CorruptModel, CorruptStore
from planner.model.blob_plan import BlobPlan
from planner.model.blob_writer import put_blobs
from planner.model.checked_fields import StoredTensor
from planner.model.graph_manifest import KvState
from planner.model.lowering import EXPERT_PARTS, make_graphs
from planner.model.manifest import (
    KvPair,
    Manifest,
    ManifestUnit,
    Sight,
    decode_manifest,
    encode_manifest,
)
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.source_text import SourceText
from planner.model.sources import TokenizerSource
from planner.model.speech import Speech
from planner.model.store import PIECE_BYTES, BlobRef, Store
from planner.model.units import Progress, params_of, resident_bytes
from planner.types import UnitKind, WeightFormat

_NO_HASH: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class UnitSource:
    """One unit before it is stored. `graph`: ONNX, as planner.importers.unit_graphs writes it. `blob`: which of the
    blobs has its tensors; of that, the unit gets those that its graph names. `kv`: what it keeps for a session.
    `idle_params`: how many of its weights a token is not multiplied with.
    """

    name: str
    graph: bytes
    blob: str
    kv: tuple[KvState, ...] = ()
    idle_params: int = 0


@dataclass(frozen=True, slots=True)
class DecoderSource:
    """A decoder before it is stored; numbers as in planner.model.manifest. `blobs`: by a name of the importer's own,
    what a blob will hold. The first unit looks tokens up, the last makes logits.
    """

    name: str
    weights: WeightFormat
    vocab: int
    hidden: int
    context: int
    scratch: int
    rotary: tuple[tuple[float, ...], ...]
    tokenizer: TokenizerSource
    sampling: SamplingDefaults | None
    blobs: Mapping[str, BlobPlan]
    units: Sequence[UnitSource]
    speech: Speech | None = None
    sight: Sight | None = None
    source: SourceText | None = None


def build_decoder(source: DecoderSource, store: Store, progress: Progress | None = None) -> str:
    """Puts graphs, weights, tokenizer and manifest into `store`; returns the model id.

    `progress(done, total)` counts bytes of weights; it is called from several threads, one at a time. Computes on every
    core, a few megabytes of each blob at once. Raises ModelError, also for graphs that no peer runs, or StoreError.
    """
    unknown = {name: _unknown(plan.bytes) for name, plan in source.blobs.items()}
    _check(_manifest(source, unknown, {unit.graph: _unknown(len(unit.graph)) for unit in source.units}))
    with tempfile.TemporaryDirectory() as folder:  # a full disk later leaves nothing of this in the store
        _check_graphs(source, unknown, Store(Path(folder)))
    refs = dict(zip(source.blobs, put_blobs(store, [*source.blobs.values()], progress), strict=True))
    graphs = {unit.graph: store.put_blob([unit.graph]) for unit in source.units}
    tokenizer = store.put_blob([source.tokenizer.tokenizer_json])
    manifest = replace(_manifest(source, refs, graphs), tokenizer=tokenizer)
    return store.put_manifest(encode_manifest(manifest))


def _check_graphs(source: DecoderSource, refs: Mapping[str, BlobRef], aside: Store) -> None:
    """Raises CorruptModel for graphs that no peer runs."""
    graphs = {unit.graph: aside.put_blob([unit.graph]) for unit in source.units}
    planned = _manifest(source, refs, graphs)
    try:
        make_graphs(planned, aside, 0, len(planned.units), "cpu")
    except CorruptStore as error:
        raise CorruptModel(f"{source.name} cannot be kept: {error}") from error


def _manifest(
    source: DecoderSource, refs: Mapping[str, BlobRef], graphs: Mapping[bytes, BlobRef]
) -> Manifest:
    """What is stored of `source` with these blobs; the tokenizer's blob has only its size."""
    units: list[ManifestUnit] = []
    pairs = 0
    for place, unit in enumerate(source.units):
        last = place == len(source.units) - 1
        kind: UnitKind = "attn" if unit.kv else "ffn"
        kind = "embed" if not place else "head" if last else kind
        tensors = _named(unit.graph, source.blobs[unit.blob].tensors)
        params = params_of(tensors)
        units.append(
            ManifestUnit(
                name=unit.name,
                kind=kind,
                graph=graphs[unit.graph],
                blob=refs[unit.blob],
                tensors=tensors,
                kv=tuple(
                    KvPair(number, each.heads, each.head_size, each.window, each.shared)
                    for number, each in enumerate(unit.kv, pairs)
                ),
                params=params,
                flops_per_token=0 if kind == "embed" else 2 * (params - unit.idle_params),
                out_bytes_per_token=4 if last else 4 * source.hidden,
                resident_bytes=resident_bytes(kind, tensors),
            )
        )
        pairs += len(unit.kv)
    tokenizer = source.tokenizer
    return Manifest(
        name=source.name,
        weights=source.weights,
        vocab=source.vocab,
        hidden=source.hidden,
        context=source.context,
        scratch=source.scratch,
        rotary=source.rotary,
        tokenizer=_unknown(len(tokenizer.tokenizer_json)),
        chat_template=tokenizer.chat_template,
        bos_token=tokenizer.bos_token,
        end_tokens=tokenizer.end_tokens,
        add_bos=tokenizer.add_bos,
        units=tuple(units),
        sampling=source.sampling,
        speech=source.speech,
        sight=source.sight,
        source=source.source,
    )


def _named(graph: bytes, tensors: Sequence[StoredTensor]) -> tuple[StoredTensor, ...]:
    """The tensors that a graph names, directly or as the stored form of a matrix."""
    nodes = onnx.ModelProto.FromString(graph).graph.node
    direct = {name for node in nodes for name in node.input}
    weights: set[str] = set()
    for node in nodes:
        facts = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        if "weight" in facts:
            name = facts["weight"].decode()
            weights.update(
                {name}
                if "count" not in facts
                else {f"{name}.{expert}.{part}" for expert in range(facts["count"]) for part in EXPERT_PARTS}
            )
    return tuple(
        tensor for tensor in tensors if tensor.name in direct or tensor.name.rpartition(".")[0] in weights
    )


def _unknown(size: int) -> BlobRef:
    """A blob that is not there yet."""
    return BlobRef(_NO_HASH, size, (_NO_HASH,) * -(-size // PIECE_BYTES))


def _check(manifest: Manifest) -> None:
    """Raises CorruptModel for what no peer would read again, before anything is written."""
    try:
        decode_manifest(encode_manifest(manifest))
    except (CorruptStore, UnicodeEncodeError) as error:
        raise CorruptModel(f"{manifest.name} cannot be kept: {error}") from error
