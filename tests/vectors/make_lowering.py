"""Writes lowering.json, which the TypeScript suite replays: what a tab lowers and unpacks equals what planner/ does,
and what one language refuses the other one refuses, too.

Run it after a change of planner/model/lowering.py, decoder.py or units.py. Weights are made up, from a fixed seed, of
shapes that are as small as what is shown allows: WIDE where a row has several blocks of weights and one block of the
decoder follows another, SMALL elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from planner.errors import CorruptStore
from planner.importers.architecture import BlockKind, Latent, Routing, Tempering
from planner.importers.decoder_units import decoder_source
from planner.importers.unit_graphs import INPUT, UnitGraph
from planner.model.decoder_building import DecoderSource, UnitSource, build_decoder
from planner.model.graph_manifest import KvState
from planner.model.kv_window import window_of
from planner.model.lowering import make_graphs, rotary_tables
from planner.model.manifest import (
    ManifestUnit,
    decode_manifest,
    encode_manifest,
    packed_bytes,
    wide_bytes,
)
from planner.model.sources import BlockQuantized
from planner.model.store import BlobRef, Store
from planner.model.units import StoredParts
from planner.types import WeightFormat
from tests.peer.made_up_models import MadeUpModel, MadeUpTensor, small_architecture

SMALL: dict[str, object] = {"vocab": 20, "hidden": 32, "ffn": 32, "heads": 2, "kv_heads": 1, "blocks": 1}
WIDE: dict[str, object] = {"hidden": 64, "heads": 4, "kv_heads": 2, "blocks": 2}
CASES: dict[str, tuple[WeightFormat, dict[str, object]]] = {
    "8bit": ("8bit", WIDE),
    "8bit, blocks that are not whole, own head": (
        "8bit",
        {"hidden": 48, "head_size": 12, "rope_dims": 12, "tied_embedding": False},
    ),
    "4bit, bias": ("4bit", {**WIDE, "qkv_bias": True}),
    "f32, normed heads": ("f32", {"qk_norm": True}),
    "f16": ("f16", {}),
    "f32, positions, layer norms": (
        "f32",
        {
            "positions": 128,
            "norm": "layer",
            "norm_bias": True,
            "gated": False,
            "activation": "gelu_tanh",
            "ffn_bias": True,
            "o_bias": True,
            "qkv_bias": True,
            "pattern": (BlockKind(table=-1),),
        },
    ),
    "8bit, encoded rows, positions": (
        "8bit",
        {
            "encoded": 24,
            "positions": 64,
            "norm": "layer",
            "norm_bias": True,
            "gated": False,
            "activation": "gelu",
            "ffn_bias": True,
            "o_bias": True,
            "qkv_bias": True,
            "head_size": 10,
            "rope_dims": 10,
            "pattern": (BlockKind(table=-1),),
        },
    ),
    "f32, rows with marks, distances, norms of sums": (
        "f32",
        {
            "encoded": 24,
            "marked": True,
            "positions": 64,
            "buckets": 8,
            "far": 20,
            "norm": "layer",
            "norm_bias": True,
            "norm_before": False,
            "norm_sum": True,
            "norm_last": False,
            "embed_norm": True,
            "logit_bias": True,
            "gated": False,
            "activation": "relu",
            "ffn_bias": True,
            "o_bias": True,
            "qkv_bias": True,
            "pattern": (BlockKind(table=-1),),
        },
    ),
    "8bit, experts": (
        "8bit",
        {"experts": 4, "experts_chosen": 2, "experts_normed": True, "shared_ffn": 40, "hidden": 48},
    ),
    "8bit, experts in units": (
        "8bit",
        {"experts": 3, "experts_chosen": 2, "shared_ffn": 40, "expert_units": 2, "blocks": 2},
    ),
    "8bit, sinks, limited experts with biases": (
        "8bit",
        {
            "experts": 3,
            "experts_chosen": 2,
            "sinks": True,
            "router_bias": True,
            "expert_bias": True,
            "expert_limit": 7.0,
            "expert_alpha": 1.702,
            "qkv_bias": True,
            "o_bias": True,
            "blocks": 2,
            "pattern": (BlockKind(16), BlockKind()),
        },
    ),
    "f32, sinks of normed heads": (
        "f32",
        {"sinks": True, "qk_norm": True, "pattern": (BlockKind(table=-1),)},
    ),
    "8bit, latent attention, a dense block, experts in groups": (
        "8bit",
        {
            "latent": Latent(rank=24, plain=20, value=12, query_rank=40, epsilon=1e-6),
            "kv_heads": 1,
            "head_size": 40,
            "rope_amplitude": 1.25,
            "attention_scale": 0.2,
            "experts": 4,
            "experts_chosen": 2,
            "experts_normed": True,
            "routing": Routing("sigmoid", 2, 1, True, 2.5),
            "shared_ffn": 40,
            "shared_gated": False,
            "dense": frozenset((0,)),
            "dense_ffn": 48,
        },
    ),
    "f32, chunks, temperatures, experts of scaled rows": (
        "f32",
        {
            "unit_heads": True,
            "tempering": Tempering(16, 0.5),
            "pattern": (BlockKind(16, chunked=True), BlockKind(table=-1)),
            "experts": 3,
            "experts_chosen": 1,
            "routing": Routing("sigmoid", on_input=True),
            "shared_ffn": 40,
            "shared_gated": False,
        },
    ),
    "4bit, experts": ("4bit", {"experts": 3, "experts_chosen": 1}),
    "8bit, side by side, two tables": (
        "8bit",
        {
            "parallel": True,
            "norm_after": True,
            "rope_base_1": 100.0,
            "rope_dims": 8,
            "rope_amplitude": 1.25,
            "qk_norm": True,
            "head_norm": "row",
            "logit_softcap": 30.0,
            "embedding_scale": 8.0,
            "blocks": 2,
            "pattern": (BlockKind(8, 1), BlockKind()),
        },
    ),
    "8bit, places of three axes": ("8bit", {"axes": (2, 3, 3), "qkv_bias": True, "hidden": 48}),
    "f32, places of three axes in normed heads that are filled up": (
        "f32",
        {"axes": (1, 2, 2), "qk_norm": True, "head_size": 10, "rope_dims": 10},
    ),
    "f32, normed heads that are filled up": ("f32", {"qk_norm": True, "head_size": 10, "rope_dims": 10}),
}
PROVIDERS = ("wasm", "webgpu")
Edit = Callable[[onnx.ModelProto], None]


class MinimumTensor(MadeUpTensor):
    """As Q4_1 has it: 4 bits, with a number that is added to each block."""

    def blocks(self) -> BlockQuantized:
        rows, columns = self.shape
        rng = np.random.default_rng([rows, columns])
        d, m = (rng.standard_normal((rows, columns // 32)).astype(np.float32) for _ in "dm")
        return BlockQuantized(4, rng.integers(0, 16, (rows, columns), np.uint8), d, m)

    def rows(self, first: int, stop: int) -> MinimumTensor:
        return MinimumTensor(self.values[first:stop])


class OddParts:
    """Random tensors of the shapes that are asked for; "o" is of 4 bits with a minimum."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def tensor(self, name: str) -> MadeUpTensor:
        rng = np.random.default_rng([7, *name.encode()])
        kind = MinimumTensor if name == "o" else MadeUpTensor
        return kind(rng.standard_normal(self._shapes[name], np.float32))


def odd() -> DecoderSource:
    """A decoder that uses all that the operators can say: work behind the embedding, a parallel block with two states
    and heads of other sizes, no rotary in one of them, a window, soft caps, biases, a head with work behind it.
    """
    hidden, vocab = 64, 50
    shapes: dict[str, tuple[int, ...]] = {
        "embed.weight": (vocab, 32),
        "widen": (hidden, 32),
        "norm": (hidden,),
        "qkv": (4 * 16 + 2 * 2 * 16, hidden),
        "qkv.bias": (128,),
        "q": (2 * 10, hidden),
        "kv": (2 * 10, hidden),
        "o": (hidden, 64),
        "o2": (hidden, 20),
        "up": (96, hidden),
        "down": (hidden, 96),
        "down.bias": (hidden,),
        "head.weight": (vocab, hidden),
        "head.bias": (vocab,),
    }
    source = OddParts(shapes)

    def blob(*names: str, weights: WeightFormat = "8bit") -> Any:
        made = StoredParts(source, weights)
        for name in names:
            if len(shapes[name]) == 1:
                made.vector(name, [(name, shapes[name][0])])
            elif name.endswith(".weight"):
                made.table(name.removesuffix(".weight"), *shapes[name])
            else:
                made.linear(name, [(name, shapes[name][0])], shapes[name][1])
        return made.plan()

    return DecoderSource(
        name="odd",
        weights="8bit",
        vocab=vocab,
        hidden=hidden,
        context=256,
        scratch=128,
        rotary=(tuple(10000.0 ** (-i / 8) for i in range(8)), (1.0, 0.5, 0.25, 0.125, 0.0625, 0.0, 0.0, 0.0)),
        tokenizer=MadeUpModel(small_architecture(), {}).tokenizer,
        sampling=None,
        blobs={
            "embed": blob("embed.weight", "widen", weights="f16"),
            "parallel": blob("norm", "qkv", "qkv.bias", "q", "kv", "o", "o2", "up", "down", "down.bias"),
            "late": blob("norm", "qkv", "qkv.bias", "o", weights="4bit"),
            "mlp": blob("norm", "up", "down", "down.bias", weights="f16"),
            "head": blob("norm", "head.weight", "head.bias"),
        },
        units=(
            UnitSource("embed", odd_embed(vocab, hidden), "embed"),
            UnitSource(
                "block.0", odd_parallel(hidden), "parallel", (KvState(2, 16), KvState(1, 16, window=8))
            ),
            UnitSource("mlp", odd_mlp(hidden), "mlp"),
            UnitSource("late", odd_late(hidden), "late", (KvState(2, 16, window=5),)),
            UnitSource("head", odd_head(vocab, hidden), "head"),
        ),
    )


def odd_embed(vocab: int, hidden: int) -> bytes:
    graph = UnitGraph()
    rows = graph.linear(graph.embedding("embed", vocab, 32), "widen", hidden, 32)
    return graph.finish(graph.one("Mul", rows, graph.constant(np.array(8.0, np.float32))))


def odd_parallel(hidden: int) -> bytes:
    graph = UnitGraph()
    normed = graph.norm(INPUT, "norm", 1e-6)
    qkv = graph.linear(normed, "qkv", 128, hidden, bias="qkv.bias")
    first = graph.attention(qkv, heads=4, kv_heads=2, head_size=16, softcap=30.0, scale=0.5)
    q = graph.linear(normed, "q", 20, hidden)
    k, v = graph.add("Split", graph.linear(normed, "kv", 20, hidden), graph.sizes(10, 10), outputs=2, axis=-1)
    second = graph.attention(q, k, v, heads=2, kv_heads=1, head_size=10, state=1, rotary=1)
    inner = graph.one("Gelu", graph.linear(normed, "up", 96, hidden), approximate="tanh")
    both = graph.one("Add", graph.linear(first, "o", hidden, 64), graph.linear(second, "o2", hidden, 20))
    all_of_it = graph.one("Add", both, graph.linear(inner, "down", hidden, 96, bias="down.bias"))
    return graph.finish(graph.one("Add", INPUT, all_of_it))


def odd_mlp(hidden: int) -> bytes:
    graph = UnitGraph()
    inner = graph.one("Relu", graph.linear(graph.norm(INPUT, "norm", 1e-6), "up", 96, hidden))
    return graph.finish(graph.one("Add", INPUT, graph.linear(inner, "down", hidden, 96, bias="down.bias")))


def odd_late(hidden: int) -> bytes:
    graph = UnitGraph()
    qkv = graph.linear(graph.norm(INPUT, "norm", 1e-6), "qkv", 128, hidden, bias="qkv.bias")
    attended = graph.attention(qkv, heads=4, kv_heads=2, head_size=16, rotary=-1)
    return graph.finish(graph.one("Add", INPUT, graph.linear(attended, "o", hidden, 64)))


def odd_head(vocab: int, hidden: int) -> bytes:
    graph = UnitGraph()
    cap = graph.constant(np.array(20.0, np.float32))
    logits = graph.linear(graph.norm(INPUT, "norm", 1e-6), "head", vocab, hidden, bias="head.bias")
    return graph.finish(graph.one("Mul", graph.one("Tanh", graph.one("Div", logits, cap)), cap))


def make() -> dict[str, Any]:
    cases = []
    for name, (weights, changes) in CASES.items():
        sizes = {**SMALL, **changes}
        source = decoder_source(MadeUpModel(small_architecture(**sizes), {}), weights)
        last = len(source.units)
        runs = ((0, last), (1, 3), (2, last), (last - 1, last), (0, 1))
        cases.append({"name": name, **_case(source, runs)})
    cases.append({"name": "odd", **_case(odd(), ((0, 5), (0, 1), (1, 2), (2, 4), (3, 5)))})
    return {"cases": cases, "sliced": _sliced(), "refused": [*_refused()], "windows": [*_windows()]}


def _windows() -> Iterator[dict[str, Any]]:
    """What sessions keep where a window is looked at."""
    for states in (((16, 5), (64, None)), ((64, 512),), ((48, 100),), ((256, 4096), (256, 1))):
        window = window_of(states)
        assert window is not None
        lengths = [0, 1, window.kept, window.kept + window.block, window.capacity, 3 * window.capacity + 7]
        yield {
            "states": states,
            "tokens": window.tokens,
            "block": window.block,
            "capacity": window.capacity,
            "lengths": [
                {
                    "length": length,
                    "first": window.first_kept(length),
                    "holds": [
                        window.holds(first, length) for first in range(0, 4 * window.block, window.block)
                    ],
                }
                for length in lengths
            ],
        }


def _sliced() -> dict[str, Any]:
    """A head so large that a tab's graph has it in slices."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        source = decoder_source(MadeUpModel(small_architecture(vocab=70_000, ffn=64), {}), "4bit")
        manifest = decode_manifest(store.manifest_bytes(build_decoder(source, store)))
        last = len(manifest.units)
        head = make_graphs(manifest, store, last - 1, last, "wasm").head
        assert head is not None
        assert b"Concat" in head
        return {
            "manifest": encode_manifest(manifest).decode(),
            "blobs": _blobs(store, manifest.graphs()),
            "head": _hash(head),
        }


def _case(source: DecoderSource, runs: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        manifest = decode_manifest(store.manifest_bytes(build_decoder(source, store)))
        graphs = []
        for first, stop in runs:
            for provider in PROVIDERS:
                try:
                    made = make_graphs(manifest, store, first, stop, provider)
                except CorruptStore:  # what a GPU does not compute
                    graphs.append({"first": first, "stop": stop, "provider": provider, "refused": True})
                    continue
                parts = {"embed": made.embed, "body": made.body, "head": made.head}
                hashes = {part: _hash(data) for part, data in parts.items()}
                graphs.append({"first": first, "stop": stop, "provider": provider, **hashes})
        tables = [rotary_tables(frequencies, 9) for frequencies in manifest.rotary]
        return {
            "manifest": encode_manifest(manifest).decode(),
            "graphs": graphs,
            "rotary": [{"cos": _encoded(cos), "sin": _encoded(sin)} for cos, sin in tables],
            "blobs": _blobs(store, manifest.blobs(0, len(manifest.units))),
            "held": [
                {"unit": unit.name, "wasm": wide_bytes(unit), "webgpu": packed_bytes(unit)}
                for unit in manifest.units
            ],
            "units": [
                {
                    "name": unit.name,
                    "kind": unit.kind,
                    "state": list(unit.state),
                    "kv_bytes_per_token": unit.kv_bytes_per_token,
                    "kv_positions": unit.kv_positions(manifest.window),
                    "flops_per_token": unit.flops_per_token,
                    "out_bytes_per_token": unit.out_bytes_per_token,
                }
                for unit in manifest.units
            ],
            "linears": [
                {"unit": unit.name, "name": name, "w": hashlib.sha256(matrix.tobytes()).hexdigest()}
                for unit in manifest.units
                for name, matrix in linears(unit, store).items()
            ],
        }


def _node(model: onnx.ModelProto, operator: str) -> onnx.NodeProto:
    node: onnx.NodeProto = next(node for node in model.graph.node if node.op_type == operator)
    return node


def _set(operator: str, name: str, value: Any) -> Edit:
    """Gives an attribute another value, or takes it away."""

    def edit(model: onnx.ModelProto) -> None:
        node = _node(model, operator)
        kept = [each for each in node.attribute if each.name != name]
        del node.attribute[:]
        node.attribute.extend(kept + ([] if value is None else [helper.make_attribute(name, value)]))

    return edit


def _opset(domain: str, version: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        kept = [each for each in model.opset_import if each.domain != domain]
        del model.opset_import[:]
        model.opset_import.extend(kept)
        model.opset_import.add(domain=domain, version=version)

    return edit


def _renamed(operator: str, domain: str, becomes: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node = _node(model, operator)
        node.domain, node.op_type = domain, becomes

    return edit


def _more_inputs(operator: str, *names: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == operator)
        node.input[:] = [node.input[0], *names]

    return edit


EDITS: dict[str, tuple[int, Edit]] = {  # by the unit of the odd decoder whose graph is changed
    "another opset": (2, _opset("", 20)),
    "a foreign domain": (2, _opset("org.somewhere", 1)),
    "an operator of ours that is not there": (2, _renamed("Relu", "shoal", "Relu")),
    "a domain that is not imported": (2, _renamed("Relu", "com.microsoft", "QuickGelu")),
    "an Embedding in the middle": (2, _renamed("Linear", "shoal", "Embedding")),
    "no Embedding": (0, _renamed("Embedding", "shoal", "Linear")),
    "an attribute of nobody": (2, _set("Linear", "family", "llama")),
    "no rows": (2, _set("Linear", "rows", None)),
    "rows of another type": (2, _set("Linear", "rows", 96.0)),
    "other rows": (2, _set("Linear", "rows", 95)),
    "other columns": (2, _set("Linear", "columns", 65)),
    "too many columns": (2, _set("Linear", "columns", 1 << 40)),
    "negative rows": (2, _set("Linear", "rows", -1)),
    "another weight": (2, _set("Linear", "weight", "gate")),
    "heads that do not fit": (3, _set("Attention", "heads", 3)),
    "no heads": (3, _set("Attention", "heads", 0)),
    "an odd head size": (3, _set("Attention", "head_size", 15)),
    "another head size": (3, _set("Attention", "head_size", 18)),
    "a state that is not there": (3, _set("Attention", "state", 1)),
    "a negative state": (3, _set("Attention", "state", -1)),
    "a state used twice": (1, _set("Attention", "state", 1)),
    "a rotary table that is not there": (3, _set("Attention", "rotary", 2)),
    "no rotary": (3, _set("Attention", "rotary", None)),
    "a scale that is not finite": (3, _set("Attention", "scale", float("nan"))),
    "a negative soft cap": (3, _set("Attention", "softcap", -1.0)),
    "sinks without a name": (3, _more_inputs("Attention", "", "", "")),
    "sinks of values alone": (3, _more_inputs("Attention", "t.0", "", "t.0")),
    "values that are keys, of a state with both": (3, _more_inputs("Attention", "t.1")),
    "chunks without a window": (1, _set("Attention", "chunk", 8)),
    "chunks that are not the window": (3, _set("Attention", "chunk", 4)),
    "a bias without a name": (3, _more_inputs("Attention", "", "", "t.0", "")),
    "a bias of a state with a window": (3, _more_inputs("Attention", "", "", "", "t.0")),
    "an input too many of an attention": (3, _more_inputs("Attention", "", "", "t.0", "t.0", "t.0")),
    "cached positions with attributes": (3, _renamed("Linear", "shoal", "Cached")),
    "experts without a count": (3, _renamed("Linear", "shoal", "Experts")),
    "positions with attributes": (3, _renamed("Linear", "shoal", "Positions")),
    "rotary without a table": (3, _renamed("Attention", "shoal", "Rotary")),
    "another vocabulary": (0, _set("Embedding", "rows", 49)),
}


def _refused() -> Iterator[dict[str, Any]]:
    """Graphs that no peer lowers, for a unit of the odd decoder, whose manifest with them decodes."""
    source = odd()
    for name, (place, edit) in EDITS.items():
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            whole = decode_manifest(store.manifest_bytes(build_decoder(source, store)))
            model = onnx.ModelProto.FromString(source.units[place].graph)
            edit(model)
            graph = store.put_blob([model.SerializeToString(deterministic=True)])
            units = list(whole.units)
            units[place] = replace(units[place], graph=graph)
            manifest = decode_manifest(encode_manifest(replace(whole, units=tuple(units))))
            try:
                make_graphs(manifest, store, place, place + 1, "wasm")
            except CorruptStore:
                yield {"name": name, "unit": place, "graph": base64.b64encode(_read(store, graph)).decode()}
            else:
                raise AssertionError(f"{name} was not refused")


def linears(unit: ManifestUnit, store: Store) -> dict[str, np.ndarray[Any, Any]]:
    """Every linear of the unit (the embedding included) as float32, from its stored form."""
    graph = onnx.ModelProto.FromString(_read(store, unit.graph)).graph
    facts = [
        {each.name: helper.get_attribute_value(each) for each in node.attribute}
        for node in graph.node
        if node.op_type in ("Linear", "Embedding", "Experts")
    ]
    columns = {fact["weight"].decode(): fact["columns"] for fact in facts if "count" not in fact}
    for fact in facts:
        for expert in range(fact.get("count", 0)):
            name = f"{fact['weight'].decode()}.{expert}"
            columns |= {f"{name}.gate_up": fact["columns"], f"{name}.down": fact["rows"]}
    blob = _read(store, unit.blob)
    found = {}
    for linear, width in columns.items():
        parts = {
            one.name.rpartition(".")[2]: np.frombuffer(
                blob, {"f32": "<f4", "f16": "<f2", "u8": "u1"}[one.dtype], int(np.prod(one.shape)), one.offset
            ).reshape(one.shape)
            for one in unit.tensors
            if one.name.rpartition(".")[0] == linear
        }
        found[linear] = np.ascontiguousarray(_wide(parts)[:, :width])
    return found


def _wide(parts: dict[str, Any]) -> np.ndarray[Any, Any]:
    """In float64, where scale * (q - zero) is exact, then rounded once; the sum with a rest is rounded once, too."""
    if "w" in parts:
        plain: np.ndarray[Any, Any] = parts["w"].astype(np.float32)
        return plain
    scale = parts["scale"].astype(np.float64)
    if "q8" in parts:
        wide = scale[:, :, None] * (parts["q8"].astype(np.float64) - 128)
    else:
        rows, blocks = scale.shape
        q = np.stack([parts["q4"] & 15, parts["q4"] >> 4], axis=-1).reshape(rows, blocks, 32)
        zero = np.stack([parts["zero"] & 15, parts["zero"] >> 4], axis=-1).reshape(rows, -1)[:, :blocks]
        wide = scale[:, :, None] * (q.astype(np.float64) - zero[:, :, None])
        if "rest" in parts:
            wide = wide + parts["rest"].astype(np.float64)[:, :, None]
    made: np.ndarray[Any, Any] = wide.reshape(len(wide), -1).astype(np.float32)
    return made


def _blobs(store: Store, blobs: tuple[BlobRef, ...]) -> dict[str, str]:
    return {ref.sha256: base64.b64encode(_read(store, ref)).decode() for ref in blobs}


def _read(store: Store, ref: BlobRef) -> bytes:
    return store.blob_path(ref.sha256).read_bytes()


def _hash(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _encoded(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


if __name__ == "__main__":
    text = json.dumps(make(), indent=1, sort_keys=True) + "\n"
    Path(__file__).with_name("lowering.json").write_text(text, encoding="utf-8")
