"""Units of a graph at work: what they compute again takes no memory anew."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from peer.runtime.graph_runtime import GraphRuntime
from peer.runtime.huge_pages import give_back_memory
from planner.model.compose import Composed
from planner.model.graph_manifest import Value

SIDE = 512
VALUES = 16 * SIDE * SIDE  # of what it makes in between


def widening() -> Composed:
    """A picture of one channel, made sixteen and one again, which takes 16 MiB meanwhile."""
    nodes = [
        helper.make_node("Expand", ["x", "wide"], ["e"]),
        helper.make_node("Sin", ["e"], ["s"]),
        helper.make_node("ReduceSum", ["s", "axis"], ["y"], keepdims=1),
    ]
    constants = [
        helper.make_tensor("wide", TensorProto.INT64, [4], [1, 16, SIDE, SIDE]),
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, SIDE, SIDE]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "widening", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x, y = (Value(name, "float32", (1, 1, SIDE, SIDE), ()) for name in ("x", "y"))
    return Composed(model.SerializeToString(), (x,), (y,), 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults as Linux does")
def test_what_is_computed_again_maps_no_memory_anew(tmp_path: Path) -> None:
    runtime = GraphRuntime(widening(), tmp_path, 1, fused=True)
    x = np.ones((1, 1, SIDE, SIDE), np.float32)
    for _ in range(2):
        runtime.run({"x": x})
    give_back_memory()  # as when weights are loaded beside it
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    (y,) = runtime.run({"x": x}).values()
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    np.testing.assert_allclose(y, 16 * np.sin(x), rtol=1e-6)
    assert faults * resource.getpagesize() < VALUES, f"{faults} faults, of 4 bytes a value at most a quarter"
