"""How a model of pictures is cut into bands of rows that several peers compute side by side.

Nothing but the graph says where: convolutions, pools and what goes by each value follow the rows of their input, until
something needs the whole picture. Bands begin where every stride still meets them, so each knows beforehand how many
rows it needs beyond its own: its halo. A halo is computed twice where that costs little, as fused tiles do (DeepThings,
Zhao et al., 2018), and else comes from the neighbour. Means over the picture are sums of bands, added in their order.

    x ─▶ rows ─▶ band 0 ─▶ … ─▶ joined ─▶ the rest, in one piece
             └─▶ band 1 ─▶ …  ┘
                   (edges between neighbours, sums between all)

A graph in, a graph out; reads no weights. Values are called by the part that makes them, "/band0/2/conv": a band's
steps between two exchanges. Everything else is "/rows" and "/rest".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
Kind = Literal["map", "window", "transposed", "resize", "mean", "most"]

ROWS: Final = 2  # the axis that is cut, of (pictures, channels, rows, columns)
RANK: Final = 4
END: Final = 2**62  # of a Slice: to the last row
MOST_TWICE: Final = Fraction(1, 8)  # of a band's rows are computed twice; more come from the neighbour
MOST_BANDS: Final = 8
MOST_ROWS: Final = 1 << 14  # that the least height of a picture is looked for among
_EACH_VALUE: Final = frozenset(
    (
        *(
            "Abs",
            "Add",
            "BatchNormalization",
            "Cast",
            "Ceil",
            "Clip",
            "Div",
            "Elu",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
        ),
        *(
            "HardSigmoid",
            "HardSwish",
            "Identity",
            "LeakyRelu",
            "Log",
            "Max",
            "Min",
            "Mish",
            "Mul",
            "Neg",
            "PRelu",
        ),
        *(
            "Pow",
            "Reciprocal",
            "Relu",
            "Round",
            "Selu",
            "Sigmoid",
            "Sign",
            "Softplus",
            "Softsign",
            "Sqrt",
            "Sub",
        ),
        *("Sum", "Tanh", "ThresholdedRelu"),
    )
)
_RANDOM: Final = frozenset(("Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"))
_WINDOWS: Final = frozenset(("Conv", "MaxPool", "AveragePool", "LpPool"))
_OF_CHANNELS: Final = frozenset(("Concat", "Softmax", "LogSoftmax", "Split", "LRN"))


class NotTiled(Exception):
    """A model that cannot be cut into bands; the message says why."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """`model`: the same in bands. `least`: how many rows a picture has at least. `exchanges`: how often bands wait for
    one another. `twice`: which share of the work of bands is done twice, of the sample.
    """

    model: ModelProto
    least: int
    exchanges: int
    twice: float


@dataclass(frozen=True, slots=True)
class _Window:
    """How rows of an output depend on those of an input. `span`: rows that one needs; `more`: of a transposed
    convolution, rows that it adds below; `ceil`: a last output whose rows are not all there counts.
    """

    span: int
    stride: int
    top: int
    bottom: int
    more: int = 0
    ceil: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """A node, and how bands compute it. `taken`: its inputs in bands; `way`: of a window, or a factor in `stride`."""

    node: NodeProto
    kind: Kind
    taken: tuple[str, ...]
    way: _Window | None = None


@dataclass
class _Need:
    """Rows of a value beyond a band's own that are needed above and below it; negative: some of its own are not."""

    up: int
    down: int

    def take(self, up: int, down: int) -> None:
        """Another use."""
        self.up, self.down = max(self.up, up), max(self.down, down)


def tiled(model: ModelProto, shapes: Mapping[str, Shape], count: int) -> Tiled:
    """`model` in `count` bands of the rows of its picture, the only input of four axes. `shapes`: of its values with a
    sample, by name. Raises NotTiled; ValueError for a `count` that is none.
    """
    if not 2 <= count <= MOST_BANDS:
        raise ValueError(f"2 to {MOST_BANDS} bands expected, got {count}")
    return _Writing(_Reading(model, shapes, count)).finish()


class _Reading:
    """Which values are in bands, how they hang together, and which come from neighbours."""

    def __init__(self, model: ModelProto, shapes: Mapping[str, Shape], count: int) -> None:
        self.model = model
        self.shapes = shapes
        self.count = count
        graph = model.graph
        self.opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
        self.weights: dict[str, TensorProto] = {each.name: each for each in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain:
                facts = _facts(node)
                if isinstance(facts.get("value"), TensorProto):
                    self.weights[node.output[0]] = facts["value"]
        pictures = [each.name for each in graph.input if each.name not in self.weights]
        pictures = [name for name in pictures if len(shapes.get(name, ())) == RANK]
        if len(pictures) != 1:
            raise NotTiled(
                f"one input of four axes expected (pictures, channels, rows, columns), got {len(pictures)}"
            )
        (self.picture,) = pictures
        self.scale: dict[str, Fraction] = {
            self.picture: Fraction(1)
        }  # rows of the picture for one of a value in bands
        self.each: set[str] = set()  # values that every band has whole
        self.steps: dict[int, _Step] = {}
        for place, node in enumerate(graph.node):
            self._look(place, node)
        if not any(step.kind == "window" for step in self.steps.values()):
            raise NotTiled("no convolution or pool follows the rows of the picture")
        self.grain = math.lcm(*(scale.numerator for scale in self.scale.values()))
        self.needs: dict[str, _Need] = {}
        self.exchanged: set[str] = set()
        self._count_needs()

    def rows(self, name: str) -> int:
        """How many rows the value has, of the sample."""
        return self.shapes[name][ROWS]

    def own(self, name: str) -> Fraction:
        """How many rows of it a band has, of the sample, about."""
        return Fraction(self.rows(name), self.count)

    def _look(self, place: int, node: NodeProto) -> None:
        taken = tuple(dict.fromkeys(name for name in node.input if name in self.scale))
        others = [name for name in node.input if name and name not in self.scale]
        if not all(name in self.weights or name in self.each for name in others):
            return
        if not taken:
            if any(name in self.each for name in node.input) and node.op_type not in _RANDOM:
                self.each.update(node.output)
            return
        step = self._step(node, taken) if not node.domain else None
        if step is None or not all(len(self.shapes.get(name, ())) == RANK for name in node.output if name):
            return
        self.steps[place] = step
        if step.kind in ("mean", "most"):
            self.each.update(node.output)
            return
        scale = self.scale[taken[0]]
        if step.way is not None:
            scale = scale * step.way.stride if step.kind == "window" else scale / step.way.stride
        self.scale.update((name, scale) for name in node.output if name)

    def _step(self, node: NodeProto, taken: tuple[str, ...]) -> _Step | None:
        kind, facts = node.op_type, _facts(node)
        if kind in _WINDOWS or kind == "ConvTranspose":
            if taken != (node.input[0],) or (kind == "MaxPool" and len(node.output) > 1):
                return None
            way = self._window(node, facts)
            if way is None:
                return None
            return _Step(node, "transposed" if kind == "ConvTranspose" else "window", taken, way)
        if kind == "Resize":
            factor = self._factor(node, facts) if taken == (node.input[0],) else 0
            return _Step(node, "resize", taken, _Window(1, factor, 0, 0)) if factor else None
        if kind in ("GlobalAveragePool", "GlobalMaxPool") or (
            kind in ("ReduceMean", "ReduceMax") and self._over_picture(node, facts)
        ):
            return _Step(node, "most" if "Max" in kind else "mean", taken)
        if kind in _OF_CHANNELS and facts.get("axis", -1 if kind != "LRN" else 1) not in (1, 1 - RANK):
            return None
        if kind not in _EACH_VALUE and kind not in _OF_CHANNELS:
            return None
        rows = self.rows(taken[0])
        alike = len({self.scale[name] for name in taken}) == 1
        alike = alike and all(self.rows(name) == rows for name in (*taken, *filter(None, node.output)))
        wide = [name for name in node.input if name and name not in taken]
        flat = all(self._broadcast(name) for name in wide) or kind == "BatchNormalization"
        return _Step(node, "map", taken) if alike and flat else None

    def _broadcast(self, name: str) -> bool:
        """Whether a weight, or a value that every band has, is the same for all rows."""
        shape = tuple(self.weights[name].dims) if name in self.weights else self.shapes.get(name)
        return shape is not None and (len(shape) < RANK - ROWS or shape[ROWS - RANK] == 1)

    def _window(self, node: NodeProto, facts: Mapping[str, Any]) -> _Window | None:
        if "kernel_shape" in facts:
            kernel = facts["kernel_shape"]
        elif node.input[1] in self.weights:
            kernel = tuple(self.weights[node.input[1]].dims)[ROWS:]
        else:
            return None
        dilation, stride = (facts.get(name, [1, 1])[0] for name in ("dilations", "strides"))
        span = (kernel[0] - 1) * dilation + 1
        top, _, bottom, _ = facts.get("pads", [0, 0, 0, 0])
        if facts.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return None
        if node.op_type == "ConvTranspose":
            if "output_shape" in facts or facts.get("output_padding", [0, 0])[0] > bottom:
                return None
        elif stride > span:
            return None
        more = facts.get("output_padding", [0, 0])[0]
        return _Window(span, stride, top, bottom, more, bool(facts.get("ceil_mode", 0)))

    def _factor(self, node: NodeProto, facts: Mapping[str, Any]) -> int:
        """By how much rows are repeated; 0 where that is not all that is done."""
        name = node.input[2] if len(node.input) > 2 else ""
        if facts.get("mode", b"nearest") != b"nearest" or name not in self.weights or "axes" in facts:
            return 0
        scales = _array(self.weights[name])
        if scales is None or scales.shape != (RANK,) or any(each != 1 for each in scales[:ROWS]):
            return 0
        factor = round(float(scales[ROWS]))
        place = facts.get("coordinate_transformation_mode", b"half_pixel")
        rounded = facts.get("nearest_mode", b"round_prefer_floor")
        repeats = (place == b"asymmetric" and rounded == b"floor") or (
            place == b"half_pixel" and rounded in (b"round_prefer_floor", b"round_prefer_ceil")
        )
        return factor if repeats and factor == scales[ROWS] and factor >= 1 else 0

    def _over_picture(self, node: NodeProto, facts: Mapping[str, Any]) -> bool:
        axes: Any = facts.get("axes")
        if len(node.input) > 1 and node.input[1] in self.weights:
            axes = _array(self.weights[node.input[1]])
        if axes is None or not facts.get("keepdims", 1):
            return False
        return sorted(int(axis) % RANK for axis in axes) == [ROWS, ROWS + 1]

    def _count_needs(self) -> None:
        nodes = self.model.graph.node
        outputs = {each.name for each in self.model.graph.output}
        whole = {name for place, node in enumerate(nodes) if place not in self.steps for name in node.input}
        for place in sorted(self.steps, reverse=True):
            step = self.steps[place]
            made = [name for name in step.node.output if name in self.scale]
            for name in made:
                if name in whole or name in outputs or name not in self.needs:
                    self.needs.setdefault(name, _Need(0, 0)).take(0, 0)
                self._settle(name)
            up = max((self.needs[name].up for name in made), default=0)
            down = max((self.needs[name].down for name in made), default=0)
            for name in made:
                self.needs[name] = _Need(up, down)
            above, below = self.reach(step, up, down)
            for name in step.taken:
                self.needs.setdefault(name, _Need(above, below)).take(above, below)

    def _settle(self, name: str) -> None:
        """Where a halo is much of a band, the value comes from neighbours: then a band makes its own rows only."""
        need = self.needs[name]
        if max(need.up, 0) + max(need.down, 0) > MOST_TWICE * self.own(name):
            self.exchanged.add(name)
        if name in self.exchanged or min(need.up, need.down) < 0:
            self.needs[name] = (
                _Need(0, 0) if name in self.exchanged else _Need(max(need.up, 0), max(need.down, 0))
            )

    def reach(self, step: _Step, up: int, down: int) -> tuple[int, int]:
        """Rows beyond its own that a band needs of what a step takes, so that it makes so many beyond."""
        way = step.way
        if way is None:
            return up, down
        if step.kind == "window":
            return up * way.stride + way.top, down * way.stride + way.span - way.stride - way.top
        if step.kind == "resize":
            return -(-up // way.stride), -(-down // way.stride)
        return (up + way.span - 1 - way.top) // way.stride, (down - 1 + way.top) // way.stride + 1

    def heights(self, height: int) -> dict[str, int]:
        """How many rows each value in bands has of a picture of so many."""
        found = {self.picture: height}
        for step in self.steps.values():
            rows, way = found[step.taken[0]], step.way
            if way is not None and step.kind == "window":
                free = rows + way.top + way.bottom - way.span
                rows = (-(-free // way.stride) if way.ceil else free // way.stride) + 1
            elif way is not None and step.kind == "transposed":
                rows = (rows - 1) * way.stride + way.span - way.top - way.bottom + way.more
            elif way is not None:
                rows *= way.stride
            found.update((name, rows) for name in step.node.output if name in self.scale)
        return found


class _Writing:
    """The graph in bands, node by node. `_made[value, band]`: what it is called there."""

    def __init__(self, reading: _Reading) -> None:
        self._r = reading
        self._nodes: list[NodeProto] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._tensors: list[TensorProto] = []
        self._made: dict[tuple[str, int], str] = {}
        self._part: dict[
            str, tuple[str, int]
        ] = {}  # of every value that is written: who makes it, after how many exchanges
        self._fitted: dict[tuple[str, int, int, int], str] = {}
        self._whole: dict[str, str] = {}
        self._number = 0
        self._least = _least(reading)

    def finish(self) -> Tiled:
        """The graph."""
        r = self._r
        graph = r.model.graph
        self._cut_picture()
        twice = total = 0.0
        for place, node in enumerate(graph.node):
            if place in r.steps:
                for band in range(r.count):
                    self._step(r.steps[place], band)
                more, own = self._shares(r.steps[place])
                twice, total = twice + more, total + own
            elif node.output and all(name in r.each for name in node.output):
                for band in range(r.count):
                    self._copy(node, f"band{band}", [self._of_band(name, band) for name in node.input], band)
            elif not (node.op_type == "Constant" and node.output[0] in r.weights):
                self._copy(node, "rest", [self._joined(name) for name in node.input])
        for value in graph.output:
            self._nodes.append(helper.make_node("Identity", [self._joined(value.name)], [value.name]))
        made = ModelProto()
        made.CopyFrom(r.model)
        made.graph.ClearField("node")
        made.graph.ClearField("value_info")
        made.graph.node.extend(self._nodes)
        made.graph.initializer.extend(self._tensors)
        for node in graph.node:
            if node.op_type == "Constant" and node.output[0] in r.weights:
                made.graph.initializer.add().CopyFrom(r.weights[node.output[0]])
                made.graph.initializer[-1].name = node.output[0]
        exchanges = max((after for _, after in self._part.values()), default=0)
        return Tiled(made, self._least, exchanges, twice / max(total, 1.0))

    # --- values

    def _cut_picture(self) -> None:
        """The rows of each band. Where they begin follows from how many the picture has."""
        r, name = self._r, self._r.picture
        self._part[name] = ("rows", 0)
        height = self._emit(
            "Gather", [self._emit("Shape", [name], "rows"), self._constant([ROWS])], "rows", axis=0
        )
        height = self._checked(height)
        blocks = self._emit("Add", [height, self._constant([r.grain - 1])], "rows")
        blocks = self._emit("Div", [blocks, self._constant([r.grain])], "rows")
        need = r.needs.get(name, _Need(0, 0))

        def bound(band: int, more: int) -> str:
            found = self._emit("Mul", [blocks, self._constant([band])], "rows")
            found = self._emit("Div", [found, self._constant([r.count])], "rows")
            found = self._emit("Mul", [found, self._constant([r.grain])], "rows")
            return self._emit("Add", [found, self._constant([more])], "rows") if more else found

        for band in range(r.count):
            start = bound(band, -need.up) if band else self._constant([0])
            stop = bound(band + 1, need.down) if band < r.count - 1 else self._constant([END])
            self._made[name, band] = self._emit("Slice", [name, start, stop, self._constant([ROWS])], "rows")

    def _checked(self, height: str) -> str:
        """The height, of a picture that has enough rows; else the name of a node says what is expected."""
        low = self._emit("Less", [height, self._constant([self._least])], "rows")
        low = self._emit("Cast", [low], "rows", to=TensorProto.INT64)
        zero = self._emit("Gather", [self._constant([0]), low], "rows", axis=0)
        self._nodes[-1].name = f"a picture of at least {self._least} rows expected"
        return self._emit("Add", [height, zero], "rows")

    def _of_band(self, name: str, band: int) -> str:
        return self._made.get((name, band), name)

    def _joined(self, name: str) -> str:
        """The value whole, for the rest."""
        r = self._r
        if name in r.each:
            return self._made[name, 0]
        if name not in r.scale or name == r.picture:
            return self._made.get((name, -1), name)
        if name not in self._whole:
            bands = [self._fit(name, band, 0, 0) for band in range(r.count)]
            self._whole[name] = self._emit("Concat", bands, "rest", axis=ROWS)
        return self._whole[name]

    def _fit(self, name: str, band: int, up: int, down: int) -> str:
        """The rows of a band, with so many beyond its own."""
        r = self._r
        up, down = up if band else 0, down if band < r.count - 1 else 0
        key = (name, band, up, down)
        if key not in self._fitted:
            own, has = self._made[name, band], r.needs[name]
            part = f"band{band}"
            above, below = (has.up if band else 0) - up, (has.down if band < r.count - 1 else 0) - down
            if name in r.exchanged:
                above, below = max(-up, 0), max(-down, 0)
            found = self._slice(own, above, -below if below else END, part)
            pieces = [found]
            if name in r.exchanged and up > 0:
                pieces.insert(0, self._slice(self._made[name, band - 1], -up, END, f"band{band - 1}"))
            if name in r.exchanged and down > 0:
                pieces.append(self._slice(self._made[name, band + 1], 0, down, f"band{band + 1}"))
            self._fitted[key] = self._emit("Concat", pieces, part, axis=ROWS) if len(pieces) > 1 else found
        return self._fitted[key]

    def _slice(self, name: str, start: int, stop: int, part: str) -> str:
        if (start, stop) == (0, END):
            return name
        bounds = [self._constant([each]) for each in (start, stop, ROWS)]
        return self._emit("Slice", [name, *bounds], part)

    # --- steps

    def _step(self, step: _Step, band: int) -> None:
        r, node, part = self._r, step.node, f"band{band}"
        if step.kind in ("mean", "most"):
            self._over_bands(step, band)
            return
        need = r.needs[node.output[0]]
        above, below = r.reach(step, need.up, need.down)
        inputs = [
            self._fit(name, band, above, below) if name in step.taken else self._of_band(name, band)
            for name in node.input
        ]
        first, last = band == 0, band == r.count - 1
        self._copy(node, part, inputs, band)
        if step.way is None:
            return
        made, way = self._nodes[-1], step.way
        if step.kind != "resize":
            facts = _facts(node)
            pads = list(facts.get("pads", [0, 0, 0, 0]))
            pads[0], pads[2] = pads[0] if first else 0, pads[2] if last else 0
            kept = [
                each for each in made.attribute if each.name not in ("pads", "auto_pad", "output_padding")
            ]
            del made.attribute[:]
            made.attribute.extend(kept)
            made.attribute.append(helper.make_attribute("pads", pads))
            if "output_padding" in facts:
                more = list(facts["output_padding"])
                more[0] = more[0] if last else 0
                made.attribute.append(helper.make_attribute("output_padding", more))
        if step.kind == "window":
            return
        if step.kind == "resize":
            top, bottom = way.stride * above - need.up, way.stride * below - need.down
        else:
            top = above * way.stride + way.top - need.up
            bottom = (above + below) * way.stride - way.stride + way.span - top - need.up - need.down
        top, bottom = 0 if first else top, 0 if last else bottom
        self._made[node.output[0], band] = self._slice(made.output[0], top, -bottom if bottom else END, part)

    def _over_bands(self, step: _Step, band: int) -> None:
        """A mean or a maximum over all rows: of each band's own, together in the order of bands."""
        r, (name,) = self._r, step.taken
        output, part = step.node.output[0], f"band{band}"
        kind = "ReduceMax" if step.kind == "most" else "ReduceSum"
        if not band:
            for each in range(r.count):
                own = self._fit(name, each, 0, 0)
                self._made[output, -2 - each] = self._reduced(kind, own, f"band{each}")
                if step.kind == "mean":
                    size = self._emit("Shape", [own], f"band{each}")
                    size = self._emit(
                        "Gather", [size, self._constant([ROWS, ROWS + 1])], f"band{each}", axis=0
                    )
                    size = self._emit("ReduceProd", [size], f"band{each}", keepdims=1)
                    size = self._emit("Cast", [size], f"band{each}", to=TensorProto.FLOAT)
                    self._made[f"{output} count", -2 - each] = size

        def together(what: str, how: str) -> str:
            found = self._made[what, -2]
            for each in range(1, r.count):
                found = self._emit(how, [found, self._made[what, -2 - each]], part)
            return found

        found = together(output, "Max" if step.kind == "most" else "Add")
        if step.kind == "mean":
            found = self._emit("Div", [found, together(f"{output} count", "Add")], part)
        self._made[output, band] = found

    def _reduced(self, kind: str, name: str, part: str) -> str:
        axes = [ROWS, ROWS + 1]
        if self._r.opset >= (13 if kind == "ReduceSum" else 18):
            return self._emit(kind, [name, self._constant(axes)], part, keepdims=1)
        return self._emit(kind, [name], part, axes=axes, keepdims=1)

    # --- nodes

    def _copy(self, node: NodeProto, part: str, inputs: Sequence[str], band: int = -1) -> None:
        """The node for a part, with other inputs."""
        made = NodeProto()
        made.CopyFrom(node)
        made.input[:] = inputs
        after = self._after(inputs, part)
        made.output[:] = [self._name(name, part, after) if name else "" for name in node.output]
        made.name = ""
        for name, called in zip(node.output, made.output, strict=True):
            if name:
                self._made[name, band] = called
        self._nodes.append(made)

    def _emit(self, kind: str, inputs: Sequence[str], part: str, **facts: Any) -> str:
        after = self._after(inputs, part)
        made = self._name(kind.lower(), part, after)
        self._nodes.append(helper.make_node(kind, list(inputs), [made], **facts))
        return made

    def _after(self, inputs: Sequence[str], part: str) -> int:
        """How many exchanges stand before a step of `part`: one more than before what it takes of another."""
        found = [self._part[name] for name in inputs if name in self._part]
        return max((after + (who not in (part, "rows")) for who, after in found), default=0)

    def _name(self, what: str, part: str, after: int) -> str:
        self._number += 1
        name = f"/{part}/e{after}/{what.replace('/', '.')[:60]}.{self._number}"
        self._part[name] = (part, after)
        return name

    def _constant(self, values: Sequence[int]) -> str:
        key = tuple(values)
        if key not in self._constants:
            self._constants[key] = f"rows.{'.'.join(map(str, values))}"
            self._tensors.append(numpy_helper.from_array(np.array(values, np.int64), self._constants[key]))
        return self._constants[key]

    def _shares(self, step: _Step) -> tuple[float, float]:
        """Of a step's work, by values that it makes: what all bands together make beyond their own, and their own."""
        r, name = self._r, step.node.output[0]
        if name not in r.scale:
            return 0.0, 0.0
        need, size = r.needs[name], math.prod(r.shapes[name])
        return (r.count - 1) * (need.up + need.down) / r.rows(name) * size, float(size)


def _least(reading: _Reading) -> int:
    """The least height of a picture from which on every band and its neighbours have the rows that are needed."""
    r = reading

    def fits(height: int) -> bool:
        blocks = -(-height // r.grain)
        bounds = [blocks * band // r.count for band in range(r.count)]
        for name, rows in r.heights(height).items():
            starts = [*(int(bound * r.grain / r.scale[name]) for bound in bounds), rows]
            need = widest.get(name, _Need(0, 0))
            if min(b - a for a, b in pairwise(starts)) < max(need.up, need.down, 1):
                return False
        return True

    widest: dict[str, _Need] = {}
    for step in r.steps.values():
        made = r.needs.get(step.node.output[0], _Need(0, 0))
        above, below = r.reach(step, made.up, made.down)
        for name in step.taken:
            widest.setdefault(name, _Need(0, 0)).take(above, below)
    least = 1
    for height in range(1, MOST_ROWS):
        if not fits(height):
            least = height + 1
        elif height - least > 2 * r.grain * r.count:
            return least
    raise NotTiled("no picture has enough rows for so many bands: cut it into fewer")


def _facts(node: NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _array(tensor: TensorProto) -> Any:
    if tensor.data_location == TensorProto.EXTERNAL:
        return None
    return numpy_helper.to_array(tensor)
