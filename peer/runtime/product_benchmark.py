"""How fast this machine multiplies matrices, and what it occupies without weights, for meshes without a model that
answers in words. Edge.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np

from peer.errors import CannotServe
from peer.runtime.execution import session_options
from peer.runtime.peak_memory import forget_peak, peak_bytes
from peer.runtime.self_benchmark import GROWING_BYTES, UnitTimes
from planner.model.onnxruntime_import import ort
from planner.model.yardstick import GRAPH, KIND, ROWS, WIDTH

RUNS: Final = 31
FASTEST: Final = 10  # one run in so many is faster than what counts: others that compute only make it slower


def measure_product(threads: int) -> UnitTimes:
    """Takes some hundredths of a second. Raises CannotServe where onnxruntime refuses."""
    forget_peak()
    try:
        session = ort.InferenceSession(GRAPH, session_options(Path(), threads), ["CPUExecutionProvider"])
    except Exception as error:  # of onnxruntime's own kinds, which derive from nothing in common
        raise CannotServe(f"onnxruntime cannot multiply matrices here: {error}") from error

    def seconds(rows: int) -> float:
        x = np.ones((rows, WIDTH), np.float32)
        taken: list[float] = []
        for _ in range(RUNS):
            start = time.perf_counter()
            session.run(["y"], {"x": x})
            taken.append(time.perf_counter() - start)
        return sorted(taken)[RUNS // FASTEST]

    one, many = seconds(1), seconds(ROWS)
    row = max(many - one, many / ROWS / 2) / (
        ROWS - 1
    )  # a run that was held up makes no machine infinitely fast
    return UnitTimes(
        decode_s={KIND: one},
        prefill_s={KIND: row},
        step_s=max(one - row, 0.0),
        batch_s={KIND: row},
        overhead_bytes=peak_bytes() + GROWING_BYTES,
    )
