"""Units of a graph model at work on this machine: one session of onnxruntime for a run of units. Edge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peer.dataflow.value_codec import Array
from peer.errors import CannotServe
from peer.runtime.execution import session_options
from peer.runtime.huge_pages import giving_back
from planner.model.compose import Composed
from planner.model.onnxruntime_import import ort


class GraphRuntime:
    """Raises CannotServe where onnxruntime refuses the graph. Of one thread at a time."""

    def __init__(self, composed: Composed, blobs: Path, threads: int, *, fused: bool) -> None:
        """`fused`: as in the manifest."""
        self._outputs = tuple(value.name for value in composed.outputs)
        self.weight_bytes = composed.weight_bytes
        options = session_options(blobs, threads, fused=fused)
        options.enable_cpu_mem_arena = True  # else each run maps its scratch anew: a third of the time
        try:
            with giving_back():
                self._session: Any = ort.InferenceSession(composed.model, options, ["CPUExecutionProvider"])
        except Exception as error:  # of onnxruntime's own kinds, which derive from nothing in common
            raise CannotServe(f"onnxruntime refused these units: {error}") from error

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by the names of their values. Raises CannotServe when they cannot be computed."""
        try:
            found = self._session.run(list(self._outputs), dict(inputs))
        except Exception as error:
            raise CannotServe(f"onnxruntime could not compute it: {error}") from error
        return dict(zip(self._outputs, found, strict=True))
