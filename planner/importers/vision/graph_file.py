"""An ONNX file under construction, its weights in a file beside it, written one tensor at a time. Edge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from planner.errors import CorruptModel
from planner.model.onnx_graph import IR_VERSION, OPSET

WEIGHTS: Final = "weights"
ALIGNED: Final = 64
Floats = npt.NDArray[np.float32]


class GraphFile:
    """Nodes and weights of `name` (for messages). Values are called by the part that makes them, as in
    "/vision/layers.0/fc1": importers of ONNX files take the first word for the component.
    """

    def __init__(self, folder: Path, name: str, weights: BinaryIO) -> None:
        """`weights`: the open file WEIGHTS in `folder`."""
        self._folder, self._name, self._weights = folder, name, weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._known: set[str] = set()

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Adds a node, and returns the name of what it makes, which is the node's own."""
        self._nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def numbers(self, name: str, values: Sequence[int]) -> str:
        """A row of whole numbers, or of one without a name yet."""
        return self.constant(name, np.array(values, np.int64))

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        """An array that the graph itself holds."""
        if name not in self._known:
            self._known.add(name)
            self._initializers.append(onnx.numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, array: Floats) -> str:
        """An array in the file of weights. Raises CorruptModel where it holds what is no number."""
        if name in self._known:
            return name
        if not np.isfinite(array).all():
            raise CorruptModel(f"{self._name}: {name}: finite numbers expected, found NaN or infinity")
        self._known.add(name)
        self._weights.write(bytes(-self._weights.tell() % ALIGNED))
        offset = self._weights.tell()
        self._weights.write(np.ascontiguousarray(array, "<f4").tobytes())
        proto = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=array.shape, data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", WEIGHTS), ("offset", offset), ("length", array.size * 4)):
            proto.external_data.add(key=key, value=str(value))
        self._initializers.append(proto)
        return name

    def finish(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> Path:
        """Writes the file and returns its path."""
        graph = helper.make_graph(self._nodes, "model", list(inputs), list(outputs), self._initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        path = self._folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path


def float_value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    """An input or output of float32."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def token_value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    """An input of token ids."""
    return helper.make_tensor_value_info(name, TensorProto.INT64, shape)
