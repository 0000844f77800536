"""Blocks of encoders that normalize first, as towers for pictures and for texts have them, as nodes of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.importers.vision.graph_file import Floats, GraphFile

Weights = Callable[[str], Floats]  # by the name in the checkpoint, without the tower's prefix

CLIP_LAYER: Final[Mapping[str, str]] = {
    "before": "layer_norm1",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.out_proj",
    "between": "layer_norm2",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}
VIT_LAYER: Final[Mapping[str, str]] = {
    "before": "layernorm_before",
    "q": "attention.attention.query",
    "k": "attention.attention.key",
    "v": "attention.attention.value",
    "o": "attention.output.dense",
    "between": "layernorm_after",
    "up": "intermediate.dense",
    "down": "output.dense",
}
DINO_LAYER: Final[Mapping[str, str]] = {
    **VIT_LAYER,
    "before": "norm1",
    "between": "norm2",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
    "o_scale": "layer_scale1.lambda1",
    "down_scale": "layer_scale2.lambda1",
}


@dataclass(frozen=True, slots=True)
class BlockNumbers:
    """What all blocks of a tower have. `layer`: how the checkpoint calls the parts of a block (a mapping as CLIP_LAYER;
    scales of what attention and feed-forward add, where it names them), `prefix` where a block's names begin.
    `qkv_bias`: q, k and v have one.
    """

    blocks: int
    hidden: int
    heads: int
    ffn: int
    epsilon: float
    activation: str
    layer: Mapping[str, str]
    prefix: str  # "encoder.layers."
    qkv_bias: bool = True

    def shapes(self, blocks: int) -> dict[str, tuple[int, ...]]:
        """The tensors of the first `blocks` blocks, by name."""
        h, f = self.hidden, self.ffn
        linears = {"q": (h, h), "k": (h, h), "v": (h, h), "o": (h, h), "up": (f, h), "down": (h, f)}
        found: dict[str, tuple[int, ...]] = {}
        for block in range(blocks):
            for part, name in self.layer.items():
                full = f"{self.prefix}{block}.{name}"
                if part.endswith("_scale"):
                    found[full] = (h,)
                    continue
                shape = linears.get(part, (h,))
                found[f"{full}.weight"] = shape
                if part not in ("q", "k", "v") or self.qkv_bias:
                    found[f"{full}.bias"] = shape[:1]
        return found


class Blocks:
    """The blocks of one tower, `part` of the file ("vision", "text")."""

    def __init__(self, graph: GraphFile, part: str, numbers: BlockNumbers, weights: Weights) -> None:
        self._graph, self._part, self._n, self._weights = graph, part, numbers, weights

    def all(self, rows: str, blocks: int, unseen: str | None = None) -> str:
        """What the first `blocks` blocks make of `rows`, float32 (batch, rows, hidden). `unseen`: what is added to
        scores.
        """
        for block in range(blocks):
            rows = self._block(rows, block, unseen)
        return rows

    def norm(self, rows: str, name: str, tensor: str) -> str:
        """A layer norm whose weights are called `tensor` and whose result `name`."""
        return norm(self._graph, self._part, rows, name, tensor, self._weights, self._n.epsilon)

    def _block(self, rows: str, block: int, unseen: str | None) -> str:
        graph, at = self._graph, f"/{self._part}/layers.{block}"
        source = f"{self._n.prefix}{block}."
        names = {part: source + name for part, name in self._n.layer.items()}

        def scaled(value: str, part: str) -> str:
            if part not in names:
                return value
            weight = graph.weight(f"{at}/{part}.weight", self._weights(names[part]))
            return graph.add("Mul", [value, weight], f"{at}/{part}")

        read = norm(
            graph, self._part, rows, f"layers.{block}/before", names["before"], self._weights, self._n.epsilon
        )
        attended = scaled(
            self._linear(self._attended(read, block, names, unseen), f"{at}/o", names["o"]), "o_scale"
        )
        middle = graph.add("Add", [rows, attended], f"{at}/middle")
        read = norm(
            graph,
            self._part,
            middle,
            f"layers.{block}/between",
            names["between"],
            self._weights,
            self._n.epsilon,
        )
        wide = activated(graph, self._linear(read, f"{at}/up", names["up"]), f"{at}/wide", self._n.activation)
        added = scaled(self._linear(wide, f"{at}/down", names["down"]), "down_scale")
        return graph.add("Add", [middle, added], f"{at}/end")

    def _linear(self, rows: str, name: str, tensor: str, *, bias: bool = True) -> str:
        offset = self._weights(f"{tensor}.bias") if bias else None
        return linear(self._graph, rows, name, self._weights(f"{tensor}.weight"), offset)

    def _attended(self, rows: str, block: int, names: Mapping[str, str], unseen: str | None) -> str:
        graph, n, at = self._graph, self._n, f"/{self._part}/layers.{block}"
        turned = []
        for part, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            made = self._linear(rows, f"{at}/{part}", names[part], bias=n.qkv_bias)
            turned.append(heads_of(graph, made, f"{at}/{part}", n.heads, n.hidden, order))
        return attention(graph, at, turned[0], turned[1], turned[2], n.heads, n.hidden, unseen)


def heads_of(graph: GraphFile, rows: str, name: str, heads: int, hidden: int, order: tuple[int, ...]) -> str:
    """(batch, rows, hidden) as (batch, rows, heads, size), turned by `order`."""
    shape = graph.numbers(f"/shape/heads.{heads}.{hidden}", [0, 0, heads, hidden // heads])
    split = graph.add("Reshape", [rows, shape], f"{name}.heads")
    return graph.add("Transpose", [split], f"{name}.turned", perm=order)


def attention(
    graph: GraphFile, at: str, q: str, k: str, v: str, heads: int, hidden: int, unseen: str | None = None
) -> str:
    """Attention of q (batch, heads, rows, size) to k (batch, heads, size, rows) and v: (batch, rows, hidden)."""
    scale = graph.constant(f"/scale/{hidden // heads}", np.array((hidden // heads) ** -0.5, np.float32))
    scores = graph.add("MatMul", [graph.add("Mul", [q, scale], f"{at}/q.scaled"), k], f"{at}/scores")
    if unseen is not None:
        scores = graph.add("Add", [scores, unseen], f"{at}/scores.seen")
    mixed = graph.add("MatMul", [graph.add("Softmax", [scores], f"{at}/shares", axis=-1), v], f"{at}/mixed")
    joined = graph.add("Transpose", [mixed], f"{at}/mixed.turned", perm=(0, 2, 1, 3))
    flat = graph.numbers(f"/shape/flat.{hidden}", [0, 0, hidden])
    return graph.add("Reshape", [joined, flat], f"{at}/attended")


def linear(graph: GraphFile, rows: str, name: str, weight: Floats, bias: Floats | None = None) -> str:
    """`rows` times the transposed matrix (outputs, inputs), plus the bias."""
    product = graph.add("MatMul", [rows, graph.weight(f"{name}.weight", weight.T)], f"{name}.product")
    return product if bias is None else graph.add("Add", [product, graph.weight(f"{name}.bias", bias)], name)


def norm(
    graph: GraphFile, part: str, rows: str, name: str, tensor: str, weights: Weights, epsilon: float
) -> str:
    """A layer norm over the last axis."""
    at = f"/{part}/{name}"
    both = [graph.weight(f"{at}.{kind}", weights(f"{tensor}.{kind}")) for kind in ("weight", "bias")]
    return graph.add("LayerNormalization", [rows, *both], at, axis=-1, epsilon=epsilon)


def activated(graph: GraphFile, value: str, name: str, activation: str) -> str:
    """One of ACTIVATIONS of `value`."""
    if activation == "quick_gelu":
        steep = graph.constant("/scale/quick", np.array(1.702, np.float32))
        gate = graph.add("Sigmoid", [graph.add("Mul", [value, steep], f"{name}.steep")], f"{name}.gate")
        return graph.add("Mul", [value, gate], name)
    if activation == "relu":
        return graph.add("Relu", [value], name)
    return graph.add("Gelu", [value], name, approximate="tanh" if activation == "gelu_tanh" else "none")


ACTIVATIONS: Final[Mapping[str, str]] = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
