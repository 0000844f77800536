"""Small ONNX models that tests make, each with the sizes that it runs with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Port = tuple[str, int, Sequence[int | str | None]]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


@dataclass(frozen=True)
class Made:
    """A model, sizes for its sample, and how many units it has at least."""

    model: ModelProto
    sizes: Mapping[str, int] = field(default_factory=dict)
    units: int = 2


def weights(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32) / 4


def built(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    arrays: Mapping[str, Array] | None = None,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "made up",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [numpy_helper.from_array(array, name) for name, array in (arrays or {}).items()],
    )
    opsets = [
        helper.make_opsetid(domain, version) for domain, version in {"": opset, **(domains or {})}.items()
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def linear(source: str, target: str, name: str) -> list[NodeProto]:
    return [
        node("MatMul", [source, f"{name}.w"], [f"{name}.product"]),
        node("Add", [f"{name}.product", f"{name}.b"], [f"{name}.sum"]),
        node("Relu", [f"{name}.sum"], [target]),
    ]


def linear_weights(*names: str, width: int = 16) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for seed, name in enumerate(names):
        found |= {f"{name}.w": weights(width, width, seed=seed), f"{name}.b": weights(width, seed=seed)}
    return found


def chain() -> Made:
    nodes = [*linear("x", "a", "one"), *linear("a", "b", "two"), *linear("b", "y", "three")]
    ports = [("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16])]
    return Made(built(nodes, *ports, linear_weights("one", "two", "three")), {"rows": 3}, 3)


def residual() -> Made:
    """Six equal blocks of two linears beside their input."""
    nodes: list[NodeProto] = []
    names = []
    for block in range(6):
        up, down = f"up.{block}", f"down.{block}"
        names += [up, down]
        nodes += [*linear(f"h.{block}", f"m.{block}", up), *linear(f"m.{block}", f"d.{block}", down)]
        nodes.append(node("Add", [f"h.{block}", f"d.{block}"], [f"h.{block + 1}"]))
    ports = [("h.0", FLOAT, ["rows", 16])], [("h.6", FLOAT, ["rows", 16])]
    return Made(built(nodes, *ports, linear_weights(*names)), {"rows": 4}, 6)


def towers() -> Made:
    """Two branches of their own inputs, joined at the end; their nodes alternate in the file."""
    left = [*linear("x", "l.1", "l1"), *linear("l.1", "l.2", "l2"), *linear("l.2", "l.3", "l3")]
    right = [*linear("z", "r.1", "r1"), *linear("r.1", "r.2", "r2"), *linear("r.2", "r.3", "r3")]
    nodes = [each for pair in zip(left, right, strict=True) for each in pair]
    nodes.append(node("Mul", ["l.3", "r.3"], ["y"]))
    ports = [("x", FLOAT, ["n", 16]), ("z", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 16])]
    return Made(built(nodes, *ports, linear_weights("l1", "l2", "l3", "r1", "r2", "r3")), {"n": 2}, 5)


def body(
    nodes: Sequence[NodeProto], inputs: Sequence[Port], outputs: Sequence[Port], **arrays: Array
) -> GraphProto:
    return built(nodes, inputs, outputs, arrays).graph


def choice() -> Made:
    """If whose branches use a value and a weight from around them, and have weights of their own."""
    then = body([node("MatMul", ["a", "inner"], ["t"])], [], [("t", FLOAT, None)], inner=weights(16, 16))  # type: ignore[list-item]
    other = body([node("Add", ["a", "one.b"], ["t"])], [], [("t", FLOAT, None)])  # type: ignore[list-item]
    nodes = [
        *linear("x", "a", "one"),
        node("If", ["flag"], ["b"], then_branch=then, else_branch=other),
        *linear("b", "y", "two"),
    ]
    ports = [("flag", BOOL, []), ("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16])]
    return Made(built(nodes, *ports, linear_weights("one", "two")), {"rows": 3})


def loop() -> Made:
    """Loop that adds a weight from around it, and collects; then Scan that sums over rows."""
    inner = body(
        [
            node("Add", ["state", "one.b"], ["next"]),
            node("Identity", ["go"], ["on"]),
            node("Identity", ["next"], ["seen"]),
        ],
        [("turn", INT64, []), ("go", BOOL, []), ("state", FLOAT, [None, 16])],
        [("on", BOOL, []), ("next", FLOAT, [None, 16]), ("seen", FLOAT, [None, 16])],
    )
    step = body(
        [node("Add", ["total", "row"], ["more"]), node("Identity", ["more"], ["out"])],
        [("total", FLOAT, [16]), ("row", FLOAT, [16])],
        [("more", FLOAT, [16]), ("out", FLOAT, [16])],
    )
    nodes = [
        *linear("x", "a", "one"),
        node("Loop", ["turns", "", "a"], ["b", "every"], body=inner),
        node("Scan", ["zero", "b"], ["last", "c"], body=step, num_scan_inputs=1),
        *linear("c", "d", "two"),
        node("ReduceSum", ["every"], ["all"], keepdims=0),
        node("Add", ["d", "all"], ["y"]),
    ]
    arrays = linear_weights("one", "two") | {"turns": np.array(3), "zero": np.zeros(16, np.float32)}
    ports = [("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16]), ("last", FLOAT, [16])]
    return Made(built(nodes, *ports, arrays), {"rows": 3})


def recurrent() -> Made:
    nodes = [
        *linear("x", "a", "one"),
        node("LSTM", ["a", "w", "r"], ["all", "hidden", "cell"], hidden_size=8),
        node("Squeeze", ["all", "axis"], ["flat"]),
        node("MatMul", ["flat", "head"], ["y"]),
    ]
    arrays = linear_weights("one") | {
        "w": weights(1, 32, 16), "r": weights(1, 32, 8), "axis": np.array([1]), "head": weights(8, 4)
    }  # fmt: skip
    ports = [("x", FLOAT, ["length", 1, 16])], [("y", FLOAT, ["length", 1, 4]), ("cell", FLOAT, [1, 1, 8])]
    return Made(built(nodes, *ports, arrays), {"length": 5})


def shared() -> Made:
    """The first and the last step use one matrix; another one is there twice by name, with equal numbers."""
    nodes = [
        node("MatMul", ["x", "m"], ["a"]), *linear("a", "b", "one"), *linear("b", "c", "two"),
        node("MatMul", ["c", "m"], ["y"]),
    ]  # fmt: skip
    arrays = linear_weights("one", "two") | {"m": weights(16, 16, seed=9)}
    arrays["two.w"] = arrays["one.w"]
    return Made(
        built(nodes, [("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16])], arrays), {"rows": 3}, 3
    )


def types() -> Made:
    """Values of many types, one after another."""
    kinds = [INT64, TensorProto.INT8, TensorProto.FLOAT16, TensorProto.DOUBLE, BOOL, TensorProto.INT32, FLOAT]
    kinds += [TensorProto.STRING, TensorProto.DOUBLE, TensorProto.UINT8]
    nodes = [node("Mul", ["x", "three"], ["v.0"])]
    nodes += [node("Cast", [f"v.{place}"], [f"v.{place + 1}"], to=kind) for place, kind in enumerate(kinds)]
    nodes.append(node("Identity", [f"v.{len(kinds)}"], ["y"]))
    ports = [("x", FLOAT, ["rows", 4])], [("y", TensorProto.UINT8, ["rows", 4])]
    return Made(built(nodes, *ports, {"three": np.array(3, np.float32)}), {"rows": 3}, 3)


def narrow() -> Made:
    """Weights of 4 and 8 bits; values of types that no border lets through, between others."""
    nodes = [
        *linear("x", "a", "one"),
        node("Cast", ["a"], ["b"], to=TensorProto.BFLOAT16),
        node("Cast", ["b"], ["c"], to=FLOAT),
        node("Cast", ["c"], ["d"], to=TensorProto.INT4),
        node("Cast", ["d"], ["e"], to=FLOAT),
        node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
        node("MatMul", ["e", "w"], ["f"]),
        node("QuantizeLinear", ["f", "step", "zero"], ["g"]),
        node("DequantizeLinear", ["g", "step", "zero"], ["h"]),
        *linear("h", "y", "two"),
    ]
    arrays = linear_weights("one", "two") | {
        "s": weights(16) + 1, "step": np.array(0.05, np.float32), "zero": np.array(7, np.uint8)
    }  # fmt: skip
    ports = [("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16])]
    model = built(nodes, *ports, arrays, opset=21)
    numbers = np.random.default_rng(0).integers(-8, 8, 256).tolist()
    model.graph.initializer.append(helper.make_tensor("q", TensorProto.INT4, [16, 16], numbers))
    model.ir_version = 10
    return Made(model, {"rows": 3}, 3)


def attention() -> Made:
    """Scores of every row with every row: cost grows with the square of a size."""
    nodes = [
        *linear("x", "a", "one"),
        node("Transpose", ["a"], ["t"], perm=[1, 0]),
        node("MatMul", ["a", "t"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "a"], ["mixed"]),
        *linear("mixed", "y", "two"),
    ]
    ports = [("x", FLOAT, ["rows", 16])], [("y", FLOAT, ["rows", 16])]
    return Made(built(nodes, *ports, linear_weights("one", "two")), {"rows": 8})


def picture() -> Made:
    """Convolutions with normalizations that are folded, and sizes that nobody named."""
    arrays = {
        "k1": weights(8, 3, 3, 3), "k2": weights(8, 8, 3, 3, seed=2), "s1": weights(8) + 1, "b1": weights(8),
        "m1": weights(8), "v1": np.abs(weights(8)) + 1,
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "k1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["a", "s1", "b1", "m1", "v1"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "k2"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["c", "d"], ["e"]),
        node("GlobalAveragePool", ["e"], ["y"]),
    ]
    ports = [("x", FLOAT, [None, 3, "?", "?"])], [("y", FLOAT, [None, 8, 1, 1])]
    return Made(built(nodes, *ports, arrays, opset=13), {"x.2": 32, "x.3": 48})


def odd_ports() -> Made:
    """Weights among the inputs, an output that is a constant and one that is an input."""
    made = chain().model
    for tensor in made.graph.initializer:
        made.graph.input.append(helper.make_tensor_value_info(tensor.name, FLOAT, tensor.dims))
    made.graph.node.append(node("Constant", [], ["fixed"], value=numpy_helper.from_array(np.arange(3))))
    made.graph.output.append(helper.make_tensor_value_info("fixed", INT64, [3]))
    made.graph.output.append(helper.make_tensor_value_info("x", FLOAT, ["rows", 16]))
    return Made(made, {"rows": 3}, 3)


def function() -> Made:
    """A function of the model, called twice, and an operator of onnxruntime's own domain."""
    made = built(
        [
            node("Twice", ["x"], ["a"], domain="here"),
            node("Twice", ["a"], ["b"], domain="here"),
            node("FusedMatMul", ["b", "m"], ["y"], domain="com.microsoft", transB=1, alpha=0.5),
        ],
        [("x", FLOAT, ["rows", 16])],
        [("y", FLOAT, ["rows", 16])],
        {"m": weights(16, 16)},
        domains={"here": 1, "com.microsoft": 1},
    )
    made.functions.append(
        helper.make_function(
            "here", "Twice", ["v"], ["w"], [node("Add", ["v", "v"], ["w"])], [helper.make_opsetid("", 17)]
        )
    )
    return Made(made, {"rows": 3})


MADE: Mapping[str, Callable[[], Made]] = {
    each.__name__: each
    for each in (
        chain, residual, towers, choice, loop, recurrent, shared, types, narrow, attention, picture, odd_ports,
        function,
    )
}  # fmt: skip


def saved_outside(model: ModelProto, folder: Any) -> Any:
    """The model in a file, with weights in one beside it."""
    path = folder / "model.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location="model.bin", size_threshold=16)
    return path
