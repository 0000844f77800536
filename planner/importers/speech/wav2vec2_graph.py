"""What a model of Wav2Vec2's kind computes, as an ONNX file: convolutions over sound, blocks of attention, and logits.

sound float32 (1, samples), between -1 and 1 -> logits float32 (1, frames, tokens). What the sound is divided by, where
the model wants that, is in the file, so that a tab and a process make the same numbers of one sound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from planner.importers.vision.blocks import activated, attention, heads_of, linear, norm
from planner.importers.vision.graph_file import WEIGHTS, Floats, GraphFile, float_value

SOUND: Final = "sound"
LOGITS: Final = "logits"
LEAST_VARIANCE: Final = 1e-7  # added to that of a sound
NORM_EPSILON: Final = 1e-5  # of norms between convolutions
Weights = Callable[[str], Floats]  # by the name in the checkpoint, without "wav2vec2."


@dataclass(frozen=True, slots=True)
class Convolution:
    """One of those that make features of sound: channels that it makes, its width and its step."""

    channels: int
    kernel: int
    stride: int


@dataclass(frozen=True, slots=True)
class Wav2Vec2Shape:
    """The numbers of a model. `normalized`: sound gets a mean of 0 and a variance of 1. `each_normed`: features are
    normalized behind each convolution, over channels; else behind the first one, each channel over time.
    `convolution_bias`: convolutions have one. `near`, `near_groups`: frames, and groups of channels, of the convolution
    that tells where a frame stands. `norm_first`: norms stand before the halves of a block, and behind the last block.
    """

    convolutions: tuple[Convolution, ...]
    each_normed: bool
    convolution_bias: bool
    feature_activation: str
    blocks: int
    hidden: int
    heads: int
    ffn: int
    activation: str
    near: int
    near_groups: int
    norm_first: bool
    epsilon: float
    vocab: int
    normalized: bool

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return math.prod(each.stride for each in self.convolutions)

    @property
    def seen(self) -> int:
        """Samples that a frame is made of: fewer have no frame."""
        wide = 1
        for each in reversed(self.convolutions):
            wide = (wide - 1) * each.stride + each.kernel
        return wide


def tensor_shapes(shape: Wav2Vec2Shape) -> dict[str, tuple[int, ...]]:
    """Every tensor by its name in a checkpoint, without "wav2vec2."; the weight of the convolution of places whole."""
    found: dict[str, tuple[int, ...]] = {}
    before = 1
    for place, each in enumerate(shape.convolutions):
        at = f"feature_extractor.conv_layers.{place}"
        found[f"{at}.conv.weight"] = (each.channels, before, each.kernel)
        if shape.convolution_bias:
            found[f"{at}.conv.bias"] = (each.channels,)
        if shape.each_normed or not place:
            found[f"{at}.layer_norm.weight"] = found[f"{at}.layer_norm.bias"] = (each.channels,)
        before = each.channels
    width = shape.hidden
    found["feature_projection.layer_norm.weight"] = found["feature_projection.layer_norm.bias"] = (before,)
    found["feature_projection.projection.weight"] = (width, before)
    found["feature_projection.projection.bias"] = (width,)
    found[PLACES] = (width, width // shape.near_groups, shape.near)
    found["encoder.pos_conv_embed.conv.bias"] = (width,)
    found["encoder.layer_norm.weight"] = found["encoder.layer_norm.bias"] = (width,)
    for block in range(shape.blocks):
        at = f"encoder.layers.{block}"
        for name, rows, columns in (
            *((f"attention.{part}_proj", width, width) for part in ("q", "k", "v", "out")),
            ("feed_forward.intermediate_dense", shape.ffn, width),
            ("feed_forward.output_dense", width, shape.ffn),
        ):
            found[f"{at}.{name}.weight"], found[f"{at}.{name}.bias"] = (rows, columns), (rows,)
        for name in ("layer_norm", "final_layer_norm"):
            found[f"{at}.{name}.weight"] = found[f"{at}.{name}.bias"] = (width,)
    found["lm_head.weight"], found["lm_head.bias"] = (shape.vocab, width), (shape.vocab,)
    return found


PLACES: Final = "encoder.pos_conv_embed.conv.weight"


@contextmanager
def wav2vec2_file(shape: Wav2Vec2Shape, name: str, weights: Weights, scratch: Path) -> Iterator[Path]:
    """The ONNX file, as long as the block lasts. `name`: of the model, for messages. Raises CorruptModel."""
    with TemporaryDirectory(prefix="speech-", dir=scratch) as made:
        folder = Path(made)
        with (folder / WEIGHTS).open("wb") as beside:
            graph = GraphFile(folder, name, beside)
            _Writer(shape, graph, weights).write()
        yield graph.finish(
            [float_value(SOUND, 1, "samples")], [float_value(LOGITS, 1, "frames", shape.vocab)]
        )


class _Writer:
    def __init__(self, shape: Wav2Vec2Shape, graph: GraphFile, weights: Weights) -> None:
        self._n, self._graph, self._weights = shape, graph, weights

    def write(self) -> None:
        rows = self._placed(self._features())
        for block in range(self._n.blocks):
            rows = self._block(rows, f"layers.{block}")
        if self._n.norm_first:
            rows = self._norm(rows, "norm", "encoder.layer_norm")
        made = self._linear(rows, "/head/logits", "lm_head")
        self._graph.add("Identity", [made], LOGITS)

    def _norm(self, rows: str, name: str, tensor: str, part: str = "encoder") -> str:
        return norm(self._graph, part, rows, name, tensor, self._weights, self._n.epsilon)

    def _linear(self, rows: str, name: str, tensor: str) -> str:
        weight, bias = (self._weights(f"{tensor}.{kind}") for kind in ("weight", "bias"))
        return linear(self._graph, rows, name, weight, bias)

    def _features(self) -> str:
        """(1, frames, channels)."""
        graph, n = self._graph, self._n
        axis = graph.numbers("/axis/channel", [1])
        made = SOUND
        if n.normalized:
            over = graph.numbers("/axis/samples", [1])
            mean = graph.add("ReduceMean", [SOUND, over], "/features/mean", keepdims=1)
            centred = graph.add("Sub", [SOUND, mean], "/features/centred")
            squares = graph.add("Mul", [centred, centred], "/features/squares")
            variance = graph.add("ReduceMean", [squares, over], "/features/variance", keepdims=1)
            least = graph.constant("/features/least", np.array(LEAST_VARIANCE, np.float32))
            held = graph.add("Add", [variance, least], "/features/variance.held")
            root = graph.add("Sqrt", [held], "/features/deviation")
            made = graph.add("Div", [centred, root], "/features/normalized")
        made = graph.add("Unsqueeze", [made, axis], "/features/channel")
        for place, each in enumerate(n.convolutions):
            at, tensor = f"/features/conv.{place}", f"feature_extractor.conv_layers.{place}"
            kinds = ("weight", "bias") if n.convolution_bias else ("weight",)
            both = [graph.weight(f"{at}.{kind}", self._weights(f"{tensor}.conv.{kind}")) for kind in kinds]
            made = graph.add("Conv", [made, *both], at, kernel_shape=[each.kernel], strides=[each.stride])
            if n.each_normed:
                turned = graph.add("Transpose", [made], f"{at}.turned", perm=(0, 2, 1))
                scaled = self._scaled("LayerNormalization", turned, at, tensor, axis=-1)
                made = graph.add("Transpose", [scaled], f"{at}.back", perm=(0, 2, 1))
            elif not place:
                made = self._scaled("InstanceNormalization", made, at, tensor)
            made = activated(graph, made, f"{at}.active", n.feature_activation)
        turned = graph.add("Transpose", [made], "/features/rows", perm=(0, 2, 1))
        read = self._norm(turned, "norm", "feature_projection.layer_norm", "features")
        return self._linear(read, "/features/projection", "feature_projection.projection")

    def _scaled(self, operator: str, source: str, at: str, tensor: str, **attributes: int) -> str:
        both = [
            self._graph.weight(f"{at}.norm.{kind}", self._weights(f"{tensor}.layer_norm.{kind}"))
            for kind in ("weight", "bias")
        ]
        return self._graph.add(operator, [source, *both], f"{at}.normed", epsilon=NORM_EPSILON, **attributes)

    def _placed(self, rows: str) -> str:
        """Rows with what their neighbours say of where they stand."""
        graph, n, at = self._graph, self._n, "/encoder/places"
        turned = graph.add("Transpose", [rows], f"{at}.turned", perm=(0, 2, 1))
        both = [
            graph.weight(f"{at}.{kind}", self._weights(f"encoder.pos_conv_embed.conv.{kind}"))
            for kind in ("weight", "bias")
        ]
        half = n.near // 2
        made = graph.add(
            "Conv",
            [turned, *both],
            at,
            kernel_shape=[n.near],
            pads=[half, half - (n.near % 2 == 0)],  # as many frames come out as go in
            group=n.near_groups,
        )
        active = activated(graph, made, f"{at}.active", n.feature_activation)
        back = graph.add("Transpose", [active], f"{at}.back", perm=(0, 2, 1))
        placed = graph.add("Add", [rows, back], f"{at}.sum")
        return placed if n.norm_first else self._norm(placed, "norm", "encoder.layer_norm")

    def _block(self, rows: str, name: str) -> str:
        graph, n, at, tensor = self._graph, self._n, f"/encoder/{name}", f"encoder.{name}"
        read = self._norm(rows, f"{name}/before", f"{tensor}.layer_norm") if n.norm_first else rows
        turned = []
        for part, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            made = self._linear(read, f"{at}/{part}", f"{tensor}.attention.{part}_proj")
            turned.append(heads_of(graph, made, f"{at}/{part}", n.heads, n.hidden, order))
        mixed = attention(graph, at, turned[0], turned[1], turned[2], n.heads, n.hidden)
        attended = self._linear(mixed, f"{at}/o", f"{tensor}.attention.out_proj")
        middle = graph.add("Add", [rows, attended], f"{at}/middle")
        between = f"{tensor}.final_layer_norm" if n.norm_first else f"{tensor}.layer_norm"
        normed = self._norm(middle, f"{name}/between", between)
        up = self._linear(normed, f"{at}/up", f"{tensor}.feed_forward.intermediate_dense")
        wide = activated(graph, up, f"{at}/wide", n.activation)
        down = self._linear(wide, f"{at}/down", f"{tensor}.feed_forward.output_dense")
        end = graph.add("Add", [middle if n.norm_first else normed, down], f"{at}/end")
        return end if n.norm_first else self._norm(end, f"{name}/behind", f"{tensor}.final_layer_norm")
