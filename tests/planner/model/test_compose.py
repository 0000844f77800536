"""Runs of units as one ONNX model: names, weights, bodies, and hostile graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from planner.errors import CorruptStore, NotInStore
from planner.model.compose import MAX_DEPTH, MAX_NODES, Composed, compose
from planner.model.graph_manifest import (
    GraphManifest,
    GraphUnit,
    Size,
    Value,
    ValueType,
    Weight,
    decode_graph_manifest,
    encode_graph_manifest,
)
from planner.model.store import BlobRef, Store

Array = np.ndarray[Any, Any]
Values = Mapping[str, tuple[ValueType, tuple[Size, ...]]]
OPSET = 17


@dataclass(frozen=True)
class Plan:
    """One unit of a test: nodes in canonical names, weights by name; `shared` names weights of all such units."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[NodeProto]
    weights: Mapping[str, Array]
    shared: tuple[str, ...] = ()


def graph_bytes(
    nodes: Sequence[NodeProto],
    inputs: int,
    outputs: int,
    change: Callable[[onnx.ModelProto], None] | None = None,
) -> bytes:
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.add(domain="", version=OPSET)
    model.graph.node.extend(nodes)
    for number in range(inputs):
        model.graph.input.add(name=f"in.{number}")
    for number in range(outputs):
        model.graph.output.add(name=f"out.{number}")
    if change is not None:
        change(model)
    return model.SerializeToString()


def blob_with(store: Store, arrays: Mapping[str, Array]) -> tuple[BlobRef, dict[str, int]]:
    content, places = b"", {}
    for name, array in arrays.items():
        content += bytes(-len(content) % 64)
        places[name] = len(content)
        content += array.tobytes()
    return store.put_blob([content]), places


def stored(
    store: Store, plans: Sequence[Plan], values: Values, inputs: Sequence[str], outputs: Sequence[str]
) -> GraphManifest:
    shared = {name: plan.weights[name] for plan in plans for name in plan.shared}
    common, common_places = blob_with(store, shared) if shared else (None, {})
    units = []
    for number, plan in enumerate(plans):
        own = {name: array for name, array in plan.weights.items() if name not in plan.shared}
        blobs, tensors = [], []
        for arrays, at in ((own, None), (shared if plan.shared else {}, common_places)):
            if not arrays:
                continue
            blob, places = blob_with(store, arrays) if at is None else (common, at)
            assert blob is not None
            blobs.append(blob)
            tensors += [
                Weight(name, str(array.dtype), array.shape, len(blobs) - 1, places[name], array.nbytes)  # type: ignore[arg-type]
                for name, array in arrays.items()
            ]
        graph = store.put_blob([graph_bytes(plan.nodes, len(plan.inputs), len(plan.outputs))])
        units.append(
            GraphUnit(
                f"unit.{number}", "graph", graph, tuple(blobs), tuple(tensors), plan.inputs, plan.outputs,
                sum(math.prod(tensor.shape) for tensor in tensors), sum(tensor.bytes for tensor in tensors), (), (),
            )
        )  # fmt: skip
    manifest = GraphManifest(
        "made up", tuple(inputs), tuple(outputs), {}, tuple(Value(n, d, s, ()) for n, (d, s) in values.items()),
        tuple(units),
    )  # fmt: skip
    assert decode_graph_manifest(encode_graph_manifest(manifest)) == manifest
    return manifest


def run(store: Store, composed: Composed, feed: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(store.root / "blobs")
    )
    session = onnxruntime.InferenceSession(composed.model, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in composed.outputs]
    assert [each.name for each in session.get_inputs()] == [value.name for value in composed.inputs]
    assert [each.name for each in session.get_outputs()] == names
    wanted = {value.name: feed[value.name] for value in composed.inputs}
    return dict(zip(names, session.run(names, wanted), strict=True))


def linear(relu: bool = True) -> list[NodeProto]:
    nodes = [
        helper.make_node("MatMul", ["in.0", "w.0"], ["t.0"]),
        helper.make_node("Add", ["t.0", "w.1"], ["t.1" if relu else "out.0"]),
    ]
    return [*nodes, helper.make_node("Relu", ["t.1"], ["out.0"])] if relu else nodes


def chain(store: Store) -> tuple[GraphManifest, dict[str, Array], Array]:
    """Four equal linears that have a matrix in common; its values have names that look like local ones."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((8, 8), np.float32)
    biases = [rng.standard_normal(8, np.float32) for _ in range(4)]
    names = ["x", "u0/t.0", "in.0", "t.0", "out.0"]
    plans = [
        Plan((names[i],), (names[i + 1],), linear(), {"w.0": matrix, "w.1": biases[i]}, ("w.0",))
        for i in range(4)
    ]
    manifest = stored(store, plans, dict.fromkeys(names, ("float32", ("rows", 8))), ["x"], ["out.0"])
    x = rng.standard_normal((3, 8), np.float32)
    whole = run(store, compose(manifest, store, 0, 4), {"x": x})
    return manifest, {"x": x}, whole["out.0"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_run_has_names_types_and_shapes_of_its_values_and_weights_once(store: Store) -> None:
    manifest, _, _ = chain(store)
    composed = compose(manifest, store, 1, 3)
    model = onnx.load_from_string(composed.model)
    assert [value.name for value in composed.inputs] == ["u0/t.0"]
    assert [value.name for value in composed.outputs] == ["t.0"]
    shape = model.graph.input[0].type.tensor_type.shape
    assert [dim.dim_param or dim.dim_value for dim in shape.dim] == ["rows", 8]
    assert model.ir_version == 10
    assert [(each.domain, each.version) for each in model.opset_import] == [("", OPSET)]
    assert composed.weight_bytes == 4 * (64 + 2 * 8), "the matrix that both have counts once"
    assert len(model.graph.initializer) == 3
    assert {each.external_data[0].value for each in model.graph.initializer} == {
        blob.sha256 for unit in manifest.units[1:3] for blob in unit.weights
    }
    assert compose(manifest, store, 1, 3).model == composed.model
    assert len({unit.graph.sha256 for unit in manifest.units}) == 1, "equal graphs are one blob"


def test_every_cut_gives_the_bits_of_the_whole(store: Store) -> None:
    manifest, feed, expected = chain(store)
    for border in range(1, 4):
        values = dict(feed)
        for first, stop in ((0, border), (border, 4)):
            values |= run(store, compose(manifest, store, first, stop), values)
        assert values["out.0"].tobytes() == expected.tobytes()


def test_branches_join_and_an_output_can_be_used_after_it(store: Store) -> None:
    double = [helper.make_node("Add", ["in.0", "in.0"], ["out.0"])]
    add = [helper.make_node("Add", ["in.0", "in.1"], ["out.0"])]
    plans = [
        Plan(("x",), ("a",), double, {}),
        Plan(("x",), ("b",), linear(relu=False), {"w.0": np.eye(2, dtype=np.float32), "w.1": np.ones(2, np.float32)}),
        Plan(("a", "b"), ("y",), add, {}),
    ]  # fmt: skip
    values: Values = dict.fromkeys(("x", "a", "b", "y"), ("float32", (2,)))
    manifest = stored(store, plans, values, ["x"], ["y", "a"])
    feed: dict[str, Array] = {"x": np.array([1, 2], np.float32)}
    for cuts in ((0, 3), (0, 1, 3), (0, 2, 3), (0, 1, 2, 3)):
        found = dict(feed)
        for first, stop in pairwise(cuts):
            found |= run(store, compose(manifest, store, first, stop), found)
        np.testing.assert_array_equal(found["y"], [4, 7])
        np.testing.assert_array_equal(found["a"], [2, 4])


def body(nodes: Sequence[NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> onnx.GraphProto:
    def named(name: str) -> onnx.ValueInfoProto:
        return onnx.ValueInfoProto(name=name)

    return onnx.GraphProto(
        name="body",
        node=nodes,
        input=[named(name) for name in inputs],
        output=[named(name) for name in outputs],
    )


def test_bodies_and_what_they_take_from_around_them_are_renamed(store: Store) -> None:
    """Two units of one graph: If whose branches use an input, a weight, and a constant of their own."""
    then = body([helper.make_node("Mul", ["in.1", "w.0"], ["t.0"])], [], ["t.0"])
    then.initializer.append(numpy_helper.from_array(np.array([10], np.float32), "c.0"))
    then.node.append(helper.make_node("Add", ["t.0", "c.0"], ["t.1"]))
    then.output[0].name = "t.1"
    other = body([helper.make_node("Add", ["in.1", "w.0"], ["t.2"])], [], ["t.2"])
    nodes = [helper.make_node("If", ["in.0"], ["out.0"], then_branch=then, else_branch=other)]
    plans = [
        Plan(("flag", "x"), ("m",), nodes, {"w.0": np.full(2, 3, np.float32)}),
        Plan(("flag", "m"), ("y",), nodes, {"w.0": np.full(2, 5, np.float32)}),
    ]
    values: Values = {
        "flag": ("bool", (1,)), "x": ("float32", (2,)), "m": ("float32", (2,)), "y": ("float32", (2,)),
    }  # fmt: skip
    manifest = stored(store, plans, values, ["flag", "x"], ["y"])
    for flag, expected in ((True, [5 * (3 * 1 + 10) + 10, 5 * (3 * 2 + 10) + 10]), (False, [9, 10])):
        feed: dict[str, Array] = {"flag": np.array([flag]), "x": np.array([1, 2], np.float32)}
        found = run(store, compose(manifest, store, 0, 2), feed)
        np.testing.assert_array_equal(found["y"], expected)


def test_a_weight_that_a_body_lists_stays_in_it(store: Store) -> None:
    """Kernels prepare weights of their own graph, so that the same weight elsewhere may give other bits."""
    then = body([helper.make_node("Mul", ["in.1", "w.0"], ["t.0"])], [], ["t.0"])
    then.initializer.add(name="w.0")
    other = body([helper.make_node("Add", ["in.1", "w.1"], ["t.1"])], [], ["t.1"])
    nodes = [helper.make_node("If", ["in.0"], ["out.0"], then_branch=then, else_branch=other)]
    weights = {"w.0": np.full(2, 3, np.float32), "w.1": np.full(2, 5, np.float32)}
    values: Values = {"flag": ("bool", (1,)), "x": ("float32", (2,)), "y": ("float32", (2,))}
    manifest = stored(store, [Plan(("flag", "x"), ("y",), nodes, weights)], values, ["flag", "x"], ["y"])
    composed = compose(manifest, store, 0, 1)
    model = onnx.load_from_string(composed.model)
    assert [tensor.name for tensor in model.graph.initializer] == ["u0/w.1"]
    (inner,) = next(
        each for each in model.graph.node[0].attribute if each.name == "then_branch"
    ).g.initializer
    assert (inner.name, list(inner.dims), len(inner.external_data)) == ("u0/w.0", [2], 3)
    assert composed.weight_bytes == 16
    for flag, expected in ((True, [3, 6]), (False, [6, 7])):
        feed: dict[str, Array] = {"flag": np.array([flag]), "x": np.array([1, 2], np.float32)}
        np.testing.assert_array_equal(run(store, composed, feed)["y"], expected)


def test_units_of_two_versions_of_operators_do_not_join(store: Store) -> None:
    manifest, _, _ = chain(store)

    def older(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 11

    manifest = with_graph(manifest, store, graph_bytes(linear(), 1, 1, older), 1)
    with pytest.raises(CorruptStore, match="one version of the operators"):
        compose(manifest, store, 0, 4)


def with_graph(manifest: GraphManifest, store: Store, encoded: bytes, place: int = 0) -> GraphManifest:
    units = list(manifest.units)
    units[place] = replace(units[place], graph=store.put_blob([encoded]))
    return replace(manifest, units=tuple(units))


def nested(depth: int) -> list[NodeProto]:
    nodes = [helper.make_node("Identity", ["in.0"], [f"t.{depth}"])]
    for level in range(depth, 0, -1):
        inner = body(nodes, [], [f"t.{level}"])
        name = "out.0" if level == 1 else f"t.{level - 1}"
        nodes = [helper.make_node("If", ["in.0"], [name], then_branch=inner)]
    return nodes


def outside(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer.add(
        name="c.0", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="/etc/passwd")


def external_attribute(model: onnx.ModelProto) -> None:
    outside(model)
    attribute = model.graph.node[0].attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(model.graph.initializer.pop())


def sparse(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add(dims=[1 << 30, 1 << 30])


def function(model: onnx.ModelProto) -> None:
    model.functions.add(name="f", domain="d")


def training(model: onnx.ModelProto) -> None:
    model.training_info.add()


def twice(model: onnx.ModelProto) -> None:
    model.opset_import.add(domain="", version=OPSET)


def shadowed(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.input.add(name="in.0")


def endless(model: onnx.ModelProto) -> None:
    model.graph.node[0].input.append("t.1")


def stolen(model: onnx.ModelProto) -> None:
    model.graph.node[0].input.append("u0/t.0")


def ported(model: onnx.ModelProto) -> None:
    model.graph.input.add(name="in.1")


def unmade(model: onnx.ModelProto) -> None:
    model.graph.node.pop()


def referring(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.add(name="axis", ref_attr_name="a")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (outside, "constants that it holds itself"),
        (external_attribute, "constants that it holds itself"),
        (sparse, "no sparse tensors"),
        (function, "no functions"),
        (training, "no training"),
        (twice, "each domain of operators once"),
        (shadowed, "names that differ"),
        (endless, "'t.1' is used and not made before"),
        (stolen, "'u0/t.0' is used and not made before"),
        (ported, "inputs in.0 to in.0"),
        (unmade, "each output made by a node"),
        (referring, "attributes without references"),
    ],
)
def test_hostile_graphs_are_refused(
    store: Store, change: Callable[[onnx.ModelProto], None], says: str
) -> None:
    manifest, _, _ = chain(store)
    manifest = with_graph(manifest, store, graph_bytes(linear(), 1, 1, change))
    with pytest.raises(
        CorruptStore, match=rf"graph of unit unit\.0: .*{says}.*; import the model again"
    ) as caught:
        compose(manifest, store, 0, 1)
    assert "\n" not in str(caught.value)


def test_bodies_are_bounded_in_depth(store: Store) -> None:
    manifest, _, _ = chain(store)
    compose(with_graph(manifest, store, graph_bytes(nested(MAX_DEPTH), 1, 1)), store, 0, 1)
    for depth in (MAX_DEPTH + 1, 24):
        with pytest.raises(CorruptStore, match="at most 8 deep expected"):
            compose(with_graph(manifest, store, graph_bytes(nested(depth), 1, 1)), store, 0, 1)


def test_bytes_are_bounded_and_checked_before_they_are_parsed(store: Store) -> None:
    manifest, _, _ = chain(store)
    for encoded, says in (
        (bytes(5 << 20), "at most 4194304 bytes"),
        (b"\xff" * 99, "an ONNX model expected"),
    ):
        with pytest.raises(CorruptStore, match=says):
            compose(with_graph(manifest, store, encoded), store, 0, 1)
    many = graph_bytes([NodeProto()] * (MAX_NODES + 1), 1, 1)
    with pytest.raises(CorruptStore, match=f"at most {MAX_NODES} nodes"):
        compose(with_graph(manifest, store, many), store, 0, 1)
    path = store.blob_path(manifest.units[0].graph.sha256)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptStore, match="other bytes than its name says"):
        compose(manifest, store, 0, 1)
    path.unlink()
    with pytest.raises(NotInStore):
        compose(manifest, store, 0, 1)
