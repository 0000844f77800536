"""How a run of units of a decoder becomes ONNX graphs that its provider runs best, with weights left in the blobs.

The graph of a unit says what is computed (planner.model.compose has the rules for all graphs); six operators of the
domain "shoal" say it without saying how:

    Embedding(tokens) -> rows      weight, rows, columns          first unit alone: rows are read from the blob
    Linear(x, bias?) -> y          weight, rows, columns          x times the stored form of a matrix (rows, columns)
    Attention(q, k?, v?, sinks?, bias?) -> y   heads, kv_heads, head_size, state, rotary, scale?, softcap?
    Positions(x) -> places         units between the first and the last alone: int64 (batch, tokens)
    Cached(x) -> places            the same units: int64 (total), of all that a longest conversation of the step has
    Rotary(places) -> cos, sin     rotary: the same units: rows of a rotary table at int64 (batch, tokens)
    Experts(x, shares, base, limit?) -> y   weight, count, rows, columns, alpha?   the same units: base plus what chosen
                                                                  experts make

Lowering is the same for every model and takes nothing but the manifest and its graphs; of equal ones it makes equal
bytes. A shard has up to three parts that run one after another: the embedding (rows that are looked up; what the first
unit does with them then is a graph of its own), the body (all units between) and the head (its own graph, so that it
runs for the last position of a prompt only).

Body: hidden f32 (batch, tokens, hidden), seqlens i32 (batch) = tokens in the cache after the step - 1, total i32 (1),
for each rotary table cos and sin (of the others but the first: cos.N, sin.N) f32 (positions, angles), for each pair of
arrays that units keep key.N and value.N f32 (batch, heads, capacity, head_size), which are updated in place (bound as
key.N.out, value.N.out too) -> hidden.out. Where a pair has a window, old positions may be absent from its arrays:
window.seqlens, window.total are for those, and position_ids i64 (batch, tokens) say where the step's tokens stand.
Where values are the keys, there is key.N alone, bound as key.N.out and as key.N.value: the kernel is handed one array
as both, and writes the same rows there twice, so these are turned before.
Head: hidden f32 (batch, hidden) -> logits f32 (batch, vocab). Embedding:
hidden f32 (tokens, columns), the rows looked up -> hidden.out f32 (tokens, hidden); none where Embedding is all.

The attention kernel takes heads of whole groups of 16 values. Others are filled up with zeros, each half of a head by
itself, because values of both halves rotate in pairs: no score and no sum changes. Only activations grow, not weights.

Browsers have no files, so for them (providers "wasm" and "webgpu") the location of a tensor is "<unit>/<tensor>", from
0 on, and the tab hands the bytes over when asked. On "wasm" every Linear of weight `name` is "<unit>/<name>.w", float32
(rows, columns), whatever form is stored: the tab unpacks it, because WebAssembly has no fast kernel for packed weights.
One of more than SLICE_BYTES is several products, whose matrices are rows of that location: onnxruntime repacks a matrix
while it holds the original, and in WebAssembly what a loading shard once took is never given back. On "webgpu" a
float32 matrix (`.w`, `.rest`) is "<unit>/<tensor>.T", widened and transposed, because the GPU has no product with a
transposed one; packed weights are as stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from planner.errors import CorruptStore
from planner.model.checked_fields import DType, StoredTensor
from planner.model.compose import Blobs, Declared, checked_graph, wrong_graph
from planner.model.graph_manifest import MAX_HEAD_SIZE, MAX_HEADS
from planner.model.kv_window import KvWindow
from planner.model.manifest import (
    MAX_SCRATCH,
    MAX_VOCAB,
    KvPair,
    Manifest,
    ManifestUnit,
)
from planner.model.onnx_graph import IR_VERSION, MICROSOFT, ONNX_TYPES, OPSET, Placed
from planner.model.units import BLOCK

SHOAL: Final = "shoal"
VERSIONS: Final[Mapping[str, int]] = {"": OPSET, MICROSOFT: 1, SHOAL: 1}  # of operators that a unit may use
HEAD_GROUP: Final = 16  # GroupQueryAttention with rotary embedding takes multiples of it only

ACCURACY_8BIT: Final = 4  # activations rounded to 8 bits per block: the only fast kernel for 8-bit weights
ACCURACY_4BIT: Final = (
    4  # as llama.cpp does; how rows of a batch keep equal bits, peer.runtime.arithmetic proves
)
ACCURACY_GPU: Final = 0  # float32 activations: a GPU multiplies them at no cost
ACCURACY_EXACT: Final = 0  # on a CPU fast for many tokens at once only

HEAD_PART_BYTES: Final = 40 << 20  # a head is loaded in parts, for a vocabulary can outweigh everything else
PART_ROWS: Final = 64  # parts end where the kernels' tiles do
SLICE_BYTES: Final = 16 << 20  # on "wasm"; float32

BROWSERS: Final[Mapping[str, Placed]] = {"wasm": "wide", "webgpu": "packed"}
WINDOW_SEQLENS: Final = "window.seqlens"  # as seqlens and total, of arrays with a window
WINDOW_TOTAL: Final = "window.total"
POSITION_IDS: Final = "position_ids"
NOT_ON_GPU: Final = (  # onnxruntime-web 1.30 leaves soft caps, sinks and position ids out without a word
    "attention with a window, a soft cap, sinks or values that are the keys is not computed right on a GPU: a tab "
    "computes it without one"
)
ELEMENTWISE: Final = frozenset(  # what may follow the product of a head that is loaded in parts
    ("Add", "Sub", "Mul", "Div", "Neg", "Tanh", "Clip", "Identity")
)

_ACCURACY: Final[Mapping[Placed, int]] = {"packed": ACCURACY_GPU, "exact": ACCURACY_EXACT}
_WEIGHT: Final[Mapping[str, int]] = {
    "weight": AttributeProto.STRING,
    "rows": AttributeProto.INT,
    "columns": AttributeProto.INT,
}
_ATTENTION: Final[Mapping[str, int]] = {
    "heads": AttributeProto.INT,
    "kv_heads": AttributeProto.INT,
    "head_size": AttributeProto.INT,
    "state": AttributeProto.INT,
    "rotary": AttributeProto.INT,
}
_ROTARY: Final[Mapping[str, int]] = {"rotary": AttributeProto.INT}
_EXPERTS: Final[Mapping[str, int]] = {**_WEIGHT, "count": AttributeProto.INT}
MAX_EXPERTS: Final = 1024
EXPERT_PARTS: Final = ("gate_up", "down")  # the matrices of one expert
_ALPHA: Final[Mapping[str, int]] = {"alpha": AttributeProto.FLOAT}
MAX_ALPHA: Final = 1e6
_SOFT: Final[Mapping[str, int]] = {"scale": AttributeProto.FLOAT, "softcap": AttributeProto.FLOAT}
_CHUNK: Final[Mapping[str, int]] = {"chunk": AttributeProto.INT}
FAR: Final = -(10**18)  # added to the score of a position that is not looked at: its share is exactly 0
ATTENTION_INPUTS: Final = 5  # q, k, v, sinks, bias


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
class Graphs:
    """The graphs of a run of units, each None where the run has no such part."""

    embed: bytes | None
    body: bytes | None
    head: bytes | None


@dataclass(frozen=True, slots=True)
class Shard:
    """Units [first, stop) of a model for one provider. `kv`: the pairs of arrays that they keep, in order.

    `vocab`, `hidden`, `context`, `scratch` and `rotary` as in the manifest.
    """

    vocab: int
    hidden: int
    context: int
    scratch: int
    rotary: tuple[tuple[float, ...], ...]
    first: int
    stop: int
    provider: str
    blobs: Path  # folder that external data locations are relative to
    embed: EmbedTable | None
    after_embed: bytes | None  # the graph of what the first unit does with rows that were looked up
    body: bytes | None
    heads: tuple[bytes, ...]  # graphs for consecutive ranges of the vocabulary; empty without a head
    kv: tuple[KvPair, ...]
    window: KvWindow | None  # what is kept in those with a window, in the whole model
    weight_bytes: int

    @property
    def widest_head(self) -> int:
        """Values of the widest head that is cached; 0 where none is."""
        return max((pair.head_size for pair in self.kv), default=0)


def make_shard(
    manifest: Manifest,
    blobs: Blobs,
    first: int,
    stop: int,
    provider: str = "cpu",
    *,
    exact: bool = False,
    vocabulary: int | None = None,
) -> Shard:
    """Reads the blobs of graphs, none of weights. Raises CorruptStore for a graph that breaks the rules or does not fit
    its tensors, NotInStore where one is absent, ValueError for an empty or foreign run.

    `exact`: packed weights are multiplied with activations that are not rounded, as tabs do. Not for browsers.
    `vocabulary`: the head makes at most so many logits, those of the first tokens, where its graph allows that.
    """
    if not 0 <= first < stop <= len(manifest.units):
        raise ValueError(f"units [{first}, {stop}) expected inside [0, {len(manifest.units)})")
    units = manifest.units[first:stop]
    placed: Placed = "exact" if exact else "blobs"
    parts = [_read(manifest, place, blobs) for place in range(first, stop)]
    embed, head = _ends(parts)
    return Shard(
        vocab=manifest.vocab,
        hidden=manifest.hidden,
        context=manifest.context,
        scratch=manifest.scratch,
        rotary=manifest.rotary,
        first=first,
        stop=stop,
        provider=provider,
        blobs=blobs.blob_path(units[0].blob.sha256).parent,
        embed=None if embed is None else _embed_table(manifest, blobs, embed),
        after_embed=None if embed is None else _after_embed(manifest, embed, placed),
        body=_body(manifest, parts, placed),
        heads=() if head is None else _head_parts(manifest, head, placed, vocabulary),
        kv=tuple(pair for unit in units for pair in unit.kv),
        window=manifest.window,
        weight_bytes=sum(unit.resident_bytes for unit in units),
    )


def make_graphs(
    manifest: Manifest, blobs: Blobs, first: int, stop: int, provider: str, *, exact: bool = False
) -> Graphs:
    """The graphs of units [first, stop), the head whole. Raises as make_shard."""
    placed = BROWSERS.get(provider, "exact" if exact else "blobs")
    parts = [_read(manifest, place, blobs) for place in range(first, stop)]
    embed, head = _ends(parts)
    return Graphs(
        None if embed is None else _after_embed(manifest, embed, placed),
        _body(manifest, parts, placed),
        None if head is None else _head(manifest, head, placed),
    )


def rotary_tables(
    frequencies: Sequence[float], positions: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """cos and sin, each float32 (positions, angles)."""
    angles = np.arange(positions, dtype=np.float64)[:, None] * np.asarray(frequencies, np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotary_inputs(table: int) -> tuple[str, str]:
    """What the body calls the cosines and sines of rotary table number `table`."""
    return (f"cos.{table}", f"sin.{table}") if table else ("cos", "sin")


def kernel_head_size(head_size: int) -> int:
    """Values per head as the attention kernel computes and caches them: `head_size` and zeros, to whole groups."""
    return -(-head_size // HEAD_GROUP) * HEAD_GROUP


# --- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A unit with its checked graph; `place`: its number among the units of the manifest."""

    unit: ManifestUnit
    place: int
    model: ModelProto

    @property
    def nodes(self) -> Sequence[NodeProto]:
        nodes: Sequence[NodeProto] = self.model.graph.node
        return nodes


def _read(manifest: Manifest, place: int, blobs: Blobs) -> _Part:
    """Raises CorruptStore unless the graph keeps the rules for decoders."""
    unit = manifest.units[place]
    declared = Declared(unit.name, unit.graph, tuple(tensor.name for tensor in unit.tensors), 1, 1)
    model = checked_graph(declared, blobs)
    for opset in model.opset_import:
        if VERSIONS.get(opset.domain) != opset.version:
            raise wrong_graph(
                unit.name,
                f"operators of ONNX {OPSET}, {MICROSOFT} 1 and {SHOAL} 1 expected, "
                f"got {opset.domain[:80]!r} {opset.version}",
            )
    imported = {opset.domain for opset in model.opset_import}
    between = ("Positions", "Cached", "Rotary", "Experts") if unit.kind in ("attn", "ffn") else ()
    known = {SHOAL: ("Embedding", "Linear", "Attention", *between)}
    embeddings = 0
    for node in model.graph.node:
        if node.domain not in imported or node.op_type not in known.get(node.domain, (node.op_type,)):
            raise wrong_graph(unit.name, f"operator {node.domain[:80]}:{node.op_type[:80]} is not known")
        if any(each.HasField("g") or each.graphs for each in node.attribute):
            raise wrong_graph(unit.name, "no bodies of If, Loop or Scan expected")
        is_embedding = node.domain == SHOAL and node.op_type == "Embedding"
        embeddings += is_embedding
        if is_embedding != ("in.0" in node.input) and unit.kind == "embed":
            raise wrong_graph(unit.name, "tokens taken by the Embedding alone expected")
    if embeddings != (1 if unit.kind == "embed" else 0):
        raise wrong_graph(unit.name, "one Embedding in the first unit, none in others, expected")
    return _Part(unit, place, model)


def _facts(
    part: _Part, node: NodeProto, needed: Mapping[str, int], optional: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The attributes of an operator of ours. Raises CorruptStore for others, or of another type."""
    types = {**needed, **(optional or {})}
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if types.get(attribute.name) != attribute.type or attribute.name in found:
            raise wrong_graph(
                part.unit.name, f"{node.op_type}: attribute {attribute.name[:80]!r} is not known"
            )
        found[attribute.name] = helper.get_attribute_value(attribute)
    if not needed.keys() <= found.keys():
        raise wrong_graph(part.unit.name, f"{node.op_type}: attributes {', '.join(needed)} expected")
    return found


def _text(part: _Part, encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise wrong_graph(part.unit.name, "names in UTF-8 expected") from None


def _sizes(part: _Part, node: NodeProto, facts: Mapping[str, Any]) -> tuple[int, int, int]:
    """Count, rows and columns of Experts. Raises CorruptStore."""
    count, rows, columns = facts["count"], facts["rows"], facts["columns"]
    if not 1 <= count <= MAX_EXPERTS or not 1 <= rows <= MAX_SCRATCH // 2 or not 1 <= columns <= MAX_SCRATCH:
        raise wrong_graph(
            part.unit.name,
            f"{node.op_type}: 1 to {MAX_EXPERTS} experts of bounded size expected, "
            f"got {count} of ({rows}, {columns})",
        )
    return count, rows, columns


def _matrix_of(part: _Part, node: NodeProto, most_inputs: int) -> tuple[str, int, int]:
    """Weight, rows and columns of a Linear or an Embedding. Raises CorruptStore."""
    facts = _facts(part, node, _WEIGHT)
    weight = _text(part, facts["weight"])
    rows, columns = facts["rows"], facts["columns"]
    if not 1 <= rows <= MAX_VOCAB or not 1 <= columns <= MAX_SCRATCH:
        raise wrong_graph(
            part.unit.name, f"{node.op_type}: a matrix of bounded size expected, got ({rows}, {columns})"
        )
    if not 1 <= len(node.input) <= most_inputs or len(node.output) != 1 or not node.input[0]:
        raise wrong_graph(
            part.unit.name, f"{node.op_type}: 1 to {most_inputs} inputs and one output expected"
        )
    return weight, rows, columns


def _need(unit: ManifestUnit, name: str, dtype: DType, shape: tuple[int, ...]) -> StoredTensor:
    tensor = unit.tensor(name)
    if tensor is None or tensor.dtype != dtype or tensor.shape != shape:
        found = "none" if tensor is None else f"{tensor.dtype} {tensor.shape}"
        raise CorruptStore(
            f"unit {unit.name}, tensor {name[:80]}: {dtype} {shape} expected, got {found}; import the model again"
        )
    return tensor


def _stored_form(unit: ManifestUnit, weight: str, rows: int, columns: int) -> dict[str, StoredTensor]:
    """The tensors of a stored matrix by their form, each of the shape that the matrix makes necessary."""
    blocks = -(-columns // BLOCK)
    whole = unit.tensor(f"{weight}.w")
    if whole is not None:
        dtype: DType = "f16" if whole.dtype == "f16" else "f32"
        return {"w": _need(unit, f"{weight}.w", dtype, (rows, columns))}
    found = {"scale": _need(unit, f"{weight}.scale", "f32", (rows, blocks))}
    if unit.tensor(f"{weight}.q4") is None:
        found["q8"] = _need(unit, f"{weight}.q8", "u8", (rows, blocks, BLOCK))
        return found
    found["q4"] = _need(unit, f"{weight}.q4", "u8", (rows, blocks, BLOCK // 2))
    found["zero"] = _need(unit, f"{weight}.zero", "u8", (rows, -(-blocks // 2)))
    if unit.tensor(f"{weight}.rest") is not None:
        found["rest"] = _need(unit, f"{weight}.rest", "f32", (rows, blocks))
    return found


def _ends(parts: Sequence[_Part]) -> tuple[_Part | None, _Part | None]:
    """The embedding and the head among these units."""
    first, last = parts[0], parts[-1]
    return first if first.unit.kind == "embed" else None, last if last.unit.kind == "head" else None


def _embedding(manifest: Manifest, part: _Part) -> tuple[str, int]:
    """Weight and columns of the Embedding. Raises CorruptStore unless it has a row for each token."""
    unit = part.unit
    node = next(node for node in part.nodes if node.domain == SHOAL and node.op_type == "Embedding")
    weight, rows, columns = _matrix_of(part, node, 1)
    if rows != manifest.vocab or (len(part.nodes) == 1 and columns != manifest.hidden):
        raise wrong_graph(
            unit.name,
            f"an Embedding of ({manifest.vocab}, {manifest.hidden}) expected, got ({rows}, {columns})",
        )
    return weight, columns


def _embed_table(manifest: Manifest, blobs: Blobs, part: _Part) -> EmbedTable:
    weight, columns = _embedding(manifest, part)
    form = _stored_form(part.unit, weight, manifest.vocab, columns)
    if "q4" in form:
        raise wrong_graph(part.unit.name, "an Embedding that is not of 4 bits expected")
    path = blobs.blob_path(part.unit.blob.sha256)
    return EmbedTable(path, manifest.vocab, columns, form.get("w"), form.get("q8"), form.get("scale"))


# --- composing and lowering --------------------------------------------------------------------------------


class _Graph:
    """The graph under construction. What lowering makes up is called x0, x1, … in the order in which it is made."""

    def __init__(self, placed: Placed, axes: tuple[int, ...] = (0,), around: _Graph | None = None) -> None:
        """`axes`: the leading axes of activations, as Reshape keeps them. `around`: the graph that this is a branch of,
        which counts names and holds constants for both; in a tab weights, too, for its engine is handed no others.
        """
        self.placed = placed
        self.axes = axes
        self._around = around
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.sums: dict[str, str] = {}  # of blocks of columns, by what is summed
        self.unseen: dict[int, str] = {}  # what is added to scores, by the chunk of an Attention
        self._names: dict[str, str] = {}  # of initializers, by their key
        self._made = 0

    def new(self) -> str:
        if self._around is not None:
            return self._around.new()
        self._made += 1
        return f"x{self._made - 1}"

    def add(
        self, operator: str, inputs: Sequence[str], *outputs: str, domain: str = "", **attributes: Any
    ) -> str:
        """Adds a node and returns its first output."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def shape(self, *values: int) -> str:
        """A constant of whole numbers, held once."""
        if self._around is not None:
            return self._around.shape(*values)
        name = f"i64/{','.join(map(str, values))}"
        if name not in self._names:
            self._names[name] = name
            array = np.array(values, np.int64)
            self.initializers.append(
                TensorProto(
                    name=name,
                    data_type=TensorProto.INT64,
                    dims=[len(values)],
                    raw_data=array.astype("<i8").tobytes(),
                )
            )
        return name

    def stored(self, part: _Part, tensor: StoredTensor) -> str:
        """A tensor as it is stored, as an initializer."""
        location, offset = part.unit.blob.sha256, tensor.offset
        if self.placed in ("packed", "wide"):
            location, offset = f"{part.unit.name}/{tensor.name}", 0
        name = f"u{part.place}/{tensor.name}"
        return self._outside(name, name, tensor.dtype, tensor.shape, location, offset, tensor.bytes)

    def made(self, part: _Part, location: str, shape: tuple[int, int], first: int = 0) -> str:
        """A float32 matrix that whoever runs the graph makes from what is stored, from row `first` on."""
        size, offset = 4 * shape[0] * shape[1], 4 * first * shape[1]
        key = f"{part.place}/{location}#{first}"
        if key in self._names:
            return self._names[key]
        return self._outside(key, self.new(), "f32", shape, f"{part.unit.name}/{location}", offset, size)

    def times(self, source: str, matrix: str, output: str) -> str:
        """`source` times a matrix of (outputs, inputs), or on a GPU of (inputs, outputs)."""
        if self.placed == "packed":
            return self.add("MatMul", [source, matrix], output)
        return self.add("FusedMatMul", [source, matrix], output, domain=MICROSOFT, transB=1)

    def _outside(
        self,
        key: str,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        location: str,
        offset: int,
        length: int,
    ) -> str:
        if self._around is not None and self.placed in ("packed", "wide"):
            return self._around._outside(key, name, dtype, shape, location, offset, length)
        if key in self._names:
            return self._names[key]
        self._names[key] = name
        proto = TensorProto(
            name=name, data_type=ONNX_TYPES[dtype], dims=shape, data_location=TensorProto.EXTERNAL
        )
        for fact, value in (("location", location), ("offset", offset), ("length", length)):
            proto.external_data.add(key=fact, value=str(value))
        self.initializers.append(proto)
        return name

    def branch(self, output: ValueInfoProto) -> GraphProto:
        """This as a branch of an If."""
        made = GraphProto(name="branch")
        made.node.extend(self.nodes)
        made.initializer.extend(self.initializers)
        made.output.append(output)
        return made

    def finish(self, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> bytes:
        """The model as the bytes of an ONNX file."""
        model = ModelProto(ir_version=IR_VERSION)
        model.graph.name = "shard"
        model.graph.input.extend(inputs)
        model.graph.output.extend(outputs)
        model.graph.initializer.extend(self.initializers)
        model.graph.node.extend(self.nodes)
        for domain in ("", MICROSOFT):
            model.opset_import.add(domain=domain, version=VERSIONS[domain])
        model.DiscardUnknownFields()
        encoded: bytes = model.SerializeToString(deterministic=True)
        return encoded


def _after_embed(manifest: Manifest, part: _Part, placed: Placed) -> bytes | None:
    if len(part.nodes) == 1:
        return None
    graph = _Graph(placed)
    _Lowering(graph, manifest, part, "hidden", "hidden.out").run()
    _, columns = _embedding(manifest, part)
    return graph.finish(
        [_value("hidden", TensorProto.FLOAT, ("tokens", columns))],
        [_value("hidden.out", TensorProto.FLOAT, ("tokens", manifest.hidden))],
    )


def _body(manifest: Manifest, parts: Sequence[_Part], placed: Placed) -> bytes | None:
    parts = [part for part in parts if part.unit.kind in ("attn", "ffn")]
    if not parts:
        return None
    graph = _Graph(placed, (0, 0))
    width = ("batch", "tokens", manifest.hidden)
    inputs = [
        _value("hidden", TensorProto.FLOAT, width),
        _value("seqlens", TensorProto.INT32, ("batch",)),
        _value("total", TensorProto.INT32, (1,)),
    ]
    if any(pair.window is not None for part in parts for pair in part.unit.kv):
        inputs += [
            _value(WINDOW_SEQLENS, TensorProto.INT32, ("batch",)),
            _value(WINDOW_TOTAL, TensorProto.INT32, (1,)),
            _value(POSITION_IDS, TensorProto.INT64, ("batch", "tokens")),
        ]
    for table, frequencies in enumerate(manifest.rotary):
        for name in rotary_inputs(table):
            inputs.append(_value(name, TensorProto.FLOAT, ("positions", len(frequencies))))
    outputs = [_value("hidden.out", TensorProto.FLOAT, width)]
    hidden = "hidden"
    for part in parts:
        target = "hidden.out" if part is parts[-1] else f"u{part.place}/out.0"
        _Lowering(graph, manifest, part, hidden, target).run()
        hidden = target
        for pair in part.unit.kv:
            shape = ("batch", pair.heads, "capacity", pair.head_size)
            inputs += [_value(name, TensorProto.FLOAT, shape) for name in pair.names]
            outputs += [_value(name, TensorProto.FLOAT, shape) for name in pair.outputs]
    return graph.finish(inputs, outputs)


def _head(manifest: Manifest, part: _Part, placed: Placed, rows: range | None = None) -> bytes:
    """The graph of the head, or of it for some rows of the vocabulary."""
    graph = _Graph(placed)
    cut = None
    if rows is not None:
        place = _vocabulary_product(manifest, part)
        assert place is not None
        part = replace(part, unit=_of_rows(part, part.nodes[place], rows))
        cut = place, len(rows)
    _Lowering(graph, manifest, part, "hidden", "logits", cut).run()
    vocab = manifest.vocab if rows is None else len(rows)
    return graph.finish(
        [_value("hidden", TensorProto.FLOAT, ("batch", manifest.hidden))],
        [_value("logits", TensorProto.FLOAT, ("batch", vocab))],
    )


def _head_parts(manifest: Manifest, part: _Part, placed: Placed, vocabulary: int | None) -> tuple[bytes, ...]:
    """Graphs of at most HEAD_PART_BYTES each: while a matrix is repacked, it exists twice."""
    if _vocabulary_product(manifest, part) is None:
        return (_head(manifest, part, placed),)
    if vocabulary is not None:
        return (_head(manifest, part, placed, range(min(vocabulary, manifest.vocab))),)
    count = max(1, -(-part.unit.resident_bytes // HEAD_PART_BYTES))
    step = -(-manifest.vocab // count // PART_ROWS) * PART_ROWS
    return tuple(
        _head(manifest, part, placed, range(start, min(start + step, manifest.vocab)))
        for start in range(0, manifest.vocab, step)
    )


def _vocabulary_product(manifest: Manifest, part: _Part) -> int | None:
    """The place of the Linear whose rows are the vocabulary, where nothing but operators that look at one logit alone
    come after it; None where there is no such product.
    """
    makers = {name: place for place, node in enumerate(part.nodes) for name in node.output if name}
    single = {tensor.name for tensor in part.model.graph.initializer if math.prod(tensor.dims) == 1}
    name = "out.0"
    while (place := makers.get(name)) is not None:
        node = part.nodes[place]
        if node.domain == SHOAL and node.op_type == "Linear":
            weight, rows, _ = _matrix_of(part, node, 2)
            bias = node.input[1] if len(node.input) > 1 else ""
            others = [each for at, each in enumerate(part.nodes) if at != place and _uses(each, weight, bias)]
            whole = part.unit.tensor(bias)
            fits = not bias or (whole is not None and whole.shape == (rows,))
            return place if rows == manifest.vocab and fits and not others else None
        varying = [each for each in node.input if each and each not in single]
        if node.domain or node.op_type not in ELEMENTWISE or len(varying) != 1:
            return None
        (name,) = varying
    return None


def _uses(node: NodeProto, weight: str, bias: str) -> bool:
    """Whether a node takes tensors of that weight, or that bias."""
    direct = any(name and (name == bias or name.startswith(f"{weight}.")) for name in node.input)
    return direct or any(
        attribute.name == "weight" and attribute.s == weight.encode() for attribute in node.attribute
    )


def _of_rows(part: _Part, node: NodeProto, rows: range) -> ManifestUnit:
    """The unit with only those rows of the matrix and the bias of that Linear."""
    facts = _facts(part, node, _WEIGHT)
    weight, height = facts["weight"].decode(), facts["rows"]
    bias = node.input[1] if len(node.input) > 1 else ""

    def cut(tensor: StoredTensor) -> StoredTensor:
        if (tensor.name != bias and not tensor.name.startswith(f"{weight}.")) or tensor.shape[0] != height:
            return tensor
        row_bytes = tensor.bytes // height
        return replace(
            tensor,
            shape=(len(rows), *tensor.shape[1:]),
            offset=tensor.offset + rows.start * row_bytes,
            bytes=len(rows) * row_bytes,
        )

    return replace(part.unit, tensors=tuple(cut(tensor) for tensor in part.unit.tensors))


class _Lowering:
    """Adds the graph of one unit to that of a run: from the value `source` to `target`.

    `cut`: the Linear at that place of its nodes has so many rows only.
    """

    def __init__(
        self,
        graph: _Graph,
        manifest: Manifest,
        part: _Part,
        source: str,
        target: str,
        cut: tuple[int, int] | None = None,
    ) -> None:
        self._graph = graph
        self._manifest = manifest
        self._part = part
        self._unit = part.unit
        self._cut = cut
        self._names = {"": "", "in.0": source, "out.0": target}
        self._tensors = {tensor.name: tensor for tensor in part.unit.tensors}
        self._attended: set[int] = set()

    def run(self) -> None:
        for tensor in self._part.model.graph.initializer:
            kept = TensorProto()
            kept.CopyFrom(tensor)
            kept.name = self._name(tensor.name)
            self._graph.initializers.append(kept)
        for place, node in enumerate(self._part.nodes):
            if node.domain != SHOAL:
                self._plain(node)
            elif node.op_type == "Linear":
                self._linear(node, place)
            elif node.op_type == "Attention":
                self._attention(node)
            elif node.op_type == "Positions":
                self._positions(node)
            elif node.op_type == "Cached":
                self._cached(node)
            elif node.op_type == "Rotary":
                self._rotary(node)
            elif node.op_type == "Experts":
                self._experts(node)
            else:
                self._names[node.output[0]] = self._names["in.0"]
        if self._attended != set(range(len(self._unit.kv))):
            raise wrong_graph(self._unit.name, "one Attention for each state of the unit expected")

    def _name(self, local: str) -> str:
        """What a name of the unit's graph is called in that of the run."""
        if local in self._tensors:
            return self._graph.stored(self._part, self._tensors[local])
        if local not in self._names:
            self._names[local] = f"u{self._part.place}/{local}"
        return self._names[local]

    def _plain(self, node: NodeProto) -> None:
        kept = NodeProto(op_type=node.op_type, domain=node.domain)
        kept.input.extend(map(self._name, node.input))
        kept.output.extend(map(self._name, node.output))
        kept.attribute.extend(node.attribute)
        self._graph.nodes.append(kept)

    def _linear(self, node: NodeProto, place: int) -> None:
        """The product with a stored matrix."""
        weight, rows, columns = _matrix_of(self._part, node, 2)
        if self._cut is not None and self._cut[0] == place:
            rows = self._cut[1]
        source = self._name(node.input[0])
        bias = self._name(node.input[1]) if len(node.input) > 1 else ""
        self._product(self._graph, weight, (rows, columns), source, self._name(node.output[0]), bias)

    def _product(
        self,
        graph: _Graph,
        weight: str,
        shape: tuple[int, int],
        source: str,
        output: str,
        bias: str = "",
    ) -> str:
        """Adds the product to `graph`; which form the matrix has is seen from the tensors that exist."""
        part, (rows, columns) = self._part, shape
        form = _stored_form(self._unit, weight, rows, columns)
        if graph.placed == "wide" or "w" in form:
            product = graph.new() if bias else output
            if graph.placed == "wide":
                self._wide_product(graph, weight, rows, columns, source, product)
            else:
                graph.times(source, self._matrix(graph, form["w"], rows, columns), product)
            if bias:
                graph.add("Add", [product, bias], output)
            return output
        bits = 4 if "q4" in form else 8
        rest = form.get("rest")
        product = output if rest is None else graph.new()
        graph.add(
            "MatMulNBits",
            [
                source,
                graph.stored(part, form[f"q{bits}"]),
                graph.stored(part, form["scale"]),
                graph.stored(part, form["zero"]) if bits == 4 else "",
                "",
                bias,
            ],
            product,
            domain=MICROSOFT,
            K=columns,
            N=rows,
            bits=bits,
            block_size=BLOCK,
            accuracy_level=_ACCURACY.get(graph.placed, ACCURACY_4BIT if bits == 4 else ACCURACY_8BIT),
        )
        if rest is None:
            return output
        sums = self._block_sums(graph, source, columns)
        if graph.placed == "packed":
            restful = graph.made(part, f"{weight}.rest.T", (-(-columns // BLOCK), rows))
        else:
            restful = graph.stored(part, rest)
        correction = graph.times(sums, restful, graph.new())
        return graph.add("Add", [product, correction], output)

    def _wide_product(
        self, graph: _Graph, weight: str, rows: int, columns: int, source: str, output: str
    ) -> None:
        """`source` times the float32 matrix, a slice of its rows at a time."""
        location = f"{weight}.w"
        most = max(SLICE_BYTES // (4 * columns) // PART_ROWS, 1) * PART_ROWS
        if rows <= most:
            graph.times(source, graph.made(self._part, location, (rows, columns)), output)
            return
        slices = []
        for first in range(0, rows, most):
            matrix = graph.made(self._part, location, (min(most, rows - first), columns), first)
            slices.append(graph.times(source, matrix, graph.new()))
        graph.add("Concat", slices, output, axis=-1)

    def _matrix(self, graph: _Graph, whole: StoredTensor, rows: int, columns: int) -> str:
        """A matrix that is stored as numbers, as one of float32."""
        if graph.placed == "packed":
            return graph.made(self._part, f"{whole.name}.T", (columns, rows))
        stored = graph.stored(self._part, whole)
        if whole.dtype == "f16":
            return graph.add("Cast", [stored], graph.new(), to=TensorProto.FLOAT)
        return stored

    def _block_sums(self, graph: _Graph, source: str, columns: int) -> str:
        """Sums of each 32 columns, (…, columns/32); exact sources have whole blocks only."""
        if source not in graph.sums:
            if columns % BLOCK:
                raise wrong_graph(self._unit.name, f"whole blocks of {BLOCK} columns expected beside a rest")
            shape = graph.shape(*graph.axes, columns // BLOCK, BLOCK)
            blocks = graph.add("Reshape", [source, shape], graph.new())
            graph.sums[source] = graph.add("ReduceSum", [blocks, graph.shape(-1)], graph.new(), keepdims=0)
        return graph.sums[source]

    def _experts(self, node: NodeProto) -> None:
        """What each expert makes that any token chose, one after the other; a row takes nothing of others' experts."""
        graph = self._graph
        facts = _facts(self._part, node, _EXPERTS, _ALPHA)
        alpha = facts.get("alpha") or 1.0
        if not 0 <= alpha <= MAX_ALPHA:
            raise wrong_graph(
                self._unit.name, f"Experts: alpha from 0 to {MAX_ALPHA:.0f} expected, got {alpha}"
            )
        weight, count, rows, columns = _text(self._part, facts["weight"]), *_sizes(self._part, node, facts)
        if len(node.input) not in (3, 4) or "" in node.input or len(node.output) != 1:
            raise wrong_graph(
                self._unit.name, "Experts: x, shares, base and a limit, and one output expected"
            )
        source, shares, made, *limits = map(self._name, node.input)
        names = [graph.new() for _ in range(count)]
        graph.add("Split", [shares], *names, axis=-1, num_outputs=count)
        largest = graph.add("ReduceMax", [shares, graph.shape(0, 1)], graph.new(), keepdims=0)
        any_of = graph.add("Cast", [largest], graph.new(), to=TensorProto.BOOL)
        chosen = [graph.new() for _ in range(count)]
        graph.add("Split", [any_of], *chosen, axis=0, num_outputs=count)
        for expert, (share, taken) in enumerate(zip(names, chosen, strict=True)):
            output = self._name(node.output[0]) if expert == count - 1 else graph.new()
            then, other = (_Graph(graph.placed, graph.axes, graph) for _ in range(2))
            name = f"{weight}.{expert}"
            bias = self._expert_bias(then, f"{name}.gate_up.bias", 2 * rows)
            both = self._product(then, f"{name}.gate_up", (2 * rows, columns), source, graph.new(), bias)
            gate, up = graph.new(), graph.new()
            then.add("Split", [both], gate, up, axis=-1, num_outputs=2)
            for limit in limits:
                gate = then.add("Min", [gate, limit], graph.new())
                least = then.add("Neg", [limit], graph.new())
                up = then.add("Max", [then.add("Min", [up, limit], graph.new()), least], graph.new())
            active = then.add("QuickGelu", [gate], graph.new(), domain=MICROSOFT, alpha=alpha)
            inner = then.add("Mul", [active, up], graph.new())
            for _ in limits:
                inner = then.add("Add", [inner, active], graph.new())
            bias = self._expert_bias(then, f"{name}.down.bias", columns)
            whole = self._product(then, f"{name}.down", (columns, rows), inner, graph.new(), bias)
            part = then.add("Mul", [whole, share], graph.new())
            total = then.add("Add", [made, part], graph.new())
            its = then.add("Cast", [share], graph.new(), to=TensorProto.BOOL)
            branches = [
                (then, then.add("Where", [its, total, made], graph.new())),
                (other, other.add("Identity", [made], graph.new())),
            ]
            then_branch, else_branch = (
                each.branch(_value(result, TensorProto.FLOAT, ("batch", "tokens", columns)))
                for each, result in branches
            )
            made = graph.add("If", [taken], output, then_branch=then_branch, else_branch=else_branch)

    def _expert_bias(self, graph: _Graph, name: str, length: int) -> str:
        """What is added to a product, where the unit has such a tensor."""
        if self._unit.tensor(name) is None:
            return ""
        return graph.stored(self._part, _need(self._unit, name, "f32", (length,)))

    def _positions(self, node: NodeProto) -> None:
        """How many tokens of its conversation stand before each token: those cached after the step, counted back."""
        _facts(self._part, node, {})
        if len(node.input) != 1 or not node.input[0] or len(node.output) != 1:
            raise wrong_graph(self._unit.name, "Positions: one input and one output expected")
        self._places(self._name(node.input[0]), self._name(node.output[0]))

    def _places(self, rows: str, output: str, lengths: str = "seqlens") -> str:
        """The positions of the tokens of `rows`, (batch, tokens), counted back from `lengths`."""
        graph = self._graph
        tokens = graph.add("Shape", [rows], graph.new(), end=2, start=1)
        first = graph.add("Sub", [graph.shape(1), tokens], graph.new())
        steps = graph.add("Range", [first, graph.shape(1), graph.shape(1)], graph.new())
        lasts = graph.add("Cast", [lengths], graph.new(), to=TensorProto.INT64)
        column = graph.add("Unsqueeze", [lasts, graph.shape(1)], graph.new())
        return graph.add("Add", [column, steps], output)

    def _cached(self, node: NodeProto) -> None:
        """The positions of what is cached after the step, of the longest conversation among them."""
        graph = self._graph
        _facts(self._part, node, {})
        if len(node.input) != 1 or not node.input[0] or len(node.output) != 1:
            raise wrong_graph(self._unit.name, "Cached: one input and one output expected")
        count = graph.add("Cast", ["total"], graph.new(), to=TensorProto.INT64)
        bounds = [graph.shape(0), count, graph.shape(1)]
        graph.add("Range", bounds, self._name(node.output[0]))

    def _rotary(self, node: NodeProto) -> None:
        """Cosines and sines of places that rows say, each float32 (batch, tokens, angles), inside the table."""
        graph = self._graph
        table = _facts(self._part, node, _ROTARY)["rotary"]
        if len(node.input) != 1 or not node.input[0] or len(node.output) != 2 or "" in node.output:
            raise wrong_graph(self._unit.name, "Rotary: one input and two outputs expected")
        if not 0 <= table < len(self._manifest.rotary):
            raise wrong_graph(self._unit.name, f"Rotary: rotary table {table} does not fit")
        cos, sin = rotary_inputs(table)
        count = graph.add("Shape", [cos], graph.new(), end=1, start=0)
        last = graph.add("Sub", [count, graph.shape(1)], graph.new())
        least = graph.add("Max", [self._name(node.input[0]), graph.shape(0)], graph.new())
        inside = graph.add("Min", [least, last], graph.new())
        for name, output in zip((cos, sin), node.output, strict=True):
            graph.add("Gather", [name, inside], self._name(output), axis=0)

    def _attention(self, node: NodeProto) -> None:
        """Attention over what is cached and the step's own keys and values, which are put there."""
        graph = self._graph
        facts = _facts(self._part, node, _ATTENTION, {**_SOFT, **_CHUNK})
        size, pair = facts["head_size"], self._pair(facts)
        chunk = facts.get("chunk", 0)
        inputs, sinks, bias = self._operands(node)
        shared = len(inputs) == 2
        if shared != pair.shared:
            raise wrong_graph(
                self._unit.name, "Attention: q and k, and a state that keys and values share, go together"
            )
        is_apart = pair.window is not None or bool(sinks or bias) or shared
        if graph.placed == "packed" and (is_apart or facts.get("softcap")):
            raise wrong_graph(self._unit.name, NOT_ON_GPU)
        if bias and pair.window is not None:
            raise wrong_graph(self._unit.name, "Attention: a bias of a state without a window expected")
        filled = pair.head_size != size
        output = self._name(node.output[0])
        operands = [self._filled_heads(size, each) if filled else each for each in inputs]
        table = facts["rotary"]
        if shared:
            counts = facts["heads"], facts["kv_heads"]
            if table >= 0:
                operands = self._turned(operands, counts, table)
            operands, table = [*operands, operands[1]], -1
        operands += [""] * (3 - len(operands))
        attributes: dict[str, float] = {}
        if facts.get("scale") or filled:
            attributes["scale"] = facts.get("scale") or size**-0.5
        if facts.get("softcap"):
            attributes["softcap"] = facts["softcap"]
        key, value = pair.names[0], pair.names[-1]
        lengths, turning = ["seqlens", "total"], list(rotary_inputs(table) if table >= 0 else ())
        if pair.window is not None:
            attributes["local_window_size"] = pair.window
            lengths = [WINDOW_SEQLENS, WINDOW_TOTAL]
            if turning:
                turning.append(POSITION_IDS)
        last = turning
        if chunk:
            bias = self._unseen_before(chunk)
        if sinks or bias:
            last = [*turning, *[""] * (3 - len(turning)), bias, *([sinks] if sinks else [])]
        attended = graph.add(
            "GroupQueryAttention",
            [*operands, key, value, *lengths, *last],
            graph.new() if filled else output,
            *pair.outputs,
            domain=MICROSOFT,
            num_heads=facts["heads"],
            kv_num_heads=facts["kv_heads"],
            do_rotary=int(table >= 0),
            rotary_interleaved=0,
            **attributes,
        )
        if filled:
            self._cut_heads(size, attended, output)

    def _turned(self, operands: Sequence[str], counts: Sequence[int], table: int) -> list[str]:
        """q and k, of so many heads each, turned by the positions of their tokens."""
        graph = self._graph
        places = self._places("hidden", graph.new())
        angles = 2 * len(self._manifest.rotary[table])
        return [
            graph.add(
                "RotaryEmbedding",
                [each, places, *rotary_inputs(table)],
                graph.new(),
                domain=MICROSOFT,
                num_heads=heads,
                rotary_embedding_dim=angles,
            )
            for each, heads in zip(operands, counts, strict=True)
        ]

    def _unseen_before(self, chunk: int) -> str:
        """What is added to scores (batch, 1, tokens, total) so that a token looks at its own chunk alone. Positions of
        the state begin where the first ones were dropped.
        """
        graph = self._graph
        if chunk in graph.unseen:
            return graph.unseen[chunk]
        passed = graph.add("Mod", [POSITION_IDS, graph.shape(chunk)], graph.new())
        begun = graph.add("Sub", [self._places("hidden", graph.new(), WINDOW_SEQLENS), passed], graph.new())
        count = graph.add("Cast", [WINDOW_TOTAL], graph.new(), to=TensorProto.INT64)
        places = graph.add("Range", [graph.shape(0), count, graph.shape(1)], graph.new())
        begun = graph.add("Unsqueeze", [begun, graph.shape(1, 3)], graph.new())
        outside = graph.add("Less", [places, begun], graph.new())
        marks = graph.add("Cast", [outside], graph.new(), to=TensorProto.FLOAT)
        far = graph.add("Cast", [graph.shape(FAR)], graph.new(), to=TensorProto.FLOAT)
        made = graph.unseen[chunk] = graph.add("Mul", [marks, far], graph.new())
        return made

    def _operands(self, node: NodeProto) -> tuple[list[str], str, str]:
        """Of an Attention q, k and v (or q and k, or the one input that is all of them), sinks and bias; "" where there
        is none. Raises CorruptStore.
        """
        named = list(node.input)
        q, k, v, sinks, bias = [*named, *[""] * (ATTENTION_INPUTS - len(named))][:ATTENTION_INPUTS]
        operands = [q] if (k, v) == ("", "") else [q, k, v][: max(2, len(named))]
        if (
            not 1 <= len(named) <= ATTENTION_INPUTS
            or len(node.output) != 1
            or "" in operands
            or not named[-1]
        ):
            raise wrong_graph(
                self._unit.name, "Attention: q, k and v, q and k, or one input, and one output expected"
            )
        return [self._name(each) for each in operands], self._name(sinks), self._name(bias)

    def _pair(self, facts: Mapping[str, Any]) -> KvPair:
        """The arrays that an Attention uses. Raises CorruptStore unless its numbers and those of the manifest agree."""
        heads, kv_heads, size, state = (facts[name] for name in ("heads", "kv_heads", "head_size", "state"))
        table, tables = facts["rotary"], self._manifest.rotary
        if not 1 <= kv_heads <= heads <= MAX_HEADS or heads % kv_heads:
            raise wrong_graph(self._unit.name, f"Attention: heads {heads} and {kv_heads} do not fit together")
        if not 2 <= size <= MAX_HEAD_SIZE or size % 2:
            raise wrong_graph(self._unit.name, f"Attention: an even head size expected, got {size}")
        if not 0 <= state < len(self._unit.kv) or state in self._attended:
            raise wrong_graph(self._unit.name, "one Attention for each state of the unit expected")
        self._attended.add(state)
        pair: KvPair = self._unit.kv[state]
        if pair.shared and pair.window is not None:
            raise wrong_graph(self._unit.name, "no window of a state that keys and values share expected")
        if (pair.heads, pair.head_size) != (kv_heads, kernel_head_size(size)):
            raise wrong_graph(
                self._unit.name, f"a state of {kv_heads} heads of {kernel_head_size(size)} values expected"
            )
        if not -1 <= table < len(tables) or (table >= 0 and 2 * len(tables[table]) > pair.head_size):
            raise wrong_graph(self._unit.name, f"Attention: rotary table {table} does not fit")
        if not all(0 <= facts.get(name, 0) < math.inf for name in _SOFT):
            raise wrong_graph(self._unit.name, "Attention: finite scale and softcap expected")
        if facts.get("chunk", 0) not in (0, pair.window):
            raise wrong_graph(self._unit.name, "Attention: the window of the state as chunk expected")
        return pair

    def _filled_heads(self, size: int, source: str) -> str:
        """`source` (batch, tokens, heads * size) with zeros behind each half of a head, to whole groups."""
        graph = self._graph
        lacking = (kernel_head_size(size) - size) // 2
        halves = graph.add("Reshape", [source, graph.shape(0, 0, -1, size // 2)], graph.new())
        padded = graph.add("Pad", [halves, graph.shape(0, 0, 0, 0, 0, 0, 0, lacking)], graph.new())
        return graph.add("Reshape", [padded, graph.shape(0, 0, -1)], graph.new())

    def _cut_heads(self, size: int, source: str, output: str) -> None:
        """`source` without what _filled_heads added."""
        graph = self._graph
        whole = graph.shape(0, 0, -1, kernel_head_size(size) // 2)
        halves = graph.add("Reshape", [source, whole], graph.new())
        bounds = [graph.shape(0), graph.shape(size // 2), graph.shape(-1)]
        cut = graph.add("Slice", [halves, *bounds], graph.new())
        graph.add("Reshape", [cut, graph.shape(0, 0, -1)], output)


def _value(name: str, kind: int, shape: Collection[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))
