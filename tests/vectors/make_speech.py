"""Writes speech.json: frames and windows of recordings, and prompts and tokens of texts without times.

The spectrogram computes whole numbers that float32 holds, so both languages get the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper
from tracing import beside, written

from peer.model.sound import Spectrogram, window_of
from peer.model.speech_rules import Writing, allowed
from planner.model.blob_ref import BlobRef
from planner.model.speech import HOP, Speech, speech_document

PATH = beside(__file__, "speech.json")
VOCAB, CONTEXT, END = 48, 40, 20
MELS, FRAMES = 2, 24
SAMPLES = {
    "shorter than a window": 1500,
    "one window": FRAMES * HOP,
    "a window and more": 40 * HOP + 77,
    "silence": 800,
}
SPEECH = Speech(
    encoder="e" * 64,
    spectrogram=BlobRef("5" * 64, 0, ()),
    rows=FRAMES // 2,
    mels=MELS,
    frames=FRAMES,
    start=21,
    languages={"en": 22, "de": 23},
    transcribe=25,
    translate=24,
    no_timestamps=30,
    suppressed=(1, 2, 24, 25),
    begin_suppressed=(4, END),
    max_initial=5,
)
ONE_LANGUAGE = replace(SPEECH, languages={}, transcribe=None, translate=None, suppressed=())


def numbers(seed: int, length: int) -> npt.NDArray[np.int16]:
    """Whole numbers from -127 to 127."""
    state = seed
    found = np.empty(length, np.int16)
    for place in range(length):
        state = (1103515245 * state + 12345) % 2**31
        found[place] = (state >> 16) % 255 - 127
    return found


def spectrogram_file() -> bytes:
    """A convolution, whose sums have at most 20 bits."""
    kernel = (numbers(7, MELS * 400) // 16).reshape(MELS, 1, 400).astype(np.float32) / 16
    node = helper.make_node
    nodes = [
        node("Unsqueeze", ["sound", "one"], ["channel"]),
        node("Conv", ["channel", "kernel"], ["frames"], strides=[HOP], kernel_shape=[400]),
    ]
    shapes = {"sound": [1, "samples"], "frames": [1, MELS, "frames"]}
    sound, frames = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    constants = [
        numpy_helper.from_array(kernel, "kernel"),
        numpy_helper.from_array(np.array([1], np.int64), "one"),
    ]
    graph = helper.make_graph(nodes, "spectrogram", [sound], [frames], constants)
    opset = helper.make_opsetid("", 21)
    encoded: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString(
        deterministic=True
    )
    return encoded


def recordings(file: Path) -> list[dict[str, Any]]:
    made = Spectrogram(file, SPEECH, 1)
    rows: list[dict[str, Any]] = []
    for name, length in SAMPLES.items():
        samples = numbers(length, length) * np.int16(0 if name == "silence" else 256)
        frames = made.frames(samples)
        windows = [window_of(frames, seek, FRAMES) for seek in range(0, frames.shape[1], FRAMES)]
        rows.append(
            {
                "name": name,
                "samples": samples.astype("<i2").tobytes().hex(),
                "count": frames.shape[1],
                "windows": [window.ravel().tolist() for window in windows],
            }
        )
    return rows


def rules() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for speech in (SPEECH, ONE_LANGUAGE):
        for language in speech.languages.values() or (None,):
            writing = Writing(speech, END, language, times=False)
            may = (allowed(np.zeros(VOCAB, np.float32), writing, before) for before in ([], [5]))
            first, later = (np.flatnonzero(np.isfinite(each)).tolist() for each in may)
            rows.append(
                {
                    "speech": speech_document(speech),
                    "language": language,
                    "prompt": list(writing.prompt),
                    "first": first,
                    "later": later,
                }
            )
    return rows


def text() -> str:
    about = (
        "`made`: the spectrogram, ONNX in hex. `recordings`: int16 samples in hex, how many frames the spectrogram "
        "makes of them, and all windows in turn. `rules`: of texts without times, the prompt of a language and the "
        "tokens that may come first and later."
    )
    encoded = spectrogram_file()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "spectrogram.onnx"
        file.write_bytes(encoded)
        rows = recordings(file)
    made = [{"file": encoded.hex(), "vocab": VOCAB, "context": CONTEXT}]
    return written(about, {"made": made, "recordings": rows, "rules": rules()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
