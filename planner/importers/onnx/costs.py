"""What steps and values of a model cost, by its symbolic sizes.

Edge. Sizes of values are seen, not derived: the model runs with its sample and then with one symbolic size doubled at a
time, and tells the shape of every value. So operators without shape rules, and shapes that depend on numbers, are no
exception. What a cost is of each size follows from the ratio: a size that cannot change, or does not matter, is left
out; doubled costs are linear, fourfold ones square, those between a mixture.

Borders go by what steps compute alone. What a unit takes is counted in floating-point operations of a large product,
too: what its steps compute, what they read and write, and that they begin. The weights of the three come from the units
of seven models, each timed beside such a product on one processor: of convolutions on large pictures, most time goes to
memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx
from onnx import ModelProto, NodeProto

from planner.importers.onnx.folding import Network, Step
from planner.importers.onnx.reading import Input
from planner.importers.onnx.samples import Sample, made_up
from planner.importers.onnx.sessions import NotRun, opened, options, run
from planner.model.graph_manifest import HALF_BYTES, MAX_RANK, MAX_TERMS, Size, Term, ValueType

NEAR: Final = 0.15  # of a whole power: what padding adds to shapes
MOST_PROBED: Final = 8  # sizes that are doubled
FLOPS_A_BYTE: Final = 2.0  # of a large product, in the time in which a step reads or writes a byte
FLOPS_A_STEP: Final = 150e3  # in that in which onnxruntime begins and ends a step: about a microsecond
VIEWS: Final = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size")  # copy nothing

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that onnxruntime knows to be a tensor: its type, and its axes where their number is known."""

    dtype: ValueType
    shape: tuple[Size, ...] | None


def with_ranks(seen: Mapping[str, Seen], shapes: Shapes) -> dict[str, Seen]:
    """Without axes where onnxruntime did not know how many there are, which it tells as none."""
    return {
        name: each if each.shape is None or len(each.shape) == len(shapes[name]) else Seen(each.dtype, None)
        for name, each in seen.items()
    }


@dataclass(frozen=True, slots=True)
class Probes:
    """Shapes of all tensors with the sample, and with one size doubled: by size."""

    base: Shapes
    doubled: Mapping[str, Shapes]
    sizes: Mapping[str, int]

    def terms(self, cost: Mapping[str, float], base: float) -> tuple[Term, ...]:
        """`base` as a function of sizes. `cost`: what it is with one size doubled."""
        terms: dict[tuple[str, ...], float] = {(): base}
        for size, doubled in cost.items():
            powers = _powers(doubled / base if base else 1.0)
            terms = {
                (*names, *([size] * power)): factor * share / self.sizes[size] ** power
                for names, factor in terms.items()
                for power, share in powers.items()
            }
        return tuple(Term(factor, names) for names, factor in terms.items() if factor > 0)[:MAX_TERMS]


def seen_values(network: Network, name_types: Mapping[str, ValueType]) -> dict[str, Seen]:
    """What onnxruntime infers of the values between steps; what is no tensor of a known type is left out."""
    model = _bare(network)
    outside = {output for step in network.steps for output in step.outputs}
    have = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(outside - have))
    session = opened(model.SerializeToString(), options(network.folder, optimize=False))
    found = {}
    for value in (*session.get_inputs(), *session.get_outputs()):
        dtype = name_types.get(value.type)
        if dtype is not None:
            found[value.name] = Seen(dtype, _shape(value.name, value.shape))
    return found


def _shape(name: str, shape: Any) -> tuple[Size, ...] | None:
    if shape is None or len(shape) > MAX_RANK:
        return None
    return tuple(
        size
        if isinstance(size, (int, str)) and size and (isinstance(size, str) or size > 0)
        else f"{name}.{axis}"
        for axis, size in enumerate(shape)
    )


def probes(network: Network, seen: Mapping[str, Seen], inputs: Sequence[Input], sample: Sample) -> Probes:
    """Runs the model with its sample, and with sizes doubled where it runs with these. Raises NotRun."""
    model = _bare(network)
    del model.graph.output[:]
    asked = {}
    for number, name in enumerate(sorted(seen)):
        asked[f"shape/{number}"] = name
        model.graph.node.append(onnx.helper.make_node("Shape", [name], [f"shape/{number}"]))
        model.graph.output.add(name=f"shape/{number}")
    session = opened(model.SerializeToString(), options(network.folder, optimize=False))

    def shapes(feed: Mapping[str, Any]) -> Shapes:
        return {asked[key]: tuple(map(int, found)) for key, found in run(session, feed).items()}

    base = shapes(sample.inputs)
    doubled: dict[str, Shapes] = {}
    for size in list(sample.sizes)[:MOST_PROBED]:
        larger = {**sample.sizes, size: 2 * sample.sizes[size]}
        feed = {each.name: _stretched(sample.inputs[each.name], each, larger) for each in inputs}
        try:
            doubled[size] = shapes(feed)
        except (NotRun, MemoryError):
            continue  # a size that the model fixes, whatever it declares, or one that is large enough
    return Probes(base, doubled, sample.sizes)


def _stretched(array: Any, each: Input, sizes: Mapping[str, int]) -> Any:
    """The input again as often as it takes to fill larger sizes."""
    for axis, size in enumerate(each.shape):
        if isinstance(size, str) and array.shape[axis] and sizes[size] != array.shape[axis]:
            array = array.repeat(sizes[size] // array.shape[axis], axis)
    return array if array.size else made_up([each], sizes)[each.name]


def value_bytes(dtype: ValueType, shape: Shape) -> float:
    """Bytes of a tensor, about, for strings."""
    return math.prod(shape) * HALF_BYTES[dtype] / 2


def work(step: Step, shapes: Shapes, weights: Mapping[str, Shape], dtypes: Mapping[str, ValueType]) -> float:
    """What one run of the step computes, reads and writes, in floating-point operations of a large product; without
    FLOPS_A_STEP.
    """
    values = () if step.proto.op_type in VIEWS else {*step.inputs, *step.outputs}
    moved = sum(value_bytes(dtypes.get(name, "float32"), shapes[name]) for name in values if name in shapes)
    return flops(step, shapes, weights) + FLOPS_A_BYTE * moved


def flops(step: Step, shapes: Shapes, weights: Mapping[str, Shape]) -> float:
    """Floating-point operations: counted for products, convolutions and recurrent layers; any other step counts its
    larger side's elements once.
    """
    node = step.proto

    def shape(place: int) -> Shape:
        name = node.input[place] if place < len(node.input) else ""
        return shapes.get(name) or weights.get(name) or ()

    out = max((math.prod(shapes[name]) for name in step.outputs if name in shapes), default=1)
    match node.op_type:
        case "Conv" | "ConvInteger" | "FusedConv":
            return 2.0 * out * math.prod(shape(1)[1:])
        case "QLinearConv":
            return 2.0 * out * math.prod(shape(3)[1:])
        case "ConvTranspose":
            return 2.0 * math.prod(shape(0)) * math.prod(shape(1)[1:])
        case "MatMul" | "FusedMatMul" | "MatMulInteger" | "QLinearMatMul" | "MatMulIntegerToFloat":
            return 2.0 * out * (shape(0)[-1] if shape(0) else 1)
        case "Gemm":
            return (
                2.0 * out * (shape(0)[0 if _attribute(node, "transA") else -1] if len(shape(0)) == 2 else 1)
            )
        case "MatMulNBits":
            return 2.0 * out * _attribute(node, "K")
        case "LSTM" | "GRU" | "RNN":
            return 2.0 * math.prod(shape(0)[:2]) * (math.prod(shape(1)) + math.prod(shape(2)))
        case "If" | "Loop" | "Scan":
            within = (name for name in (*step.inputs, *step.inner) if name in weights)
            return 2.0 * sum(math.prod(weights[name]) for name in within) + out
        case _:
            taken = max((math.prod(shapes[name]) for name in step.inputs if name in shapes), default=0)
            return float(max(out, taken))


def sum_of_terms(every: Sequence[Sequence[Term]]) -> tuple[Term, ...]:
    """Terms of the same sizes in one; those that matter least are left out where there are too many."""
    found: dict[tuple[str, ...], float] = {}
    for terms in every:
        for term in terms:
            key = tuple(sorted(term.sizes))
            found[key] = found.get(key, 0.0) + term.factor
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MAX_TERMS]
    return tuple(Term(factor, sizes) for sizes, factor in sorted(ranked))


def _powers(ratio: float) -> dict[int, float]:
    """By power of a size, which share of a cost grows with it, where doubling it multiplies the cost by `ratio`."""
    for power in (0, 1, 2, 3):
        if abs(ratio / 2**power - 1) <= NEAR:
            return {power: 1.0}
    if ratio < 1:
        return {0: 1.0}
    if ratio > 8:
        return {3: 1.0}
    power = int(math.log2(ratio))
    share = ratio / 2**power - 1
    return {power: 1 - share, power + 1: share}


def _attribute(node: NodeProto, name: str) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), 0)


def _bare(network: Network) -> ModelProto:
    """The model in the order of its steps."""
    model = ModelProto()
    model.CopyFrom(network.model)
    del model.graph.node[:]
    model.graph.node.extend(step.proto for step in network.steps)
    return model
