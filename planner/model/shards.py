"""The ONNX graphs for a run of units: what is computed, with weights left in the blobs.

A shard has up to three parts that run one after another: the embedding (rows read from a blob, no graph), the
body (blocks) and the head (its own graph, so that it runs for the last position of a prompt only). Graphs
hold no weights: every initializer is external data at an offset of a blob, named by the blob's hash. The
float32 residual stream, and nothing else, crosses every unit border, so a cut changes no arithmetic.

Body: hidden f32 (batch, tokens, hidden), seqlens i32 (batch) = tokens in the cache after the step - 1, total
i32 (1), cos and sin f32 (positions, kernel_head_size/2), per attn unit key.i and value.i f32 (batch, kv_heads,
capacity, kernel_head_size), which are updated in place (bound as key.i.out, value.i.out too) -> hidden.out. Head:
hidden f32 (batch, hidden) -> logits f32 (batch, vocab).

The attention kernel takes heads of whole groups of 16 values. Others are filled up with zeros, each half of a head by
itself, because values of both halves rotate in pairs: no score and no sum changes. Only activations grow, not weights.

Browsers have no files, so for them (providers "wasm" and "webgpu") the location is "<unit>/<tensor>", from 0 on,
and the tab hands the bytes over when asked. On "wasm" every linear `name` is "<unit>/<name>.w", float32 (N, K),
whatever form is stored: the tab unpacks it, because WebAssembly has no fast kernel for packed weights. One of more
than SLICE_BYTES is several products, whose matrices are rows of that location: onnxruntime repacks a matrix while it
holds the original, and in WebAssembly what a loading shard once took is never given back. On
"webgpu" a float32 matrix (`.w`, `.rest`) is "<unit>/<tensor>.T", widened and transposed, because the GPU has no
product with a transposed one; packed weights are as stored.
web_peer/src/planner/shards.ts builds the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from planner.errors import CorruptStore
from planner.model.architecture import Architecture
from planner.model.compose import Blobs
from planner.model.manifest import DType, Manifest, ManifestUnit, StoredTensor
from planner.model.onnx_graph import MICROSOFT, Graph, Placed
from planner.model.units import BLOCK

ACCURACY_8BIT: Final = 4  # activations rounded to 8 bits per block: the only fast kernel for 8-bit weights
ACCURACY_4BIT: Final = (
    4  # as llama.cpp does; how rows of a batch keep equal bits, peer.runtime.arithmetic proves
)

HEAD_PART_BYTES: Final = 40 << 20  # a head is loaded in parts, for a vocabulary can outweigh everything else
HEAD_PART_ROWS: Final = 64  # parts end where the kernels' tiles do
SLICE_BYTES: Final = 16 << 20  # on "wasm"; float32

BROWSERS: Final[dict[str, Placed]] = {"wasm": "wide", "webgpu": "packed"}
ACCURACY_GPU: Final = 0  # float32 activations: a GPU multiplies them at no cost
ACCURACY_EXACT: Final = 0  # on a CPU fast for many tokens at once only

_ACCURACY: Final[dict[Placed, int]] = {"packed": ACCURACY_GPU, "exact": ACCURACY_EXACT}


@dataclass(frozen=True, slots=True)
class EmbedTable:
    """Rows of the embedding in a blob file: either `w` (f32 or f16), or `q8` with `scale`."""

    path: Path
    rows: int
    columns: int
    w: StoredTensor | None
    q8: StoredTensor | None
    scale: StoredTensor | None


@dataclass(frozen=True, slots=True)
class Shard:
    """Units [first, stop) of a model for one provider. `blocks`: the blocks whose attention (and KV cache) is
    here.
    """

    architecture: Architecture
    first: int
    stop: int
    provider: str
    blobs: Path  # folder that external data locations are relative to
    embed: EmbedTable | None
    body: bytes | None
    heads: tuple[bytes, ...]  # graphs for consecutive ranges of the vocabulary; empty without a head
    blocks: tuple[int, ...]
    weight_bytes: int
    kv_bytes_per_token: int


def make_shard(
    manifest: Manifest, blobs: Blobs, first: int, stop: int, provider: str = "cpu", *, exact: bool = False
) -> Shard:
    """Raises CorruptStore when a unit's tensors do not have the architecture's shapes, ValueError for an
    empty or foreign run.

    `exact`: packed weights are multiplied with activations that are not rounded, as tabs do. Not for browsers.
    """
    if not 0 <= first < stop <= len(manifest.units):
        raise ValueError(f"units [{first}, {stop}) expected inside [0, {len(manifest.units)})")
    units = manifest.units[first:stop]
    folder = blobs.blob_path(units[0].blob.sha256).parent
    body, _ = make_graphs(manifest, first, stop, provider, exact=exact)
    placed: Placed = "exact" if exact else "blobs"
    heads = _head_parts(units[-1], manifest.architecture, placed) if units[-1].kind == "head" else ()
    return Shard(
        architecture=manifest.architecture,
        first=first,
        stop=stop,
        provider=provider,
        blobs=folder,
        embed=_embed_table(units[0], manifest.architecture, blobs) if units[0].kind == "embed" else None,
        body=body,
        heads=heads,
        blocks=tuple(int(unit.name.partition(".")[2]) for unit in units if unit.kind == "attn"),
        weight_bytes=sum(unit.resident_bytes for unit in units),
        kv_bytes_per_token=sum(unit.kv_bytes_per_token for unit in units),
    )


def make_graphs(
    manifest: Manifest, first: int, stop: int, provider: str, *, exact: bool = False
) -> tuple[bytes | None, bytes | None]:
    """Body and head of units [first, stop), each None where the run has no such part. Raises CorruptStore."""
    units = manifest.units[first:stop]
    placed = BROWSERS.get(provider, "exact" if exact else "blobs")
    blocks = [unit for unit in units if unit.kind in ("attn", "ffn")]
    return (
        _body(blocks, manifest.architecture, placed) if blocks else None,
        _head(units[-1], manifest.architecture, placed) if units[-1].kind == "head" else None,
    )


def angles_of(architecture: Architecture) -> int:
    """How many angles a position has: one for two values of a head; what fills heads up does not turn."""
    return (architecture.rope_dims + architecture.kernel_head_size - architecture.head_size) // 2


def rotary_tables(
    architecture: Architecture, positions: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """cos and sin, each float32 (positions, angles), with the model's frequency scaling applied."""
    frequency = np.zeros(angles_of(architecture))
    frequency[: architecture.rope_dims // 2] = rotary_frequencies(architecture)
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequency
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotary_frequencies(architecture: Architecture) -> npt.NDArray[np.float64]:
    """By how much a position turns each of rope_dims/2 pairs, with the model's frequency scaling applied."""
    half = architecture.rope_dims // 2
    frequency: npt.NDArray[np.float64] = architecture.rope_base ** (-np.arange(half, dtype=np.float64) / half)
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


def _need(unit: ManifestUnit, name: str, dtype: DType, shape: tuple[int, ...]) -> StoredTensor:
    tensor = unit.tensor(name)
    if tensor is None or tensor.dtype != dtype or tensor.shape != shape:
        found = "none" if tensor is None else f"{tensor.dtype} {tensor.shape}"
        raise CorruptStore(
            f"unit {unit.name}, tensor {name}: {dtype} {shape} expected, got {found}; import the model again"
        )
    return tensor


def _norm(
    graph: Graph, prefix: str, unit: ManifestUnit, name: str, size: int, source: str, eps: float
) -> str:
    weight = graph.external(f"{prefix}.{name}", unit, _need(unit, name, "f32", (size,)))
    return graph.add(
        "SimplifiedLayerNormalization",
        [source, weight],
        f"{prefix}.{name}.out",
        axis=-1,
        epsilon=eps,
        stash_type=1,
    )


def _linear(
    graph: Graph, unit: ManifestUnit, name: str, rows: int, columns: int, source: str, bias: str = ""
) -> str:
    """`source` times the stored linear `name`; which form it has is seen from the tensors that exist."""
    output, prefix = f"{unit.name}.{name}.out", f"{unit.name}.{name}"
    blocks = -(-columns // BLOCK)
    whole = unit.tensor(f"{name}.w")
    if graph.placed == "wide":
        product = _wide_product(
            graph, unit, name, rows, columns, source, f"{output}.product" if bias else output
        )
        return graph.add("Add", [product, bias], output) if bias else product
    if whole is not None:
        weight = _matrix(graph, unit, name, rows, columns)
        product = graph.times(source, weight, f"{output}.product" if bias else output)
        return graph.add("Add", [product, bias], output) if bias else product
    scale = graph.external(f"{prefix}.scale", unit, _need(unit, f"{name}.scale", "f32", (rows, blocks)))
    bits, level, zero, rest = 8, ACCURACY_8BIT, "", None
    if unit.tensor(f"{name}.q4") is None:
        packed = _need(unit, f"{name}.q8", "u8", (rows, blocks, BLOCK))
    else:
        bits, level = 4, ACCURACY_4BIT
        packed = _need(unit, f"{name}.q4", "u8", (rows, blocks, BLOCK // 2))
        zero = graph.external(
            f"{prefix}.zero", unit, _need(unit, f"{name}.zero", "u8", (rows, -(-blocks // 2)))
        )
        if unit.tensor(f"{name}.rest") is not None:
            rest = _need(unit, f"{name}.rest", "f32", (rows, blocks))
    weight = graph.external(f"{prefix}.q{bits}", unit, packed)
    product = graph.add(
        "MatMulNBits",
        [source, weight, scale, zero, "", bias],
        output if rest is None else f"{output}.product",
        domain=MICROSOFT,
        K=columns,
        N=rows,
        bits=bits,
        block_size=BLOCK,
        accuracy_level=_ACCURACY.get(graph.placed, level),
    )
    if rest is None:
        return product
    sums = _block_sums(graph, source, columns)
    if graph.placed == "packed":
        restful = graph.made(f"{prefix}.rest", unit, f"{name}.rest.T", (blocks, rows))
    else:
        restful = graph.external(f"{prefix}.rest", unit, rest)
    correction = graph.times(sums, restful, f"{output}.rest")
    return graph.add("Add", [product, correction], output)


def _wide_product(
    graph: Graph, unit: ManifestUnit, name: str, rows: int, columns: int, source: str, output: str
) -> str:
    """`source` times the linear's float32 matrix, a slice of its rows at a time."""
    prefix, location = f"{unit.name}.{name}", f"{name}.w"
    most = max(SLICE_BYTES // (4 * columns) // HEAD_PART_ROWS, 1) * HEAD_PART_ROWS
    if rows <= most:
        return graph.times(source, graph.made(f"{prefix}.w", unit, location, (rows, columns)), output)
    slices = [
        graph.times(
            source,
            graph.made(f"{prefix}.w.{first}", unit, location, (min(most, rows - first), columns), first),
            f"{output}.{first}",
        )
        for first in range(0, rows, most)
    ]
    return graph.add("Concat", slices, output, axis=-1)


def _matrix(graph: Graph, unit: ManifestUnit, name: str, rows: int, columns: int) -> str:
    """The linear's weights as one float32 matrix (rows, columns)."""
    prefix = f"{unit.name}.{name}"
    if graph.placed == "packed":
        return graph.made(f"{prefix}.w", unit, f"{name}.w.T", (columns, rows))
    whole = unit.tensor(f"{name}.w")
    dtype: DType = "f16" if whole is not None and whole.dtype == "f16" else "f32"
    weight = graph.external(f"{prefix}.w", unit, _need(unit, f"{name}.w", dtype, (rows, columns)))
    if dtype == "f16":
        weight = graph.add("Cast", [weight], f"{prefix}.wide", to=TensorProto.FLOAT)
    return weight


def _block_sums(graph: Graph, source: str, columns: int) -> str:
    """Sums of each 32 columns, (batch, tokens, columns/32); exact sources have whole blocks only."""
    name = f"{source}.sums"
    if any(name in node.output for node in graph.nodes):
        return name
    shape = _shared(graph, f"blocks.shape.{columns}", np.array([0, 0, columns // BLOCK, BLOCK], np.int64))
    axis = _shared(graph, "blocks.axis", np.array([-1], np.int64))
    blocks = graph.add("Reshape", [source, shape], f"{source}.blocks")
    return graph.add("ReduceSum", [blocks, axis], name, keepdims=0)


def _body(units: list[ManifestUnit], a: Architecture, placed: Placed) -> bytes:
    graph = Graph(placed)
    hidden = "hidden"
    inputs = [
        _value("hidden", TensorProto.FLOAT, ["batch", "tokens", a.hidden]),
        _value("seqlens", TensorProto.INT32, ["batch"]),
        _value("total", TensorProto.INT32, [1]),
        _value("cos", TensorProto.FLOAT, ["positions", angles_of(a)]),
        _value("sin", TensorProto.FLOAT, ["positions", angles_of(a)]),
    ]
    outputs: list[onnx.ValueInfoProto] = []
    for unit in units:
        if unit.kind == "attn":
            branch = _attn(graph, unit, a, hidden)
            shape: tuple[int | str, ...] = ("batch", a.kv_heads, "capacity", a.kernel_head_size)
            for name in unit.state:
                inputs.append(_value(name, TensorProto.FLOAT, shape))
                outputs.append(_value(f"{name}.out", TensorProto.FLOAT, shape))
        else:
            branch = _ffn(graph, unit, a, hidden)
        hidden = graph.add("Add", [hidden, branch], f"{unit.name}.hidden")
    graph.nodes[-1].output[0] = "hidden.out"
    outputs.insert(0, _value("hidden.out", TensorProto.FLOAT, ["batch", "tokens", a.hidden]))
    return graph.finish(inputs, outputs)


def _attn(graph: Graph, unit: ManifestUnit, a: Architecture, hidden: str) -> str:
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    rows, name = queries + 2 * keys, unit.name
    normed = _norm(graph, name, unit, "norm", a.hidden, hidden, a.norm_epsilon)
    bias = ""
    if a.qkv_bias:
        bias = graph.external(f"{name}.qkv.bias", unit, _need(unit, "qkv.bias", "f32", (rows,)))
    qkv = _linear(graph, unit, "qkv", rows, a.hidden, normed, bias)
    operands = [qkv, "", ""]
    if a.qk_norm:
        operands = _normed_heads(graph, unit, a, qkv)
    filled = a.kernel_head_size != a.head_size
    if filled:
        operands = [each and _filled_heads(graph, name, a, each) for each in operands]
    key, value = unit.state
    attended = graph.add(
        "GroupQueryAttention",
        [*operands, key, value, "seqlens", "total", "cos", "sin"],
        f"{name}.attended",
        f"{key}.out",
        f"{value}.out",
        domain=MICROSOFT,
        num_heads=a.heads,
        kv_num_heads=a.kv_heads,
        do_rotary=1,
        rotary_interleaved=0,
        **({"scale": a.head_size**-0.5} if filled else {}),
    )
    if filled:
        attended = _cut_heads(graph, name, a, attended)
    return _linear(graph, unit, "o", a.hidden, queries, attended)


def _filled_heads(graph: Graph, name: str, a: Architecture, source: str) -> str:
    """`source` (batch, tokens, heads * head_size) with zeros behind each half of a head: kernel_head_size values."""
    lacking = (a.kernel_head_size - a.head_size) // 2
    pads = np.array([0, 0, 0, 0, 0, 0, 0, lacking], np.int64)
    halves = _halves(graph, name, a.head_size, source)
    padded = graph.add("Pad", [halves, _shared(graph, f"{name}.pads", pads)], f"{source}.padded")
    return _joined(graph, name, padded, f"{source}.filled")


def _cut_heads(graph: Graph, name: str, a: Architecture, source: str) -> str:
    """`source` (batch, tokens, heads * kernel_head_size) without what _filled_heads added."""
    halves = _halves(graph, name, a.kernel_head_size, source)
    first, stop, axis = (
        _shared(graph, f"{name}.{part}", np.array([value], np.int64))
        for part, value in (("first", 0), ("stop", a.head_size // 2), ("axis", -1))
    )
    cut = graph.add("Slice", [halves, first, stop, axis], f"{source}.sliced")
    return _joined(graph, name, cut, f"{source}.cut")


def _halves(graph: Graph, name: str, size: int, source: str) -> str:
    shape = _shared(graph, f"{name}.halves.{size}", np.array([0, 0, -1, size // 2], np.int64))
    return graph.add("Reshape", [source, shape], f"{source}.halves")


def _joined(graph: Graph, name: str, source: str, output: str) -> str:
    return graph.add(
        "Reshape", [source, _shared(graph, f"{name}.joined", np.array([0, 0, -1], np.int64))], output
    )


def _shared(graph: Graph, name: str, array: npt.NDArray[np.int64]) -> str:
    """A constant that several nodes use."""
    known = any(each.name == name for each in graph.initializers)
    return name if known else graph.constant(name, array)


def _normed_heads(graph: Graph, unit: ManifestUnit, a: Architecture, qkv: str) -> list[str]:
    """q, k, v from packed rows, q and k normalized per head."""
    name = unit.name
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    sizes = graph.constant(f"{name}.sizes", np.array([queries, keys, keys], np.int64))
    graph.add("Split", [qkv, sizes], f"{name}.q", f"{name}.k", f"{name}.v", axis=-1)
    heads = graph.constant(f"{name}.heads", np.array([0, 0, -1, a.head_size], np.int64))
    flat = graph.constant(f"{name}.flat", np.array([0, 0, -1], np.int64))
    found = []
    for part in ("q", "k"):
        split = graph.add("Reshape", [f"{name}.{part}", heads], f"{name}.{part}.heads")
        normed = _norm(graph, name, unit, f"{part}_norm", a.head_size, split, a.norm_epsilon)
        found.append(graph.add("Reshape", [normed, flat], f"{name}.{part}.normed"))
    return [*found, f"{name}.v"]


def _ffn(graph: Graph, unit: ManifestUnit, a: Architecture, hidden: str) -> str:
    name = unit.name
    normed = _norm(graph, name, unit, "norm", a.hidden, hidden, a.norm_epsilon)
    both = _linear(graph, unit, "gate_up", 2 * a.ffn, a.hidden, normed)
    sizes = graph.constant(f"{name}.sizes", np.array([a.ffn, a.ffn], np.int64))
    graph.add("Split", [both, sizes], f"{name}.gate", f"{name}.up", axis=-1)
    active = graph.add("QuickGelu", [f"{name}.gate"], f"{name}.active", domain=MICROSOFT, alpha=1.0)
    inner = graph.add("Mul", [active, f"{name}.up"], f"{name}.inner")
    return _linear(graph, unit, "down", a.hidden, a.ffn, inner)


def _head(unit: ManifestUnit, a: Architecture, placed: Placed) -> bytes:
    graph = Graph(placed)
    normed = _norm(graph, unit.name, unit, "norm", a.hidden, "hidden", a.norm_epsilon)
    _linear(graph, unit, "head", a.vocab, a.hidden, normed)
    graph.nodes[-1].output[0] = "logits"
    return graph.finish(
        [_value("hidden", TensorProto.FLOAT, ["batch", a.hidden])],
        [_value("logits", TensorProto.FLOAT, ["batch", a.vocab])],
    )


def _head_parts(unit: ManifestUnit, a: Architecture, placed: Placed) -> tuple[bytes, ...]:
    """Graphs of at most HEAD_PART_BYTES each: while a matrix is repacked, it exists twice."""
    count = max(1, -(-unit.resident_bytes // HEAD_PART_BYTES))
    step = -(-a.vocab // count // HEAD_PART_ROWS) * HEAD_PART_ROWS
    return tuple(
        _head(_head_rows(unit, a, start, min(start + step, a.vocab)), _of_rows(a, start, step), placed)
        for start in range(0, a.vocab, step)
    )


def _of_rows(a: Architecture, start: int, step: int) -> Architecture:
    return replace(a, vocab=min(step, a.vocab - start))


def _head_rows(unit: ManifestUnit, a: Architecture, first: int, stop: int) -> ManifestUnit:
    """The unit with only rows [first, stop) of its matrix."""

    def cut(tensor: StoredTensor) -> StoredTensor:
        if len(tensor.shape) == 1 or tensor.shape[0] != a.vocab:
            return tensor
        row_bytes = tensor.bytes // a.vocab
        return replace(
            tensor,
            shape=(stop - first, *tensor.shape[1:]),
            offset=tensor.offset + first * row_bytes,
            bytes=(stop - first) * row_bytes,
        )

    return replace(unit, tensors=tuple(cut(tensor) for tensor in unit.tensors))


def _embed_table(unit: ManifestUnit, a: Architecture, blobs: Blobs) -> EmbedTable:
    path = blobs.blob_path(unit.blob.sha256)
    whole = unit.tensor("embed.w")
    if whole is not None:
        dtype: DType = "f16" if whole.dtype == "f16" else "f32"
        table = _need(unit, "embed.w", dtype, (a.vocab, a.hidden))
        return EmbedTable(path, a.vocab, a.hidden, table, None, None)
    blocks = -(-a.hidden // BLOCK)
    q8 = _need(unit, "embed.q8", "u8", (a.vocab, blocks, BLOCK))
    scale = _need(unit, "embed.scale", "f32", (a.vocab, blocks))
    return EmbedTable(path, a.vocab, a.hidden, None, q8, scale)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))
