"""`shoal bench memory`: what a peer is planned to occupy, and what it does, over shapes, forms of weights and contexts.

Edge. A peer's life in a process of its own (`peer.bench.memory_life`): it measures itself, loads all units of a model
of random weights, fills the promised sessions to the end of their context, and goes on with long conversations. This
process looks at it meanwhile. A model that is too large for the machine has fewer blocks, which is said; a unit costs
the same in each.

Occupied is the most that was resident from the first session on (VmHWM), scratch included. While weights load, what
is mapped of their files is left out, for the system takes it back whenever it likes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, get_args

from peer.bench.shapes import SHAPES, RandomModel, cut_to
from peer.errors import CannotServe
from peer.launch.terminal import say
from planner.importers.architecture import Architecture
from planner.importers.decoder_units import build_model
from planner.model.store import Store
from planner.types import WeightFormat

EVERY_S: Final = 0.002  # between two looks: a repacked tensor of a peak lives longer
OF_A_WEIGHT: Final = {"8bit": 1.25, "4bit": 0.875, "f32": 4.0, "f16": 4.0}  # bytes in memory


def bench_memory(args: argparse.Namespace) -> dict[str, Any]:
    """`cases`: a row for each; `worst_under` and `worst_over`: planned ÷ occupied. Raises CannotServe for a shape that
    is not known.
    """
    shapes: Sequence[str] = args.shapes or [*SHAPES]
    if unknown := [shape for shape in shapes if shape not in SHAPES]:
        raise CannotServe(f"no shape {unknown[0]!r}; known are {', '.join(SHAPES)}")
    forms: Sequence[WeightFormat] = args.weights or get_args(WeightFormat)
    cases = []
    for shape in shapes:
        for weights in forms:
            with tempfile.TemporaryDirectory(prefix="shoal-bench-memory-") as folder:
                architecture = cut_to(SHAPES[shape], OF_A_WEIGHT[weights], args.largest)
                brought = imported(Path(folder), shape, architecture, weights)
                for context in args.contexts:
                    found = life(Path(folder), brought["model"], context, args.sessions)
                    row = {
                        "shape": shape,
                        "weights": weights,
                        "blocks": architecture.blocks,
                        "of_blocks": SHAPES[shape].blocks,
                        "context": context,
                        "sessions": args.sessions,
                        **found,
                        "import_s": brought["seconds"],
                        "import_peak_mib": brought["peak_mib"],
                    }
                    cases.append(row)
                    say(_line(row))
    ratios = [case["ratio"] for case in cases]
    return {"cases": cases, "least_ratio": min(ratios), "most_ratio": max(ratios)}


def life(folder: Path, model: str, context: int, sessions: int) -> dict[str, Any]:
    """Figures of one peer that holds all of `model`, MiB."""
    words = [str(folder), model, str(context), str(sessions)]
    command = [sys.executable, "-m", "peer.bench.memory_life", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told: dict[str, Any] = {}
        with watched(process.pid) as watch:
            for phase in ("measured", "loaded", "filled", "went on"):
                line = process.stdout.readline()
                if not line:
                    raise CannotServe(f"the measured process ended before it had {phase}")
                told[phase] = {**json.loads(line), "anonymous_peak": watch.taken()}
                process.stdin.write("\n")
                process.stdin.flush()
    measured, loaded, filled, after = (told[each] for each in ("measured", "loaded", "filled", "went on"))
    planned = measured["weights"] + measured["kv"] + measured["overhead"]
    code = filled["file"]  # of the libraries, wherever a peak was
    return {
        "planned_mib": _mib(planned),
        "occupied_mib": _mib(after["peak"]),
        "ratio": round(planned / after["peak"], 4),
        "measuring_mib": _mib(measured["anonymous_peak"] + code),
        "loading_mib": _mib(loaded["anonymous_peak"] + code),
        "filled_mib": _mib(filled["anonymous"] + code),
        "filling_mib": _mib(filled["peak"]),
        "after_mib": _mib(after["anonymous"] + code),
        "mapped_mib": _mib(filled["mapped"]),
        "planned_weights_mib": _mib(measured["weights"]),
        "planned_kv_mib": _mib(measured["kv"]),
        "planned_overhead_mib": _mib(measured["overhead"]),
        "weights_mib": _mib(loaded["anonymous"] - measured["anonymous"]),
    }


class Watch:
    """The most anonymous memory of a process since it was last asked."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._most = 0
        self._lock = threading.Lock()

    def look(self) -> None:
        """Notes what the process occupies now, of what no file is behind."""
        try:
            lines = self._status.read_text()
        except OSError:
            return
        anonymous = next((line.split()[1] for line in lines.splitlines() if line.startswith("RssAnon")), "0")
        with self._lock:
            self._most = max(self._most, int(anonymous) << 10)

    def taken(self) -> int:
        """Returns the most bytes that were noted since the last call."""
        self.look()
        with self._lock:
            most, self._most = self._most, 0
        return most


@contextmanager
def watched(pid: int) -> Iterator[Watch]:
    """Looks all the time within the block."""
    watch, stop = Watch(pid), threading.Event()

    def looking() -> None:
        while not stop.wait(EVERY_S):
            watch.look()

    thread = threading.Thread(target=looking, name="shoal-watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()


def imported(folder: Path, name: str, architecture: Architecture, weights: WeightFormat) -> dict[str, Any]:
    """Imports a random model in a process of its own; its id, seconds, and the most that the process held."""
    code = "import sys; from peer.bench.memory import import_here; import_here(*sys.argv[1:])"
    words = [str(folder), name, weights, str(architecture.blocks)]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with watched(process.pid) as watch:
            if not process.stdout.readline():  # the random blocks are written
                raise CannotServe("a model of random weights could not be made")
            watch.taken()
            begun = time.perf_counter()
            process.stdin.write("\n")
            process.stdin.flush()
            model = process.stdout.readline().strip()
            seconds = time.perf_counter() - begun
            peak = watch.taken()
    if not model:
        raise CannotServe("the import of a model of random weights failed")
    return {"model": model, "seconds": round(seconds, 1), "peak_mib": _mib(peak)}


def import_here(folder: str, name: str, weights: WeightFormat, blocks: str) -> None:
    """In that process."""
    from dataclasses import replace

    source = RandomModel(name, replace(SHAPES[name], blocks=int(blocks)), weights, Path(folder))
    for tensor in ("embed.weight", "attn.0.q"):
        source.tensor(tensor)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    print(build_model(source, weights, Store(Path(folder))), flush=True)  # noqa: T201


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['shape']:>5} {row['weights']} context {row['context']}, {row['blocks']} of {row['of_blocks']} blocks: "
        f"planned {row['planned_mib']} MiB, occupied {row['occupied_mib']} MiB, ratio {row['ratio']}; "
        f"at most {row['loading_mib']} while loading, {row['filling_mib']} while filling, "
        f"{row['after_mib']} at the end; import {row['import_s']} s, {row['import_peak_mib']} MiB"
    )


def _mib(count: float) -> int:
    return round(count / (1 << 20))
