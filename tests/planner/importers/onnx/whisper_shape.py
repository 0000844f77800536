"""A speech model of Whisper's shape with random weights: an encoder of sound, and a decoder that looks at it.

The encoder has two convolutions over time, positions and blocks of attention; the decoder embeddings of tokens and
positions, blocks of causal attention, attention to the encoder and a network, and logits of the embedding's own matrix.
Values are called by their modules, as PyTorch's exporter does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto

from tests.planner.importers.onnx.made_up import FLOAT, INT64, Array, Made, built, node

BANDS = 80


@dataclass
class _Builder:
    """Nodes and weights as they come up; each value has a path."""

    width: int
    heads: int
    nodes: list[NodeProto] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)

    def weight(self, name: str, *shape: int) -> str:
        random = np.random.default_rng([len(self.arrays), *shape])
        scale = 1 / math.sqrt(shape[0] if len(shape) == 2 else max(math.prod(shape[1:]), 1))
        self.arrays[name] = (random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def constant(self, name: str, value: object, dtype: type = np.int64) -> str:
        self.arrays[name] = np.asarray(value, dtype)
        return name

    def op(self, path: str, kind: str, inputs: list[str], **attributes: object) -> str:
        out = f"{path}/{kind}_output_{len(self.nodes)}"
        self.nodes.append(node(kind, inputs, [out], **attributes))
        return out

    def linear(self, path: str, x: str, rows: int, columns: int, *, bias: bool = True) -> str:
        product = self.op(path, "MatMul", [x, self.weight(f"{path}.w", rows, columns)])
        return self.op(path, "Add", [product, self.weight(f"{path}.b", columns)]) if bias else product

    def norm(self, path: str, x: str) -> str:
        self.constant(f"{path}.scale", np.ones(self.width), np.float32)
        inputs = [x, f"{path}.scale", self.weight(f"{path}.bias", self.width)]
        return self.op(path, "LayerNormalization", inputs, axis=-1)

    def gelu(self, path: str, x: str) -> str:
        scaled = self.op(path, "Div", [x, self.constant(f"{path}.root", math.sqrt(2), np.float32)])
        more = self.op(
            path, "Add", [self.op(path, "Erf", [scaled]), self.constant(f"{path}.one", 1, np.float32)]
        )
        product = self.op(path, "Mul", [x, more])
        return self.op(path, "Mul", [product, self.constant(f"{path}.half", 0.5, np.float32)])

    def attention(self, path: str, x: str, seen: str, mask: str | None = None) -> str:
        width, size = self.width, self.width // self.heads
        split = self.constant(f"{path}.split", [0, 0, self.heads, size])
        flat = self.constant(f"{path}.flat", [0, 0, width])

        def heads(name: str, source: str, perm: list[int], *, bias: bool = True) -> str:
            rows = self.linear(f"{path}/{name}", source, width, width, bias=bias)
            return self.op(
                f"{path}/{name}", "Transpose", [self.op(path, "Reshape", [rows, split])], perm=perm
            )

        q = heads("q_proj", x, [0, 2, 1, 3])
        k = heads("k_proj", seen, [0, 2, 3, 1], bias=False)
        v = heads("v_proj", seen, [0, 2, 1, 3])
        scale = self.constant(f"{path}.scale", size**-0.5, np.float32)
        scores = self.op(path, "MatMul", [self.op(path, "Mul", [q, scale]), k])
        if mask is not None:
            scores = self.op(path, "Add", [scores, mask])
        mixed = self.op(path, "MatMul", [self.op(path, "Softmax", [scores], axis=-1), v])
        rows = self.op(path, "Reshape", [self.op(path, "Transpose", [mixed], perm=[0, 2, 1, 3]), flat])
        return self.linear(f"{path}/out_proj", rows, width, width)

    def network(self, path: str, x: str) -> str:
        inner = self.gelu(f"{path}/act", self.linear(f"{path}/fc1", x, self.width, 4 * self.width))
        return self.linear(f"{path}/fc2", inner, 4 * self.width, self.width)

    def first(self, path: str, table: str, like: str, axis: int) -> str:
        """The first rows of a table of positions, as many as a value has on an axis."""
        shape = self.op(path, "Shape", [like], start=axis, end=axis + 1)
        zero = self.constant(f"{path}.zero", [0])
        return self.op(path, "Slice", [table, zero, shape, zero])

    def encoder(self, mel: str, layers: int, most: int) -> str:
        x = mel
        for number, (bands, stride) in enumerate(((BANDS, 1), (self.width, 2)), 1):
            path = f"/encoder/conv{number}"
            weights = [self.weight(f"{path}.w", self.width, bands, 3), self.weight(f"{path}.b", self.width)]
            x = self.gelu(path, self.op(path, "Conv", [x, *weights], pads=[1, 1], strides=[stride]))
        x = self.op("/encoder", "Transpose", [x], perm=[0, 2, 1])
        positions = self.weight("encoder.positions", most, self.width)
        x = self.op("/encoder", "Add", [x, self.first("/encoder", positions, x, 1)])
        for layer in range(layers):
            path = f"/encoder/layers.{layer}"
            normed = self.norm(f"{path}/self_attn_layer_norm", x)
            x = self.op(path, "Add", [x, self.attention(f"{path}/self_attn", normed, normed)])
            x = self.op(path, "Add", [x, self.network(path, self.norm(f"{path}/final_layer_norm", x))])
        return self.norm("/encoder/layer_norm", x)

    def decoder(self, tokens: str, sound: str, layers: int, vocab: int, most: int) -> str:
        table = self.weight("decoder.embed_tokens", vocab, self.width)
        positions = self.weight("decoder.positions", most, self.width)
        x = self.op("/decoder/embed_tokens", "Gather", [table, tokens])
        x = self.op("/decoder", "Add", [x, self.first("/decoder/embed_positions", positions, tokens, 1)])
        every = self.constant("decoder.mask", np.triu(np.full((most, most), -1e9), 1), np.float32)
        length = self.op("/decoder", "Shape", [tokens], start=1, end=2)
        ends = self.op("/decoder", "Concat", [length, length], axis=0)
        mask = self.op("/decoder", "Slice", [every, self.constant("decoder.corner", [0, 0]), ends])
        for layer in range(layers):
            path = f"/decoder/layers.{layer}"
            normed = self.norm(f"{path}/self_attn_layer_norm", x)
            x = self.op(path, "Add", [x, self.attention(f"{path}/self_attn", normed, normed, mask)])
            normed = self.norm(f"{path}/encoder_attn_layer_norm", x)
            x = self.op(path, "Add", [x, self.attention(f"{path}/encoder_attn", normed, sound)])
            x = self.op(path, "Add", [x, self.network(path, self.norm(f"{path}/final_layer_norm", x))])
        x = self.norm("/decoder/layer_norm", x)
        return self.op("/decoder", "MatMul", [x, self.op("/decoder", "Transpose", [table], perm=[1, 0])])


def whisper(
    width: int = 96, heads: int = 6, layers: int = 4, vocab: int = 515, frames: int = 200, length: int = 12
) -> Made:
    """`mel` (1, 80, frames) and `tokens` (1, length) to `logits` (1, length, vocab). Whisper-tiny: 384, 6, 4, 51865."""
    made = _Builder(width, heads)
    sound = made.encoder("mel", layers, 1500)
    made.nodes.append(node("Identity", [made.decoder("tokens", sound, layers, vocab, 448)], ["logits"]))
    model: ModelProto = built(
        made.nodes,
        [("mel", FLOAT, [1, BANDS, "frames"]), ("tokens", INT64, [1, "length"])],
        [("logits", FLOAT, [1, "length", vocab])],
        made.arrays,
    )
    return Made(model, {"frames": frames, "length": length}, 10)
