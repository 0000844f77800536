"""How one ONNX graph is put together whose weights stay outside it, at places in blobs."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from planner.model.checked_fields import DType, StoredTensor
from planner.model.store import BlobRef

IR_VERSION: Final = 10  # onnxruntime-web refuses newer than 13; onnx writes newer by default
OPSET: Final = 21
MICROSOFT: Final = "com.microsoft"

Placed = Literal[
    "blobs", "exact", "packed", "wide"
]  # where weights lie, and in which form: planner.model.lowering

ONNX_TYPES: Final[dict[DType, int]] = {
    "f32": TensorProto.FLOAT,
    "f16": TensorProto.FLOAT16,
    "u8": TensorProto.UINT8,
}


class StoredUnit(Protocol):
    """Whose tensors a graph names: a unit of a decoder, or of an encoder."""

    @property
    def name(self) -> str:
        """The name of the unit."""

    @property
    def blob(self) -> BlobRef:
        """The blob with its tensors."""


class Graph:
    """Nodes and external initializers of one graph under construction."""

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []

    def add(
        self, operator: str, inputs: list[str], output: str, *more: str, domain: str = "", **attributes: Any
    ) -> str:
        """Adds a node and returns the name of its first output, which is the node's own."""
        self.nodes.append(
            helper.make_node(operator, inputs, [output, *more], name=output, domain=domain, **attributes)
        )
        return output

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        """Adds an array that the graph itself holds, and returns its name."""
        self.initializers.append(onnx.numpy_helper.from_array(array, name))
        return name

    def external(
        self, name: str, unit: StoredUnit, tensor: StoredTensor, rows: tuple[int, int] | None = None
    ) -> str:
        """The tensor, or `rows` [first, stop) of it, as an initializer in the unit's blob."""
        first, stop = rows or (0, tensor.shape[0])
        row_bytes = tensor.bytes // tensor.shape[0]
        location, offset = unit.blob.sha256, tensor.offset + first * row_bytes
        if self.placed in ("packed", "wide"):
            location, offset = f"{unit.name}/{tensor.name}", first * row_bytes
        shape = (stop - first, *tensor.shape[1:])
        return self.outside(name, tensor.dtype, shape, location, offset, (stop - first) * row_bytes)

    def times(self, source: str, matrix: str, output: str) -> str:
        """`source` times a matrix of (outputs, inputs), or on a GPU of (inputs, outputs)."""
        if self.placed == "packed":
            return self.add("MatMul", [source, matrix], output)
        return self.add("FusedMatMul", [source, matrix], output, domain=MICROSOFT, transB=1)

    def outside(
        self, name: str, dtype: DType, shape: tuple[int, ...], location: str, offset: int, length: int
    ) -> str:
        """A tensor of `length` bytes at `offset` of the file `location`, as an initializer; returns its name."""
        proto = TensorProto(
            name=name, data_type=ONNX_TYPES[dtype], dims=shape, data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            proto.external_data.add(key=key, value=str(value))
        self.initializers.append(proto)
        return name

    def finish(
        self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto], name: str = "shard"
    ) -> bytes:
        """Returns the model as the bytes of an ONNX file."""
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        )
        model.ir_version = IR_VERSION
        encoded: bytes = model.SerializeToString()
        return encoded
