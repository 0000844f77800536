"""Sound to keyword in one graph: the three models of openWakeWord joined as its engines chain them.

A spectrogram of the whole sound; an embedding of each window of 76 of its frames, 8 frames apart; and a keyword's
classifier over the last 16 embeddings. Edge: reads pinned files in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from planner.errors import CorruptModel

SAMPLES: Final = 32_000  # two seconds of 16 kHz: 197 frames, which hold the 16 windows
BANDS: Final = 32
WINDOW: Final = 76  # frames of an embedding
STEP: Final = 8  # frames from one window to the next
WINDOWS: Final = 16  # that the classifier sees
OPSET: Final = 13
_node = helper.make_node


def join_wake_words(files: Sequence[Path]) -> bytes:
    """The ONNX file of one graph: `sound` (1, 32000), float32, to `score` (1, 1).

    `files`: spectrogram, embedding, keyword. Raises CorruptModel where they are not such models.
    """
    names = ("spectrogram", "embedding", "keyword")
    try:
        joined = _joined([onnx.load(file) for file in files], names)
        encoded: bytes = joined.SerializeToString(deterministic=True)
    except (ValueError, IndexError, DecodeError, onnx.checker.ValidationError) as error:
        raise CorruptModel(f"the models of wake words cannot be joined: {str(error)[:200]}") from None
    return encoded


def _joined(models: Sequence[ModelProto], names: Sequence[str]) -> ModelProto:
    parts = [model.graph for model in models]
    for part, name in zip(parts, names, strict=True):
        _rename(part, f"/{name}/")
    (sound, frames), (window, row), (rows, score) = (
        (part.input[0].name, part.output[0].name) for part in parts
    )
    graph = helper.make_graph(
        [
            _node("Identity", ["sound"], [sound]),
            *parts[0].node,
            *_windows(frames, window),
            *parts[1].node,
            _node("Reshape", [row, "rows.shape"], [rows]),
            *parts[2].node,
            _node("Identity", [score], ["score"]),
        ],
        "wake words",
        [helper.make_tensor_value_info("sound", TensorProto.FLOAT, [1, SAMPLES])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [1, 1])],
        [*(tensor for part in parts for tensor in part.initializer), *_constants()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def _rename(graph: GraphProto, prefix: str) -> None:
    """Puts the prefix before every name, those that bodies take from around them included."""
    for each in (*graph.input, *graph.output, *graph.initializer):
        each.name = prefix + each.name
    for each in graph.node:
        each.name = prefix + each.name
        each.input[:] = [name and prefix + name for name in each.input]
        each.output[:] = [name and prefix + name for name in each.output]
        for attribute in each.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                _rename(body, prefix)
    del graph.value_info[:]  # of the sizes that it was exported with


def _windows(frames: str, window: str) -> list[NodeProto]:
    """The last frames, scaled as the embedding expects them, as a batch of windows."""
    return [
        _node("Reshape", [frames, "frames.shape"], ["frames.flat"]),
        _node("Slice", ["frames.flat", "frames.first", "frames.end", "frames.axis"], ["frames.last"]),
        _node("Div", ["frames.last", "frames.divisor"], ["frames.divided"]),
        _node("Add", ["frames.divided", "frames.bias"], ["frames.scaled"]),
        _node("Gather", ["frames.scaled", "windows.frames"], ["windows"], axis=0),
        _node("Unsqueeze", ["windows", "windows.axis"], [window]),
    ]


def _constants() -> list[TensorProto]:
    starts = np.arange(WINDOWS, dtype=np.int64)[:, None] * STEP
    arrays = {
        "frames.shape": np.array([-1, BANDS]),
        "frames.first": np.array([-(WINDOW + (WINDOWS - 1) * STEP)]),
        "frames.end": np.array([np.iinfo(np.int64).max]),
        "frames.axis": np.array([0]),
        "frames.divisor": np.float32(10),
        "frames.bias": np.float32(2),
        "windows.frames": starts + np.arange(WINDOW, dtype=np.int64),
        "windows.axis": np.array([3]),
        "rows.shape": np.array([1, WINDOWS, -1]),
    }
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
