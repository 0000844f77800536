"""How a run of units becomes one ONNX model whose weights lie in blobs.

The graph of a unit is an ONNX model without types: nodes in topological order, small constants, and the names in.0,
in.1, … and out.0, out.1, … of what it takes and makes; its weights are the names of its tensors. A weight belongs to a
body of If, Loop or Scan where that lists its name as an initializer, else to the graph. Composing gives the
values the names that they have in the manifest, and everything local to a unit a prefix of its own. A graph comes from
a disk or a stranger: what is not bounded, does not resolve or reaches outside is refused. Of the same manifest and
blobs, the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, ValueInfoProto

from planner.errors import CorruptStore
from planner.model.graph_manifest import GraphManifest, Value, ValueType, Weight
from planner.model.onnx_graph import IR_VERSION
from planner.model.store import BlobRef

MAX_GRAPH_BYTES: Final = 4 << 20  # of a unit; parsed, hostile bytes take some sixty times as much
MAX_RUN_BYTES: Final = 64 << 20  # of the graphs of one run, equal ones counted each time
MAX_NODES: Final = 1 << 16  # of a unit, those of bodies included
MAX_DEPTH: Final = 8  # of bodies within bodies: If in Loop in Scan

ELEMENT_TYPES: Final[Mapping[ValueType, int]] = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
    "uint32": TensorProto.UINT32,
    "int64": TensorProto.INT64,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
    "complex64": TensorProto.COMPLEX64,
    "complex128": TensorProto.COMPLEX128,
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
}


class Blobs(Protocol):
    """Where blobs lie; a Store, or what stands in for one."""

    def blob_path(self, sha256: str) -> Path:
        """Returns where the blob of that hash lies."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a manifest says of the graph of a unit: how many inputs and outputs it has, what its tensors are called."""

    name: str
    graph: BlobRef
    tensors: tuple[str, ...]
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Composed:
    """Units of a model as one ONNX model. Its inputs and outputs are called as the values of `inputs` and `outputs`, in
    this order. Its weights are external data: `location` is the SHA-256 of a blob. `weight_bytes`: of all of them, each
    counted once, those of bodies each time.
    """

    model: bytes
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weight_bytes: int


def compose(manifest: GraphManifest, blobs: Blobs, first: int, stop: int) -> Composed:
    """Units [first, stop) as one model. Reads the blobs of graphs, none of weights.

    Raises CorruptStore for a graph that breaks the rules, NotInStore where one is absent.
    """
    if not 0 <= first < stop <= len(manifest.units):
        raise ValueError(f"units [{first}, {stop}) of {len(manifest.units)}")
    if sum(unit.graph.bytes for unit in manifest.units[first:stop]) > MAX_RUN_BYTES:
        raise CorruptStore(f"units {first} to {stop - 1}: graphs of at most {MAX_RUN_BYTES} bytes expected")
    values = {value.name: value for value in manifest.values}
    inputs = tuple(values[name] for name in manifest.needed(first, stop))
    outputs = tuple(values[name] for name in manifest.given(first, stop))
    model = ModelProto(ir_version=IR_VERSION)
    model.graph.name = "run"
    model.graph.input.extend(map(_value_info, inputs))
    model.graph.output.extend(map(_value_info, outputs))
    mark = _mark(manifest)
    opsets: dict[str, int] = {}
    weights: dict[tuple[str, int, ValueType, tuple[int, ...]], str] = {}
    weight_bytes = 0
    for place in range(first, stop):
        unit = manifest.units[place]
        declared = Declared(
            unit.name,
            unit.graph,
            tuple(tensor.name for tensor in unit.tensors),
            len(unit.inputs),
            len(unit.outputs),
        )
        part = checked_graph(declared, blobs)
        for opset in part.opset_import:
            if opsets.setdefault(opset.domain, opset.version) != opset.version:
                raise wrong_graph(
                    unit.name, f"one version of the operators of {opset.domain[:80]!r} in all units expected"
                )
        prefix = f"{mark}{place}/"
        names = {f"in.{number}": name for number, name in enumerate(unit.inputs)}
        names |= {f"out.{number}": name for number, name in enumerate(unit.outputs)}
        inner = _inner(part.graph)
        for tensor in unit.tensors:
            blob = unit.weights[tensor.blob].sha256
            same = (blob, tensor.offset, tensor.dtype, tensor.shape)
            if tensor.name in inner:
                inner[tensor.name].CopyFrom(_external(tensor, blob, tensor.name))
                weight_bytes += tensor.bytes
                continue
            if same not in weights:
                weights[same] = f"{prefix}{tensor.name}"
                weight_bytes += tensor.bytes
                model.graph.initializer.append(_external(tensor, blob, weights[same]))
            names[tensor.name] = weights[same]
        _rename(part.graph, names, prefix)
        model.graph.initializer.extend(part.graph.initializer)
        model.graph.node.extend(part.graph.node)
    for domain, version in sorted(opsets.items()):
        model.opset_import.add(domain=domain, version=version)
    model.DiscardUnknownFields()
    return Composed(model.SerializeToString(deterministic=True), inputs, outputs, weight_bytes)


def _external(tensor: Weight, blob: str, name: str) -> TensorProto:
    proto = TensorProto(
        name=name,
        data_type=ELEMENT_TYPES[tensor.dtype],
        dims=tensor.shape,
        data_location=TensorProto.EXTERNAL,
    )
    for key, fact in (("location", blob), ("offset", tensor.offset), ("length", tensor.bytes)):
        proto.external_data.add(key=key, value=str(fact))
    return proto


def _inner(graph: GraphProto) -> dict[str, TensorProto]:
    """The initializers of bodies, by name."""
    found: dict[str, TensorProto] = {}
    for node in graph.node:
        for attribute in node.attribute:
            for body in _bodies(attribute):
                found.update((tensor.name, tensor) for tensor in body.initializer)
                found.update(_inner(body))
    return found


def _mark(manifest: GraphManifest) -> str:
    """How local names begin, as no value's name does."""
    mark = "u"
    while any(value.name.startswith(mark) for value in manifest.values):
        mark += "_"
    return mark


def _value_info(value: Value) -> ValueInfoProto:
    return onnx.helper.make_tensor_value_info(value.name, ELEMENT_TYPES[value.dtype], list(value.shape))


def wrong_graph(unit: str, problem: str) -> CorruptStore:
    """The error for the graph of the unit of that name."""
    return CorruptStore(f"graph of unit {unit[:80]}: {problem}; import the model again")


def checked_graph(unit: Declared, blobs: Blobs) -> ModelProto:
    """The graph of a unit, whose names resolve and whose size is bounded. Raises CorruptStore, NotInStore."""
    encoded = _graph_bytes(unit, blobs)
    model = ModelProto()
    try:
        model.ParseFromString(encoded)
    except DecodeError:
        raise wrong_graph(unit.name, "an ONNX model expected") from None
    domains = [opset.domain for opset in model.opset_import]
    if not all(isinstance(domain, str) for domain in domains):  # bytes that are no UTF-8
        raise wrong_graph(unit.name, "names in UTF-8 expected")
    if model.functions or model.training_info or len(set(domains)) != len(domains):
        raise wrong_graph(unit.name, "no functions, no training, each domain of operators once expected")
    graph = model.graph
    inputs = [f"in.{number}" for number in range(unit.inputs)]
    outputs = [f"out.{number}" for number in range(unit.outputs)]
    if [value.name for value in graph.input] != inputs or [value.name for value in graph.output] != outputs:
        raise wrong_graph(
            unit.name,
            f"inputs in.0 to in.{len(inputs) - 1}, outputs out.0 to out.{len(outputs) - 1} expected",
        )
    names = _Names(unit)
    inner = _inner(graph)
    for name in unit.tensors:
        if name not in inner:
            names.define(name)
    made = _check(graph, unit, names, 0)
    if not set(outputs) <= made:
        raise wrong_graph(unit.name, "each output made by a node expected")
    return model


def _graph_bytes(unit: Declared, blobs: Blobs) -> bytes:
    blob = unit.graph
    if blob.bytes > MAX_GRAPH_BYTES:
        raise wrong_graph(unit.name, f"at most {MAX_GRAPH_BYTES} bytes expected, got {blob.bytes}")
    with blobs.blob_path(blob.sha256).open("rb") as file:
        encoded = file.read(blob.bytes + 1)
    if hashlib.sha256(encoded).hexdigest() != blob.sha256:
        raise CorruptStore(f"blob {blob.sha256[:12]} has other bytes than its name says; fetch it again")
    return encoded


class _Names:
    """Which names of a unit can be used at a place, each made once in the whole unit."""

    def __init__(self, unit: Declared) -> None:
        self._unit = unit
        self._made: set[str] = set()
        self._visible: set[str] = set()
        self.nodes = 0

    def define(self, name: str | bytes) -> None:
        """Takes that it is made here. Protobuf gives bytes that are no UTF-8 as they are."""
        if isinstance(name, bytes):
            raise wrong_graph(self._unit.name, "names in UTF-8 expected")
        if not name or name in self._made:
            raise wrong_graph(
                self._unit.name, f"names that differ expected, got {name[:80]!r} twice or empty"
            )
        self._made.add(name)
        self._visible.add(name)

    def use(self, name: str | bytes) -> None:
        if isinstance(name, bytes):
            raise wrong_graph(self._unit.name, "names in UTF-8 expected")
        if name not in self._visible:
            raise wrong_graph(self._unit.name, f"{name[:80]!r} is used and not made before")

    def forget(self, names: set[str]) -> None:
        self._visible -= names


def _check(graph: GraphProto, unit: Declared, names: _Names, depth: int) -> set[str]:
    """The names that nodes of this graph make. Raises CorruptStore for what is not bounded or does not resolve."""
    if graph.sparse_initializer:
        raise wrong_graph(unit.name, "no sparse tensors expected")
    local = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    for name in local:
        names.define(name)
    for tensor in graph.initializer:
        _check_tensor(tensor, unit)
    made: set[str] = set()
    names.nodes += len(graph.node)
    if names.nodes > MAX_NODES:
        raise wrong_graph(unit.name, f"at most {MAX_NODES} nodes expected")
    for node in graph.node:
        if node.overload or not node.op_type:
            raise wrong_graph(unit.name, "nodes of operators expected, got one of a function or of none")
        for name in filter(None, node.input):
            names.use(name)
        for attribute in node.attribute:
            _check_attribute(attribute, unit, names, depth)
        for name in filter(None, node.output):
            names.define(name)
            made.add(name)
    if depth:
        for value in graph.output:
            names.use(value.name)
        names.forget(made.union(local))
    return made


def _check_attribute(attribute: AttributeProto, unit: Declared, names: _Names, depth: int) -> None:
    if attribute.ref_attr_name or attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
        raise wrong_graph(unit.name, "attributes without references and sparse tensors expected")
    for tensor in _tensors(attribute):
        _check_tensor(tensor, unit)
    for body in _bodies(attribute):
        if depth == MAX_DEPTH:
            raise wrong_graph(unit.name, f"bodies at most {MAX_DEPTH} deep expected")
        _check(body, unit, names, depth + 1)


def _check_tensor(tensor: TensorProto, unit: Declared) -> None:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise wrong_graph(unit.name, "constants that it holds itself expected, got one of a file")


def _tensors(attribute: AttributeProto) -> list[TensorProto]:
    return [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]


def _bodies(attribute: AttributeProto) -> list[GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _rename(graph: GraphProto, names: Mapping[str, str], prefix: str) -> None:
    """Renames all that a unit's graph names: by `names`, and the rest with the prefix. Drops what is for people."""

    def renamed(name: str) -> str:
        return names.get(name, prefix + name) if name else ""

    for field in ("value_info", "quantization_annotation", "metadata_props", "doc_string"):
        graph.ClearField(field)
    for value in (*graph.input, *graph.output):
        value.name = renamed(value.name)
    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    for node in graph.node:
        for field in ("name", "doc_string", "metadata_props", "device_configurations"):
            node.ClearField(field)
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
        for attribute in node.attribute:
            for body in _bodies(attribute):
                _rename(body, names, prefix)
