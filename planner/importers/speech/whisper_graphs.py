"""What a speech model of Whisper's kind computes before its decoder, as ONNX files: a spectrogram, and the encoder.

The spectrogram is a convolution with windowed waves, so that a tab and a process make the same numbers of one sound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from planner.model.speech import HOP, RATE

OPSET: Final = 21
IR_VERSION: Final = 10
WINDOW: Final = 400  # samples of a frame
LEAST_POWER: Final = 1e-10
EXTERNAL: Final = "encoder.weights"
ALIGN: Final = 64

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Numbers of the encoder: blocks, values of a row, heads, width of feed-forward, mel bands and rows it makes."""

    blocks: int
    hidden: int
    heads: int
    ffn: int
    mels: int
    rows: int


def mel_filters(mels: int) -> npt.NDArray[np.float64]:
    """Slaney's triangles of equal area over 0 to 8 kHz: (WINDOW / 2 + 1, mels)."""
    edges = _hertz(np.linspace(_mel(0.0), _mel(RATE / 2), mels + 2))
    lines = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    slopes = edges[None, :] - lines[:, None]
    widths = np.diff(edges)
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    return np.maximum(0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))


def _mel(hertz: float) -> float:
    return 15.0 + np.log(hertz / 1000.0) * 27.0 / np.log(6.4) if hertz >= 1000 else 3.0 * hertz / 200.0


def _hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mels >= 15, 1000.0 * np.exp(np.log(6.4) / 27.0 * (mels - 15.0)), 200.0 * mels / 3.0)


def spectrogram_file(filters: npt.NDArray[np.float64]) -> bytes:
    """`sound` (1, 400 + 160 (n - 1)) -> `frames` (1, mels, n): decimal logarithms of power in each band.

    `filters`: (201, mels).
    """
    lines = np.arange(WINDOW // 2 + 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)  # a periodic Hann window
    turns = 2 * np.pi * ((lines[:, None] * np.arange(WINDOW)) % WINDOW) / WINDOW
    waves = np.concatenate([np.cos(turns), np.sin(turns)]) * window
    constants: dict[str, npt.NDArray[Any]] = {
        "waves": waves[:, None].astype(np.float32),
        "filters": filters.T.astype(np.float32),
        "least": np.array(LEAST_POWER, np.float32),
        "decimal": np.array(1 / np.log(10), np.float32),
        "one": np.array([1], np.int64),
        "halves": np.array([len(lines)] * 2, np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Unsqueeze", ["sound", "one"], ["channel"]),
        node("Conv", ["channel", "waves"], ["spectrum"], strides=[HOP], kernel_shape=[WINDOW]),
        node("Mul", ["spectrum", "spectrum"], ["squares"]),
        node("Split", ["squares", "halves"], ["real", "imaginary"], axis=1),
        node("Add", ["real", "imaginary"], ["power"]),
        node("MatMul", ["filters", "power"], ["bands"]),
        node("Max", ["bands", "least"], ["bands.least"]),
        node("Log", ["bands.least"], ["bands.log"]),
        node("Mul", ["bands.log", "decimal"], ["frames"]),
    ]
    made = _model(
        nodes,
        [("sound", [1, "samples"])],
        [("frames", [1, filters.shape[1], "frames"])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    encoded: bytes = made.SerializeToString(deterministic=True)
    return encoded


def write_encoder(folder: Path, shape: EncoderShape, weights: Callable[[str], Floats]) -> Path:
    """Writes the encoder as an ONNX file with weights beside it; returns the file: `mel` (1, mels, 2 rows) -> `encoded`
    (1, rows, hidden). `weights(name)`: a tensor by its name in the folder's files, without "model.encoder.".
    """
    file = folder / "encoder.onnx"
    with (folder / EXTERNAL).open("wb") as beside:
        made = _Encoder(shape, weights, beside).model()
    file.write_bytes(made.SerializeToString(deterministic=True))
    return file


class _Encoder:
    """The graph under construction. Values have names of the modules that make them, as exporters give them."""

    def __init__(self, shape: EncoderShape, weights: Callable[[str], Floats], beside: BinaryIO) -> None:
        self._shape = shape
        self._weights = weights
        self._beside = beside
        self._nodes: list[NodeProto] = []
        self._tensors: list[TensorProto] = []

    def model(self) -> ModelProto:
        shape = self._shape
        first = self._convolved("mel", "conv1", 1)
        second = self._convolved(first, "conv2", 2)
        turned = self._add("Transpose", [second], "/sound/turned", perm=[0, 2, 1])
        places = self._stored("embed_positions.weight", self._weights("embed_positions.weight")[: shape.rows])
        rows = self._add("Add", [turned, places], "/sound/rows")
        for block in range(shape.blocks):
            rows = self._block(rows, f"layers.{block}")
        self._norm(rows, "layer_norm", "encoded")
        return _model(
            self._nodes,
            [("mel", [1, shape.mels, 2 * shape.rows])],
            [("encoded", [1, shape.rows, shape.hidden])],
            self._tensors,
        )

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _stored(self, name: str, array: npt.NDArray[Any]) -> str:
        """A weight, at the end of the file beside."""
        encoded = np.ascontiguousarray(array, "<f4").tobytes()
        self._beside.write(b"\0" * (-self._beside.tell() % ALIGN))
        tensor = TensorProto(
            name=name,
            data_type=TensorProto.FLOAT,
            dims=array.shape,
            data_location=TensorProto.EXTERNAL,
        )
        facts = (("location", EXTERNAL), ("offset", self._beside.tell()), ("length", len(encoded)))
        for key, value in facts:
            tensor.external_data.add(key=key, value=str(value))
        self._beside.write(encoded)
        self._tensors.append(tensor)
        return name

    def _sizes(self, name: str, *values: int) -> str:
        if all(tensor.name != name for tensor in self._tensors):
            self._tensors.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def _convolved(self, source: str, name: str, stride: int) -> str:
        weight, bias = (self._stored(f"{name}.{kind}", self._weights(f"{name}.{kind}")) for kind in _BOTH)
        made = self._add(
            "Conv",
            [source, weight, bias],
            f"/sound/{name}",
            kernel_shape=[3],
            pads=[1, 1],
            strides=[stride],
        )
        return self._add("Gelu", [made], f"/sound/{name}.active", approximate="none")

    def _norm(self, source: str, name: str, output: str) -> str:
        weights = [self._stored(f"{name}.{kind}", self._weights(f"{name}.{kind}")) for kind in _BOTH]
        return self._add(
            "LayerNormalization", [source, *weights], output, axis=-1, epsilon=1e-5, stash_type=1
        )

    def _linear(self, source: str, name: str, bias: Floats | None = None, scale: float = 1.0) -> str:
        matrix = self._stored(f"{name}.weight.T", self._weights(f"{name}.weight").T * np.float32(scale))
        product = self._add("MatMul", [source, matrix], f"/encoder/{name}.product")
        if bias is None:
            return product
        return self._add(
            "Add", [product, self._stored(f"{name}.bias", bias * np.float32(scale))], f"/encoder/{name}"
        )

    def _block(self, rows: str, name: str) -> str:
        """Attention and feed-forward, both added to the rows."""
        shape, size = self._shape, self._shape.hidden // self._shape.heads
        normed = self._norm(rows, f"{name}.self_attn_layer_norm", f"/encoder/{name}.normed")
        split = self._sizes("split", 0, 0, shape.heads, size)
        heads = {}
        for part, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            called = f"{name}.self_attn.{part}_proj"
            bias = None if part == "k" else self._weights(f"{called}.bias")
            made = self._linear(normed, called, bias, size**-0.5 if part == "q" else 1.0)
            parted = self._add("Reshape", [made, split], f"/encoder/{called}.heads")
            heads[part] = self._add("Transpose", [parted], f"/encoder/{called}.turned", perm=order)
        scores = self._add("MatMul", [heads["q"], heads["k"]], f"/encoder/{name}.scores")
        shares = self._add("Softmax", [scores], f"/encoder/{name}.shares", axis=-1)
        mixed = self._add("MatMul", [shares, heads["v"]], f"/encoder/{name}.mixed")
        turned = self._add("Transpose", [mixed], f"/encoder/{name}.mixed.turned", perm=(0, 2, 1, 3))
        flat = self._add(
            "Reshape", [turned, self._sizes("flat", 0, 0, shape.hidden)], f"/encoder/{name}.flat"
        )
        called = f"{name}.self_attn.out_proj"
        attended = self._linear(flat, called, self._weights(f"{called}.bias"))
        middle = self._add("Add", [rows, attended], f"/encoder/{name}.middle")
        normed = self._norm(middle, f"{name}.final_layer_norm", f"/encoder/{name}.final")
        inner = self._linear(normed, f"{name}.fc1", self._weights(f"{name}.fc1.bias"))
        active = self._add("Gelu", [inner], f"/encoder/{name}.active", approximate="none")
        made = self._linear(active, f"{name}.fc2", self._weights(f"{name}.fc2.bias"))
        return self._add("Add", [middle, made], f"/encoder/{name}.end")


_BOTH: Final = ("weight", "bias")


def _model(
    nodes: list[NodeProto],
    inputs: list[tuple[str, list[int | str]]],
    outputs: list[tuple[str, list[int | str]]],
    tensors: list[TensorProto],
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "speech",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        tensors,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name=""
    )


def tensor_names(shape: EncoderShape) -> dict[str, tuple[int, ...]]:
    """The tensors that the encoder needs, by their names without "model.encoder.", and their shapes."""
    width, bias = shape.hidden, (shape.hidden,)
    found: dict[str, tuple[int, ...]] = {
        "conv1.weight": (width, shape.mels, 3),
        "conv1.bias": bias,
        "conv2.weight": (width, width, 3),
        "conv2.bias": bias,
        "embed_positions.weight": (shape.rows, width),
        "layer_norm.weight": bias,
        "layer_norm.bias": bias,
    }
    for block in range(shape.blocks):
        name = f"layers.{block}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            found[f"{name}.self_attn.{part}.weight"] = (width, width)
            if part != "k_proj":
                found[f"{name}.self_attn.{part}.bias"] = bias
        found[f"{name}.fc1.weight"], found[f"{name}.fc1.bias"] = (shape.ffn, width), (shape.ffn,)
        found[f"{name}.fc2.weight"], found[f"{name}.fc2.bias"] = (width, shape.ffn), bias
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            found[f"{name}.{norm}.weight"] = found[f"{name}.{norm}.bias"] = bias
    return found
