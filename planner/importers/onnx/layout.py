"""How a network, cut into groups of steps, is stored: a graph for each unit, blobs of weights, and the manifest.

Edge: writes into a store. Names in a graph are given in the order of use, so that equal units have equal graphs: in.0
and out.0 for what it takes and makes, w.0 for weights, c.0 for constants that it holds itself, t.0 for all between. A
weight that several units use lies in a blob of those that exactly these units use; equal bytes are stored once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from planner.errors import UnknownArchitecture
from planner.importers.onnx.borders import Group
from planner.importers.onnx.components import components
from planner.importers.onnx.costs import FLOPS_A_STEP, Probes, Seen, flops, sum_of_terms, value_bytes, work
from planner.importers.onnx.folding import Network, Step, bodies_of
from planner.importers.onnx.reading import DTYPES
from planner.importers.onnx.samples import Sample
from planner.model.compose import MAX_GRAPH_BYTES
from planner.model.graph_manifest import (
    ALIGNED,
    HALF_BYTES,
    MAX_PORTS,
    MAX_UNIT_BLOBS,
    MAX_UNIT_TENSORS,
    MAX_VALUE_CHARS,
    GraphManifest,
    GraphUnit,
    Term,
    Value,
    Weight,
    amount,
)
from planner.model.onnx_graph import IR_VERSION
from planner.model.store import BlobRef, Store

INSIDE_BYTES: Final = 1024  # larger constants are weights
INSIDE_FLOATS: Final = 8  # longer vectors of floats are learned, and differ between units that are else equal
_FLOATS: Final = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")


@dataclass(frozen=True, slots=True)
class Measured:
    """A network with what is known of its values: types, and shapes for several sizes."""

    name: str
    network: Network
    seen: Mapping[str, Seen]
    probes: Probes
    sample: Sample

    def flops(self, step: Step) -> float:
        """Floating-point operations of a step, with the sample."""
        return flops(step, self.probes.base, self._weights)

    def work(self, step: Step) -> tuple[Term, ...]:
        """What there is to do in a step, in floating-point operations of a large product, by symbolic sizes."""
        dtypes = {name: seen.dtype for name, seen in self.seen.items()}
        base = work(step, self.probes.base, self._weights, dtypes)
        doubled = {
            size: work(step, {**self.probes.base, **found}, self._weights, dtypes)
            for size, found in self.probes.doubled.items()
        }
        return (*self.probes.terms(doubled, base), Term(FLOPS_A_STEP))

    @property
    def _weights(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.dims) for name, tensor in self.network.weights.items()}

    def value(self, name: str) -> Value:
        """The value as a manifest has it. Raises UnknownArchitecture for what is no tensor of a known type."""
        seen = self.seen.get(name)
        shape = self.probes.base.get(name)
        if seen is None or shape is None:
            raise UnknownArchitecture(
                f"{self.name}: {name[:80]!r} crosses a border and is no tensor of numbers or text"
            )
        doubled = {size: value_bytes(seen.dtype, found[name]) for size, found in self.probes.doubled.items()}
        terms = self.probes.terms(doubled, value_bytes(seen.dtype, shape))
        axes = seen.shape if seen.shape is not None else tuple(f"{name}.{axis}" for axis in range(len(shape)))
        return Value(
            name,
            seen.dtype,
            tuple(axis[:MAX_VALUE_CHARS] if isinstance(axis, str) else axis for axis in axes),
            terms,
        )


@dataclass(frozen=True, slots=True)
class _UnitGraph:
    """`weights`: names in the network, in the order of w.0, w.1, …"""

    encoded: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    constants: tuple[str, ...]
    ops: tuple[str, ...]


def store_units(measured: Measured, groups: Sequence[Group], store: Store) -> GraphManifest:
    """The manifest of the network in these units, after its blobs are in the store. Raises ModelError or StoreError."""
    network = measured.network
    owner = {
        output: place
        for place, group in enumerate(groups)
        for step in group
        for output in network.steps[step].outputs
    }
    leaving = set(network.outputs)
    for place, group in enumerate(groups):
        leaving |= {
            name for step in group for name in network.steps[step].inputs if owner.get(name, place) != place
        }
    graphs = [
        _unit_graph(network, [network.steps[step] for step in group], leaving, measured.name)
        for group in groups
    ]
    placed = _stored_weights(network, [graph.weights for graph in graphs], store)
    values = dict.fromkeys((*network.inputs, *(name for graph in graphs for name in graph.outputs)))
    terms_of = [measured.work(step) for step in network.steps]
    works = [amount(terms, measured.sample.sizes) for terms in terms_of]
    parts = components(
        [[(network.steps[step].outputs[0], works[step]) for step in group] for group in groups]
    )
    units = []
    for place, (graph, group, (blobs, tensors)) in enumerate(zip(graphs, groups, placed, strict=True)):
        inside = [network.weights[name] for name in graph.constants]
        units.append(
            GraphUnit(
                f"unit.{place}",
                parts[place],
                store.put_blob([graph.encoded]),
                blobs,
                tensors,
                graph.inputs,
                graph.outputs,
                sum(math.prod(tensor.shape) for tensor in tensors),
                sum(tensor.bytes for tensor in tensors) + sum(tensor.ByteSize() for tensor in inside),
                sum_of_terms([terms_of[step] for step in group]),
                graph.ops,
            )
        )
    return GraphManifest(
        measured.name,
        network.inputs,
        network.outputs,
        dict(measured.sample.sizes),
        tuple(measured.value(name) for name in values),
        tuple(units),
        opset=network.opsets.get("", 0),
    )


def stays_inside(tensor: TensorProto) -> bool:
    """Whether a constant is part of the graph: text, small numbers that say how to compute, and what is empty."""
    dtype = DTYPES.get(tensor.data_type)
    count: int = math.prod(tensor.dims)
    if dtype is None or dtype == "string" or count == 0:
        return True
    if dtype in _FLOATS:
        return count <= INSIDE_FLOATS
    size = count * HALF_BYTES[dtype] / 2
    return size <= INSIDE_BYTES


class _Names:
    """Names in a unit's graph, given as they come up."""

    def __init__(self, network: Network, made: set[str], leaving: set[str]) -> None:
        self.network = network
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.weights: list[str] = []
        self.constants: list[str] = []
        self._made = made
        self._leaving = leaving
        self._names: dict[str, str] = {}
        self._between = 0

    def used(self, name: str) -> str:
        """The name of what a node takes."""
        if not name:
            return ""
        if name not in self._names:
            tensor = self.network.weights.get(name)
            kind, found = ("in", self.inputs) if tensor is None else ("w", self.weights)
            if tensor is not None and stays_inside(tensor):
                kind, found = "c", self.constants
            self._names[name] = f"{kind}.{len(found)}"
            found.append(name)
        return self._names[name]

    def inner(self, tensor: TensorProto) -> TensorProto:
        """A weight of a body as the graph has it: its name alone where its numbers lie in a blob."""
        if stays_inside(tensor):
            return _constant(self.network, tensor.name, self.made(tensor.name))
        return TensorProto(name=self.used(tensor.name))

    def made(self, name: str) -> str:
        """The name of what a node makes, or of what a body is given."""
        if not name:
            return ""
        if name in self._made and name in self._leaving:
            self._names[name] = f"out.{len(self.outputs)}"
            self.outputs.append(name)
        else:
            self._names[name] = f"t.{self._between}"
            self._between += 1
        return self._names[name]


def _unit_graph(network: Network, steps: Sequence[Step], leaving: set[str], name: str) -> _UnitGraph:
    names = _Names(network, {output for step in steps for output in step.outputs}, leaving)
    model = ModelProto(ir_version=IR_VERSION)
    model.graph.name = "unit"
    model.graph.node.extend(_node(step.proto, names) for step in steps)
    ops = sorted({op for node in model.graph.node for op in _operators(node)})
    for domain in sorted({"", *(domain for domain, _ in ops)}):
        model.opset_import.add(domain=domain, version=network.opsets[domain])
    for number, _ in enumerate(names.inputs):
        model.graph.input.add(name=f"in.{number}")
    for number, _ in enumerate(names.outputs):
        model.graph.output.add(name=f"out.{number}")
    for number, constant in enumerate(names.constants):
        model.graph.initializer.append(_constant(network, constant, f"c.{number}"))
    encoded = model.SerializeToString(deterministic=True)
    most = max(len(names.inputs), len(names.outputs)), len(names.weights)
    if len(encoded) > MAX_GRAPH_BYTES or most[0] > MAX_PORTS or most[1] > MAX_UNIT_TENSORS:
        raise UnknownArchitecture(
            f"{name}: a part that cannot be cut has {len(encoded)} bytes of graph, {most[0]} inputs or outputs and "
            f"{most[1]} weights: at most {MAX_GRAPH_BYTES}, {MAX_PORTS} and {MAX_UNIT_TENSORS} expected"
        )
    return _UnitGraph(
        encoded,
        tuple(names.inputs),
        tuple(names.outputs),
        tuple(names.weights),
        tuple(names.constants),
        tuple(f"{domain}:{op}" if domain else op for domain, op in ops),
    )


def _node(source: NodeProto, names: _Names) -> NodeProto:
    node = NodeProto(op_type=source.op_type, domain=source.domain)
    node.input.extend(names.used(each) for each in source.input)
    for attribute in sorted(source.attribute, key=lambda attribute: attribute.name):
        copy = node.attribute.add()
        copy.CopyFrom(attribute)
        copy.ClearField("doc_string")
        for body, own in zip(bodies_of(attribute), bodies_of(copy), strict=True):
            own.CopyFrom(_body(body, names))
    node.output.extend(names.made(each) for each in source.output)
    return node


def _body(source: GraphProto, names: _Names) -> GraphProto:
    body = GraphProto(name="body")
    body.input.extend(_port(value, names.made(value.name)) for value in source.input)
    body.initializer.extend(names.inner(tensor) for tensor in source.initializer)
    body.node.extend(_node(node, names) for node in source.node)
    body.output.extend(_port(value, names.used(value.name)) for value in source.output)
    return body


def _port(source: ValueInfoProto, name: str) -> ValueInfoProto:
    """An input or output of a body: sizes that are no numbers are the operator's to infer."""
    port = ValueInfoProto(name=name)
    if source.type.HasField("tensor_type"):
        port.type.CopyFrom(source.type)
        for dim in port.type.tensor_type.shape.dim:
            dim.ClearField("denotation")
            dim.ClearField("dim_param")
    return port


def _operators(node: NodeProto) -> Iterator[tuple[str, str]]:
    yield node.domain, node.op_type
    for attribute in node.attribute:
        for body in bodies_of(attribute):
            for inner in body.node:
                yield from _operators(inner)


def _constant(network: Network, name: str, called: str) -> TensorProto:
    source = network.weights[name]
    tensor = TensorProto(name=called, data_type=source.data_type, dims=source.dims)
    if source.data_type == TensorProto.STRING:
        tensor.string_data.extend(source.string_data)
    else:
        tensor.raw_data = network.tensor(name).tobytes()
    return tensor


def _stored_weights(
    network: Network, units: Sequence[Sequence[str]], store: Store
) -> list[tuple[tuple[BlobRef, ...], tuple[Weight, ...]]]:
    """For each unit its blobs, and its tensors in them."""
    sources: dict[str, str] = {}  # by weight, the first one of the same bytes
    hashes: dict[tuple[int, tuple[int, ...], str], str] = {}
    users: dict[str, dict[int, None]] = {}
    for place, names in enumerate(units):
        for name in names:
            if name not in sources:
                tensor = network.weights[name]
                digest = hashlib.sha256(network.tensor(name).tobytes()).hexdigest()
                sources[name] = hashes.setdefault((tensor.data_type, tuple(tensor.dims), digest), name)
            users.setdefault(sources[name], {})[place] = None
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, places in users.items():
        groups.setdefault(tuple(places), []).append(name)
    counts = [sum(place in group for group in groups) for place in range(len(units))]
    if max(counts, default=0) > MAX_UNIT_BLOBS:  # all that is shared in one
        merged: dict[tuple[int, ...], list[str]] = {}
        for group, names in groups.items():
            merged.setdefault(group if len(group) == 1 else (-1,), []).extend(names)
        groups = merged
    places_of: dict[str, tuple[BlobRef, int]] = {}
    for names in groups.values():
        offsets: dict[str, int] = {}
        blob = store.put_blob(_aligned(network, names, offsets))
        places_of |= {name: (blob, offset) for name, offset in offsets.items()}
    found = []
    for names in units:
        blobs: dict[str, BlobRef] = {}
        for name in names:
            blob = places_of[sources[name]][0]
            blobs[blob.sha256] = blob
        order = list(blobs)
        tensors = []
        for number, name in enumerate(names):
            blob, offset = places_of[sources[name]]
            proto = network.weights[name]
            tensors.append(
                Weight(
                    f"w.{number}",
                    DTYPES[proto.data_type],
                    tuple(proto.dims),
                    order.index(blob.sha256),
                    offset,
                    network.tensor(name).nbytes,
                )
            )
        found.append((tuple(blobs.values()), tuple(tensors)))
    return found


def _aligned(network: Network, names: Sequence[str], offsets: dict[str, int]) -> Iterator[bytes]:
    """The bytes of weights, each 64-aligned. Fills `offsets` as it goes."""
    at = 0
    for name in names:
        filling = -at % ALIGNED
        content = network.tensor(name).tobytes()
        offsets[name] = at + filling
        at += filling + len(content)
        yield bytes(filling)
        yield content
