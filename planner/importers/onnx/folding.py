"""Constant work of a model done once, by onnxruntime's basic optimizations, and what is left as a graph of steps.

Edge. The optimized model lies in a folder of its own: a file, and its larger weights beside it, which are mapped when
they are read. In the graph that comes of it each name is made once, those of bodies included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx
import onnx_ir as ir
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from planner.errors import CorruptModel
from planner.importers.onnx.reading import ReadModel, captured
from planner.importers.onnx.sessions import NotRun, opened, options, refused
from planner.model.onnxruntime_import import ort

OUTSIDE_BYTES: Final = 1024  # larger weights lie beside the optimized file
FILE: Final = "folded.onnx"
WEIGHTS: Final = "folded.weights"


@dataclass(frozen=True, slots=True)
class Step:
    """One node. `inputs`: the values and weights it takes, its bodies included, each once. `inner`: weights that its
    bodies have. They stay there: kernels prepare weights of their own graph only, and compute otherwise with others.
    """

    proto: NodeProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inner: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """A folded model. Steps are in the order in which a depth-first walk from the outputs needs them, so that what only
    one branch needs stands together. `weights`: tensors by name; external ones lie in `folder`.
    """

    model: ModelProto
    folder: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    weights: Mapping[str, TensorProto]
    opsets: Mapping[str, int]

    def tensor(self, name: str) -> Any:
        """The weight as a tensor of onnx-ir, whose bytes are mapped where they lie outside."""
        proto = self.weights[name]
        if proto.data_location == TensorProto.EXTERNAL:
            facts = {entry.key: entry.value for entry in proto.external_data}
            return ir.ExternalTensor(
                facts["location"],
                int(facts.get("offset") or 0),
                int(facts["length"]),
                ir.DataType(proto.data_type),
                shape=ir.Shape(proto.dims),
                name=name,
                base_dir=str(self.folder),
            )
        return ir.serde.deserialize_tensor(proto)


def fold(read: ReadModel, source: Path, scratch: Path, name: str) -> Network:
    """The model with its constants folded, in `scratch`, a folder for this alone. Raises a ModelError."""
    chosen = options(source.parent)
    chosen.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    chosen.optimized_model_filepath = str(scratch / FILE)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", WEIGHTS),
        ("session.optimized_model_external_initializers_min_size_in_bytes", str(OUTSIDE_BYTES)),
    ):
        chosen.add_session_config_entry(key, value)
    try:
        opened(read.model.SerializeToString(), chosen)
    except NotRun as error:
        raise refused(name, error) from None
    model = onnx.load(str(scratch / FILE), load_external_data=False)
    return network_of(model, scratch, read, name)


def network_of(model: ModelProto, folder: Path, read: ReadModel, name: str) -> Network:
    """A model whose constants are folded, with its weights in `folder`, as steps. Raises CorruptModel."""
    graph = model.graph
    inner = _inner_weights(graph)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    given = tuple(each.name for each in read.inputs)
    _name_constant_outputs(graph, weights, read.outputs)
    steps = [
        Step(node, captured(node), tuple(filter(None, node.output)), _inner(node)) for node in graph.node
    ]
    if not steps:
        raise CorruptModel(f"{name}: a model that computes something expected, got outputs that never change")
    ordered = tuple(steps[place] for place in _depth_first(steps, read.outputs))
    used = {each for step in ordered for each in (*step.inputs, *step.inner)}
    return Network(
        model,
        folder,
        given,
        read.outputs,
        ordered,
        {each: tensor for each, tensor in (weights | inner).items() if each in used},
        {opset.domain: opset.version for opset in model.opset_import},
    )


def _depth_first(steps: list[Step], outputs: tuple[str, ...]) -> Iterator[int]:
    """Places of the steps that outputs need, each after what it needs."""
    made = {output: place for place, step in enumerate(steps) for output in step.outputs}
    seen: set[int] = set()
    for output in outputs:
        stack = [(made[output], False)] if output in made else []
        while stack:
            place, needs_done = stack.pop()
            if needs_done:
                yield place
            elif place not in seen:
                seen.add(place)
                stack.append((place, True))
                needs = [made[each] for each in steps[place].inputs if each in made]
                stack.extend((each, False) for each in reversed(needs) if each not in seen)


def _name_constant_outputs(
    graph: GraphProto, weights: dict[str, TensorProto], outputs: tuple[str, ...]
) -> None:
    """Outputs that are constants come out of a node, as all others."""
    for output in outputs:
        if output in weights:
            tensor = weights.pop(output)
            tensor.name = _fresh(f"{output}/constant", weights)
            weights[tensor.name] = tensor
            graph.node.insert(0, onnx.helper.make_node("Identity", [tensor.name], [output]))


def _fresh(name: str, taken: Mapping[str, object]) -> str:
    found, number = name, len(taken)
    while found in taken:
        found, number = f"{name}/{number}", number + 1
    return found


def _inner_weights(graph: GraphProto) -> dict[str, TensorProto]:
    """The weights of bodies, after names in bodies were changed that something else has, too."""
    taken: dict[str, None] = dict.fromkeys(value.name for value in graph.input)
    taken.update(dict.fromkeys(tensor.name for tensor in graph.initializer))
    taken.update(dict.fromkeys(output for node in graph.node for output in node.output))
    found: dict[str, TensorProto] = {}
    for node in graph.node:
        for body in _bodies(node):
            _rename_body(body, {}, taken, found)
    return found


def _rename_body(
    body: GraphProto, outer: Mapping[str, str], taken: dict[str, None], found: dict[str, TensorProto]
) -> None:
    names = dict(outer)

    def named(name: str) -> str:
        names[name] = _fresh(name, taken)
        taken[names[name]] = None
        return names[name]

    for value in body.input:
        value.name = named(value.name)
    for tensor in body.initializer:
        tensor.name = named(tensor.name)
        found[tensor.name] = tensor
    for node in body.node:
        node.input[:] = [names.get(each, each) for each in node.input]
        for inner in _bodies(node):
            _rename_body(inner, names, taken, found)
        node.output[:] = [named(each) if each else "" for each in node.output]
    for value in body.output:
        value.name = names.get(value.name, value.name)
    body.ClearField("value_info")


def _inner(node: NodeProto) -> tuple[str, ...]:
    found: list[str] = []
    for body in _bodies(node):
        found += [tensor.name for tensor in body.initializer]
        found += [name for each in body.node for name in _inner(each)]
    return tuple(found)


def _bodies(node: NodeProto) -> list[GraphProto]:
    return [body for attribute in node.attribute for body in bodies_of(attribute)]


def bodies_of(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
