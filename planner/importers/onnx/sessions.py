"""onnxruntime as an import uses it: on the CPU with one thread, so that equal graphs give equal bits.

Edge. Not thread-safe. Sessions live one after another, since each has the weights in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from planner.errors import UnknownArchitecture
from planner.model.onnxruntime_import import ort

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

PROVIDERS: Final = ["CPUExecutionProvider"]
FATAL: Final = 4  # what fails is an error in Python; onnxruntime need not print it, too
MESSAGE_CHARS: Final = 300


class NotRun(Exception):
    """onnxruntime refused the model or its inputs; one line."""


def options(folder: Path | None = None, *, optimize: bool = True, fused: bool = True) -> Any:
    """`folder`: where external data of a model lies that is given as bytes. `fused`: operators may be joined."""
    found = ort.SessionOptions()
    found.intra_op_num_threads = found.inter_op_num_threads = 1
    found.log_severity_level = FATAL
    found.enable_mem_pattern = False  # sizes change from run to run
    found.enable_cpu_mem_arena = False  # what a run leaves is given back: memory is bounded
    if not fused:
        found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if not optimize:
        found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder is not None:
        found.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return found


def opened(model: bytes | Path, chosen: Any) -> Any:
    """An onnxruntime session. Raises NotRun."""
    try:
        return ort.InferenceSession(str(model) if isinstance(model, Path) else model, chosen, PROVIDERS)
    except MemoryError:
        raise
    except Exception as error:  # a dozen unrelated kinds
        raise _not_run(error) from None


def run(session: Any, feed: Arrays, wanted: Sequence[str] | None = None) -> dict[str, Array]:
    """What the model makes of `feed`, of which it takes what it has as inputs. Raises NotRun."""
    names = list(wanted) if wanted is not None else [value.name for value in session.get_outputs()]
    inputs = {value.name: feed[value.name] for value in session.get_inputs()}
    try:
        return dict(zip(names, session.run(names, inputs), strict=True))
    except MemoryError:
        raise
    except Exception as error:
        raise _not_run(error) from None


def refused(name: str, error: NotRun) -> UnknownArchitecture:
    """The error of a model that onnxruntime does not take."""
    return UnknownArchitecture(f"{name}: onnxruntime refuses this model: {error}")


def _not_run(error: Exception) -> NotRun:
    text = " ".join(str(error).split())
    if "bad_alloc" in text or "Failed to allocate memory" in text:
        raise MemoryError
    return NotRun(text.partition(" : ")[2][:MESSAGE_CHARS] or text[:MESSAGE_CHARS])
