"""What an ONNX file has to be before anything runs it, and the same model without what runs do not need.

Edge. Reads a hostile file; whoever calls this does so in a process of its own, with bounds on time and memory. All that
can be bounded by the file alone is bounded here: nodes, depth, what functions come to, sizes of tensors, where external
data lies. What needs the operators' own rules is left to onnxruntime, in the same process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.model.compose import ELEMENT_TYPES, MAX_DEPTH, MAX_NODES
from planner.model.graph_manifest import MAX_PORTS, MAX_RANK, MAX_SIZE, MAX_VALUE_CHARS, Size, ValueType
from planner.model.onnxruntime_import import all_operator_schemas

MAX_FILE_BYTES: Final = (2 << 30) - 1  # what protobuf can say; weights beyond lie in files beside it
MAX_TENSOR_BYTES: Final = 64 << 30
MAX_DENSE_BYTES: Final = 256 << 20  # of a sparse tensor, once it is one
MAX_LOCAL_FUNCTIONS: Final = 4096
LEAST_OPSET: Final = 11
NOBODYS_SIZES: Final = ("", "?", "None", "-1")  # what exporters write where they know no size

NOT_PASSED: Final[frozenset[ValueType]] = frozenset(
    ("bfloat16", "int4", "uint4", "complex64", "complex128")
)  # onnxruntime computes with some of them, and takes and gives none as arrays
DTYPES: Final[Mapping[int, ValueType]] = {number: dtype for dtype, number in ELEMENT_TYPES.items()}
_BITS: Final[Mapping[int, int]] = {
    TensorProto.FLOAT: 32, TensorProto.UINT8: 8, TensorProto.INT8: 8, TensorProto.UINT16: 16, TensorProto.INT16: 16,
    TensorProto.INT32: 32, TensorProto.INT64: 64, TensorProto.BOOL: 8, TensorProto.FLOAT16: 16, TensorProto.DOUBLE: 64,
    TensorProto.UINT32: 32, TensorProto.UINT64: 64, TensorProto.COMPLEX64: 64, TensorProto.COMPLEX128: 128,
    TensorProto.BFLOAT16: 16, TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT8E4M3FNUZ: 8, TensorProto.FLOAT8E5M2: 8,
    TensorProto.FLOAT8E5M2FNUZ: 8, TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT4E2M1: 4,
}  # fmt: skip
_NAMED_DOMAIN: Final = "ai.onnx"  # another name of ""

Function = tuple[str, str]  # domain and name


@dataclass(frozen=True, slots=True)
class Input:
    """What is given to a model: its axes have numbers, or names of sizes."""

    name: str
    dtype: ValueType
    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class ReadModel:
    """A checked model. `model` has no weights among its inputs and names every open axis of its inputs; external data
    is still outside, in `files`, below the folder of the file.
    """

    model: ModelProto
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    files: tuple[Path, ...]


def read_model(path: Path, name: str) -> ReadModel:
    """The model of a file. `name`: how messages call it. Raises a ModelError."""
    model = _parsed(path, name)
    check = _Check(name, path.parent)
    check.model(model)
    inputs = _prepare(model, name)
    outputs = tuple(value.name for value in model.graph.output)
    if len(set(outputs)) != len(outputs) or not 0 < len(outputs) <= MAX_PORTS:
        raise CorruptModel(f"{name}: 1 to {MAX_PORTS} outputs with names that differ expected")
    return ReadModel(model, inputs, outputs, tuple(sorted(check.files)))


def external_files(path: Path, name: str) -> tuple[str, ...]:
    """Where the external data of a file lies, in its folder. Raises a ModelError."""
    check = _Check(name, path.parent)
    check.model(_parsed(path, name))
    return tuple(sorted(file.relative_to(path.parent).as_posix() for file in check.files))


def _parsed(path: Path, name: str) -> ModelProto:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise CorruptModel(
                f"{name}: at most {MAX_FILE_BYTES} bytes expected, got {size}; put weights into external data"
            )
        encoded = path.read_bytes()
    except OSError as error:
        raise NoSuchModel(f"{path} cannot be read: {error.strerror}") from error
    model = ModelProto()
    try:
        model.ParseFromString(encoded)
    except DecodeError:
        raise CorruptModel(f"{name} is no ONNX file, or ends early: get it again") from None
    if not model.graph.node or not model.opset_import:
        raise CorruptModel(f"{name}: an ONNX model with nodes and versions of operators expected")
    return model


class _Check:
    """Walks a model once; `files` are those of external data."""

    def __init__(self, name: str, folder: Path) -> None:
        self.files: set[Path] = set()
        self._name = name
        self._folder = folder
        self._functions: Collection[Function] = ()
        self._calls: list[Function] = []
        self._nodes = 0

    def model(self, model: ModelProto) -> None:
        for opset in model.opset_import:
            if opset.domain in ("", _NAMED_DOMAIN) and opset.version < LEAST_OPSET:
                raise UnknownArchitecture(
                    f"{self._name}: operators of version {LEAST_OPSET} or newer expected, got {opset.version}; "
                    "export it anew, or convert it with onnx.version_converter"
                )
        if len(model.functions) > MAX_LOCAL_FUNCTIONS:
            raise self._wrong(f"at most {MAX_LOCAL_FUNCTIONS} functions expected")
        self._functions = {(function.domain, function.name) for function in model.functions}
        bodies: dict[Function, tuple[int, list[Function]]] = {}
        for function in model.functions:
            bodies[(function.domain, function.name)] = self._counted(function)
        nodes, calls = self._counted(model.graph)
        _expanded(nodes, calls, bodies, self._name)
        _check_acyclic(model.graph, self._name)

    def _counted(self, graph: GraphProto | FunctionProto) -> tuple[int, list[Function]]:
        """How many nodes it has, those of bodies included, and which functions they call."""
        self._calls = []
        before = self._nodes
        self._graph(graph, 0)
        return self._nodes - before, self._calls

    def _wrong(self, problem: str) -> CorruptModel:
        return CorruptModel(f"{self._name}: {problem}")

    def _graph(self, graph: GraphProto | FunctionProto, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._wrong(f"bodies of If, Loop and Scan at most {MAX_DEPTH} deep expected")
        self._nodes += len(graph.node)
        if self._nodes > MAX_NODES:
            raise self._wrong(f"at most {MAX_NODES} nodes expected")
        if isinstance(graph, GraphProto):
            for tensor in graph.initializer:
                self._tensor(tensor)
            for sparse in graph.sparse_initializer:
                self._sparse(sparse)
        for node in graph.node:
            self._operator(node)
            for attribute in node.attribute:
                self._attribute(attribute, depth)

    def _operator(self, node: NodeProto) -> None:
        domain = "" if node.domain == _NAMED_DOMAIN else node.domain
        if (node.domain, node.op_type) in self._functions:
            self._calls.append((node.domain, node.op_type))
        elif (domain, node.op_type) not in known_operators():
            whose = f"domain {domain[:80]}" if domain else "ONNX"
            raise UnknownArchitecture(
                f"{self._name}: the operator {node.op_type[:80]!r} of {whose} is not one that this onnxruntime has"
            )

    def _attribute(self, attribute: AttributeProto, depth: int) -> None:
        for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
            self._tensor(tensor)
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        for each in (*sparse, *attribute.sparse_tensors):
            self._sparse(each)
        for body in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            self._graph(body, depth + 1)

    def _sparse(self, sparse: Any) -> None:
        self._tensor(sparse.values)
        self._tensor(sparse.indices)
        size = self._bytes(sparse.values.name, sparse.values.data_type, sparse.dims)
        if size > MAX_DENSE_BYTES:
            raise self._wrong(
                f"sparse tensor {sparse.values.name[:80]!r} of {size} bytes once it is dense: at most "
                f"{MAX_DENSE_BYTES} expected"
            )

    def _bytes(self, name: str, data_type: int, dims: Collection[int]) -> int:
        if any(not 0 <= size <= MAX_SIZE for size in dims) or len(dims) > MAX_RANK:
            raise self._wrong(f"tensor {name[:80]!r} has the impossible shape {str(list(dims))[:80]}")
        size = (math.prod(dims) * _BITS.get(data_type, 8) + 7) // 8
        if size > MAX_TENSOR_BYTES:
            raise self._wrong(f"tensor {name[:80]!r} of {size} bytes: at most {MAX_TENSOR_BYTES} expected")
        return size

    def _tensor(self, tensor: TensorProto) -> None:
        if tensor.data_type != TensorProto.STRING and tensor.data_type not in _BITS:
            raise self._wrong(f"tensor {tensor.name[:80]!r} has the unknown type {tensor.data_type}")
        size = self._bytes(tensor.name, tensor.data_type, tensor.dims)
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            self._external(tensor, size)
        elif tensor.HasField("raw_data") and tensor.data_type != TensorProto.STRING:
            if len(tensor.raw_data) != size:
                raise self._wrong(
                    f"tensor {tensor.name[:80]!r} of {size} bytes has {len(tensor.raw_data)}: get the file again"
                )
        elif size > 8 * tensor.ByteSize():
            raise self._wrong(f"tensor {tensor.name[:80]!r} of {size} bytes has fewer: get the file again")

    def _external(self, tensor: TensorProto, size: int) -> None:
        facts = {entry.key: entry.value for entry in tensor.external_data}
        location = facts.get("location", "")
        parts = PurePosixPath(location.replace("\\", "/")).parts
        file = self._folder.joinpath(*parts) if parts else self._folder
        try:
            offset = int(facts.get("offset") or 0)
            length = int(facts.get("length") or size)
        except ValueError:
            raise self._wrong(f"external data of {tensor.name[:80]!r} at no place of a file") from None
        inside = os.path.realpath(self._folder) + os.sep
        if not parts or ".." in parts or os.path.isabs(location) or ":" in parts[0]:
            raise self._wrong(f"external data leaves the folder of the file: {location[:80]!r}")
        if not os.path.realpath(file).startswith(inside):
            raise self._wrong(f"external data leaves the folder of the file by a link: {location[:80]!r}")
        if not file.is_file():
            raise NoSuchModel(f"{self._name} needs the file {location[:200]!r} beside it: get that, too")
        if length != size or offset < 0 or offset + size > file.stat().st_size:
            raise self._wrong(
                f"external data of {tensor.name[:80]!r}: {size} bytes at {offset} of {location[:80]!r} expected, "
                f"which has {file.stat().st_size}"
            )
        self.files.add(file)


def _expanded(
    nodes: int, calls: list[Function], bodies: Mapping[Function, tuple[int, list[Function]]], name: str
) -> None:
    """Raises CorruptModel where functions call themselves, or come to too many nodes."""
    known: dict[Function, int] = {}

    def count(function: Function, callers: tuple[Function, ...]) -> int:
        if function in callers or len(callers) > 64:
            raise CorruptModel(f"{name}: function {function[1][:80]!r} calls itself, or calls go too deep")
        if function not in known:
            own, called = bodies[function]
            known[function] = own + sum(count(each, (*callers, function)) for each in called)
        return known[function]

    if nodes + sum(count(function, ()) for function in calls) > MAX_NODES:
        raise CorruptModel(f"{name}: at most {MAX_NODES} nodes expected once functions are put in place")


def _check_acyclic(graph: GraphProto, name: str) -> None:
    """Raises CorruptModel where nodes of the graph wait for each other."""
    made = {output: place for place, node in enumerate(graph.node) for output in node.output if output}
    waits = [
        {made[each] for each in captured(node) if each in made} for node in graph.node
    ]  # a node that needs itself waits for ever
    needed_by: dict[int, list[int]] = {}
    for place, others in enumerate(waits):
        for other in others:
            needed_by.setdefault(other, []).append(place)
    left = [len(others) for others in waits]
    ready = [place for place, count in enumerate(left) if count == 0]
    done = 0
    while ready:
        done += 1
        for later in needed_by.get(ready.pop(), ()):
            left[later] -= 1
            if left[later] == 0:
                ready.append(later)
    if done < len(graph.node):
        stuck = next(node for place, node in enumerate(graph.node) if left[place])
        what = stuck.name or stuck.op_type
        raise CorruptModel(f"{name}: the graph has a cycle, which node {what[:80]!r} is in or waits for")


def captured(node: NodeProto) -> tuple[str, ...]:
    """The names that a node takes from around it, its bodies included, each once."""
    found: dict[str, None] = dict.fromkeys(filter(None, node.input))
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            found.update(dict.fromkeys(_free(body)))
    return tuple(found)


def _free(graph: GraphProto) -> Iterator[str]:
    local = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    local |= {sparse.values.name for sparse in graph.sparse_initializer}
    local |= {output for node in graph.node for output in node.output}
    for node in graph.node:
        yield from (each for each in captured(node) if each not in local)
    yield from (value.name for value in graph.output if value.name and value.name not in local)


@cache
def known_operators() -> frozenset[Function]:
    """Domain and name of every operator that the installed onnxruntime has."""
    return frozenset(
        ("" if schema.domain == _NAMED_DOMAIN else schema.domain, schema.name)
        for schema in all_operator_schemas()
    )


def _prepare(model: ModelProto, name: str) -> tuple[Input, ...]:
    """Takes from the model what runs do not need; returns its inputs, whose open axes have names now."""
    for field in ("metadata_props", "training_info", "doc_string"):
        model.ClearField(field)
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    weights |= {sparse.values.name for sparse in graph.sparse_initializer}
    given = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(given)
    inputs = tuple(_input(value, name) for value in graph.input)
    if len({each.name for each in inputs}) != len(inputs) or len(inputs) > MAX_PORTS:
        raise CorruptModel(f"{name}: at most {MAX_PORTS} inputs with names that differ expected")
    return inputs


def _input(value: ValueInfoProto, name: str) -> Input:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or kind.elem_type not in DTYPES or not kind.HasField("shape"):
        raise UnknownArchitecture(
            f"{name}: input {value.name[:80]!r}: a tensor with a known type and number of axes expected"
        )
    if DTYPES[kind.elem_type] in NOT_PASSED:
        raise UnknownArchitecture(
            f"{name}: input {value.name[:80]!r}: {DTYPES[kind.elem_type]} cannot be given to onnxruntime: put a Cast "
            "into the model"
        )
    if not 0 < len(value.name) <= MAX_VALUE_CHARS or len(kind.shape.dim) > MAX_RANK:
        raise CorruptModel(
            f"{name}: input {value.name[:80]!r} has no name, a very long one, or too many axes"
        )
    shape: list[Size] = []
    for axis, dim in enumerate(kind.shape.dim):
        size = dim.dim_value if dim.HasField("dim_value") else 0
        if size > MAX_SIZE:
            raise CorruptModel(f"{name}: input {value.name[:80]!r} has the impossible size {size}")
        if size <= 0:
            said = dim.dim_param if dim.dim_param not in NOBODYS_SIZES else f"{value.name}.{axis}"
            dim.Clear()
            dim.dim_param = said[:MAX_VALUE_CHARS]
            shape.append(dim.dim_param)
        else:
            shape.append(size)
    return Input(value.name, DTYPES[kind.elem_type], tuple(shape))
