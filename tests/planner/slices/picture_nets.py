"""Made-up models of pictures, layer by layer, and what onnxruntime makes with them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from planner.model.onnxruntime_import import ort

CHANNELS: Final = 6


def session(model: ModelProto) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


class Net:
    """A model that is built layer by layer, each of the values of the one before it."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self.random = np.random.default_rng(7)
        self.last = "x"

    def weight(self, *shape: int) -> str:
        name = f"weight{len(self.tensors)}"
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        self.tensors.append(
            numpy_helper.from_array((self.random.standard_normal(shape) * scale).astype(np.float32), name)
        )
        return name

    def constant(self, values: Any, dtype: Any) -> str:
        name = f"weight{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def add(self, kind: str, *more: str, takes: str = "", **facts: Any) -> str:
        """A node of the last value, or of `takes`."""
        made = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [takes or self.last, *more], [made], **facts))
        self.last = made
        return made

    def conv(
        self, span: int, stride: int = 1, pad: int = 0, dilation: int = 1, group: int = 1, **facts: Any
    ) -> str:
        return self.add(
            "Conv",
            self.weight(CHANNELS, CHANNELS // group, span, span),
            self.weight(CHANNELS),
            strides=[stride, stride],
            pads=[pad, pad, pad, pad],
            dilations=[dilation, dilation],
            group=group,
            **facts,
        )

    def up(self, span: int, stride: int, pad: int = 0, more: int = 0, dilation: int = 1) -> str:
        return self.add(
            "ConvTranspose",
            self.weight(CHANNELS, CHANNELS, span, span),
            strides=[stride, stride],
            pads=[pad, pad, pad, pad],
            dilations=[dilation, dilation],
            output_padding=[more, more],
        )

    def model(self) -> ModelProto:
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", (1, CHANNELS, "height", "width")), (self.last, None))
        ]
        graph = helper.make_graph(self.nodes, "net", ends[:1], ends[1:], self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def picture(height: int, width: int) -> Any:
    return np.random.default_rng(height).standard_normal((1, CHANNELS, height, width)).astype(np.float32)


def shapes_of(model: ModelProto, height: int, width: int = 20) -> dict[str, tuple[int, ...]]:
    every = ModelProto()
    every.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output]
    del every.graph.output[:]
    every.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    x = picture(height, width)
    made = session(every).run(None, {"x": x})
    return {"x": x.shape} | {name: each.shape for name, each in zip(names, made, strict=True)}


def plain() -> Net:
    """Strides, groups, dilation, pools, odd sizes."""
    net = Net()
    net.conv(3, 2, 1)
    net.add("Relu")
    net.conv(5, 1, 2, group=CHANNELS)
    net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.conv(3, 1, 2, dilation=2, group=3)
    net.add("AveragePool", kernel_shape=[2, 2], strides=[2, 2])
    net.add("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    net.conv(2)
    return net


def residual() -> Net:
    """Blocks that add what they take, gates of means over the picture, scales of channels."""
    net = Net(opset=12)
    for stride in (1, 2, 1):
        before = net.conv(3, stride, 1)
        net.conv(3, 1, 1)
        net.add("HardSigmoid")
        inside = net.conv(3, 1, 1)
        net.add("GlobalAveragePool")
        net.conv(1)
        gate = net.add("Sigmoid")
        net.add("Mul", gate, takes=inside)
        net.add("Add", before)
    net.add("GlobalMaxPool")
    return net


def hourglass() -> Net:
    """Down and up again, joined with what was there before, as U-Net does."""
    net = Net()
    high = net.conv(3, 1, 1)
    low = net.conv(3, 2, 1)
    net.conv(4, 2, 1)
    net.up(2, 2)
    net.add("Add", low)
    net.up(3, 2, 1, 1)
    net.add("Concat", high, axis=1)
    net.add("Conv", net.weight(CHANNELS, 2 * CHANNELS, 1, 1))
    net.up(4, 2, 1)
    net.add(
        "Resize",
        "",
        net.constant([1, 1, 3, 3], np.float32),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    net.conv(3, 3, 1)
    net.up(3, 1, 1, dilation=2)
    net.add("Softmax", axis=1)
    return net


def answering() -> Net:
    """What looks at all rows at once is done in one piece after the bands."""
    net = Net()
    net.conv(3, 2, 1)
    net.conv(3, 2, 0)
    net.add("LayerNormalization", net.constant(np.ones(1), np.float32), axis=-1)
    net.add("ReduceMean", axes=[2, 3], keepdims=0)
    return net
