"""Models that tests cut into units, and how they run: whole, and in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from planner.importers.onnx import samples
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.steps import Steps
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.onnx.made_up import Made

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Imported:
    manifest: GraphManifest
    store: Store
    said: Sequence[str]
    source: Path


def imported(folder: Path, made: Made, path: Path | None = None, **how: Any) -> Imported:
    folder.mkdir(parents=True, exist_ok=True)
    if path is None:
        path = folder / "model.onnx"
        path.write_bytes(made.model.SerializeToString())
    asked = SourceGraph(path, "made up", **{"sizes": tuple(made.sizes.items()), **how})
    steps = Steps(asked, folder)
    steps.read()
    done, total, said = 0, steps.cut(), []
    while done < total:
        done, total, line = steps.prove()
        said += [line] if line else []
    return Imported(decode_graph_manifest(steps.finish()), Store(folder / "store"), said, path)


def run(
    model: bytes | str, feed: Mapping[str, Array], folder: Path | None = None, *, fused: bool = True
) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(
        zip(
            names,
            session.run(names, {each.name: feed[each.name] for each in session.get_inputs()}),
            strict=True,
        )
    )


def feed_of(found: Imported, **changed: int) -> dict[str, Array]:
    """Other inputs than those of the import, with some sizes changed."""
    rng = np.random.default_rng(7)
    feed: dict[str, Array] = {}
    sizes = {**found.manifest.sizes, **changed}
    for name in found.manifest.inputs:
        value = found.manifest.value(name)
        shape = [size if isinstance(size, int) else sizes[size] for size in value.shape]
        random = rng.standard_normal(shape) * 2
        feed[name] = np.asarray(random, samples.NUMPY[value.dtype])
    return feed


def cut_run(found: Imported, cuts: Sequence[int], feed: Mapping[str, Array]) -> dict[str, Array]:
    values = dict(feed)
    for first, stop in zip((0, *cuts), (*cuts, len(found.manifest.units)), strict=True):
        composed = compose(found.manifest, found.store, first, stop)
        values |= run(composed.model, values, found.store.root / "blobs", fused=found.manifest.fused)
    return {name: values[name] for name in found.manifest.outputs}


def assert_equal(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes(), name
