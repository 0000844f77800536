"""How an importer writes the graph of a unit of a decoder: ONNX nodes and the operators of the domain "shoal".

Weights stay outside: a name that a node takes and that no node made is that of a tensor of the unit. What the operators
of ours mean is in planner.model.lowering.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, TensorProto, helper

from planner.model.lowering import SHOAL, VERSIONS
from planner.model.onnx_graph import IR_VERSION

MICROSOFT: Final = "com.microsoft"
INPUT: Final = "in.0"
OUTPUT: Final = "out.0"


class UnitGraph:
    """The graph of one unit under construction: from `in.0` to `out.0`."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []
        self._made = 0

    def add(
        self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Adds a node and returns the names of its outputs."""
        names = [f"t.{self._made + number}" for number in range(outputs)]
        self._made += outputs
        self._nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names

    def one(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """As `add`, for an operator with one output."""
        return self.add(operator, *inputs, domain=domain, **attributes)[0]

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Holds a small array and returns its name."""
        name = f"c.{len(self._constants)}"
        self._constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def sizes(self, *values: int) -> str:
        """Holds whole numbers, as Reshape and Split take them."""
        return self.constant(np.array(values, np.int64))

    def embedding(self, weight: str, rows: int, columns: int) -> str:
        """The rows of the unit's tokens."""
        return self.one("Embedding", INPUT, domain=SHOAL, weight=weight, rows=rows, columns=columns)

    def linear(self, source: str, weight: str, rows: int, columns: int, bias: str = "") -> str:
        """`source` times the matrix `weight`, (rows, columns) whatever its stored form; `bias`: a tensor's name."""
        inputs = [source, bias] if bias else [source]
        return self.one("Linear", *inputs, domain=SHOAL, weight=weight, rows=rows, columns=columns)

    def attention(
        self, *operands: str, heads: int, kv_heads: int, head_size: int, rotary: int = 0, **more: Any
    ) -> str:
        """Attention of q, k and v (or of one input with all of their rows) over the unit's cache; of q and k alone,
        values are the keys, which are cached once. Sinks and a bias of scores may follow v. `rotary`: the number of a
        table of the model, -1 for none; `more`: `state` (0), `scale`, `softcap`; `chunk`, the
        window of the state: it looks at its own chunk of so many positions alone.
        """
        facts = {"state": 0, **more}
        return self.one(
            "Attention",
            *operands,
            domain=SHOAL,
            heads=heads,
            kv_heads=kv_heads,
            head_size=head_size,
            rotary=rotary,
            **facts,
        )

    def norm(self, source: str, weight: str, epsilon: float) -> str:
        """`source` divided by the root of the mean of its squares, times the tensor `weight`."""
        return self.one(
            "SimplifiedLayerNormalization", source, weight, axis=-1, epsilon=epsilon, stash_type=1
        )

    def layer_norm(self, source: str, weight: str, epsilon: float, bias: str = "") -> str:
        """`source` without its mean, divided by its deviation, times the tensor `weight`, plus the tensor `bias`."""
        inputs = [source, weight, bias] if bias else [source, weight]
        return self.one("LayerNormalization", *inputs, axis=-1, epsilon=epsilon, stash_type=1)

    def positions(self) -> str:
        """int64 (batch, tokens): how many tokens of its conversation stand before each token."""
        return self.one("Positions", INPUT, domain=SHOAL)

    def cached(self) -> str:
        """int64 (total,): the positions of what is cached after the step."""
        return self.one("Cached", INPUT, domain=SHOAL)

    def rotary(self, places: str, table: int = 0) -> list[str]:
        """Cosines and sines of a rotary table at `places`, int64 (batch, tokens): each (batch, tokens, angles)."""
        return self.add("Rotary", places, domain=SHOAL, outputs=2, rotary=table)

    def experts(self, *operands: str, weight: str, count: int, rows: int, columns: int, **more: float) -> str:
        """`operands`: x, shares, base and maybe a limit. The base plus what each of `count` experts makes of x, times
        its share (batch, tokens, count) of a token; those whose share is 0 are not computed. Expert N is the matrices
        `weight`.N.gate_up, (2 · rows, columns), and `weight`.N.down, (columns, rows), with SiLU of the gate; `more`:
        `alpha`, what its sigmoid multiplies by.
        """
        facts = {"weight": weight, "count": count, "rows": rows, "columns": columns, **more}
        return self.one("Experts", *operands, domain=SHOAL, **facts)

    def finish(self, result: str) -> bytes:
        """The graph as bytes of an ONNX file; `result`, made by its last node, is what the unit makes."""
        last = self._nodes[-1]
        last.output[:] = [OUTPUT if name == result else name for name in last.output]
        if OUTPUT not in last.output:
            raise ValueError(f"{result} expected among outputs of the last node")
        used = {node.domain for node in self._nodes} | {""}
        model = ModelProto(ir_version=IR_VERSION)
        model.graph.name = "unit"
        model.graph.input.add(name=INPUT)
        model.graph.output.add(name=OUTPUT)
        model.graph.initializer.extend(self._constants)
        model.graph.node.extend(self._nodes)
        for domain in sorted(used):
            model.opset_import.add(domain=domain, version=VERSIONS[domain])
        encoded: bytes = model.SerializeToString(deterministic=True)
        return encoded
