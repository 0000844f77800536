"""Detectors of the shapes that people export: one that writes boxes of a grid, as YOLO, one that asks by queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from peer.runtime.graph_runtime import GraphRuntime
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import import_graph
from planner.model.compose import compose
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store

SIDE, BOXES, QUERIES, LABELS = 64, 5, 6, 3


class Drawn:
    """A graph under construction, its weights drawn at random."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(7)

    def add(self, operator: str, inputs: list[str], name: str, **facts: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], **facts))
        return name

    def given(self, name: str, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def drawn(self, name: str, *shape: int) -> str:
        values = self._rng.standard_normal(shape).astype(np.float32)
        return self.given(name, values / np.float32(np.sqrt(np.prod(shape[1:]))))

    def conv(self, source: str, name: str, into: int, out: int, kernel: int = 3, stride: int = 1) -> str:
        """A convolution with SiLU, as YOLO has them."""
        made = self.add(
            "Conv",
            [source, self.drawn(f"{name}.w", out, into, kernel, kernel)],
            f"/{name}/conv",
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
        )
        return self.add("Mul", [made, self.add("Sigmoid", [made], f"/{name}/gate")], f"/{name}/act")

    def write(self, path: Path, outputs: dict[str, int]) -> Path:
        pictures = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])
        made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
        graph = helper.make_graph(self.nodes, "g", [pictures], made, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        path.write_bytes(model.SerializeToString())
        return path


def of_a_grid(path: Path) -> Path:
    """Convolutions, a path up again that is joined with one from below, boxes of two grids, the best of them."""
    g = Drawn()
    first = g.conv(g.conv("images", "stem", 3, 8, stride=2), "one", 8, 16, stride=2)
    low = g.conv(first, "two", 16, 32, stride=2)
    pooled = g.add("MaxPool", [low], "/pool/max", kernel_shape=[5, 5], pads=[2] * 4)
    low = g.conv(g.add("Concat", [low, pooled], "/pool/both", axis=1), "three", 64, 32, kernel=1)
    scales = g.given("scales", np.array([1, 1, 2, 2], np.float32))
    up = g.add("Resize", [low, "", scales], "/neck/up", mode="nearest")
    high = g.conv(g.add("Concat", [first, up], "/neck/both", axis=1), "four", 48, 16)
    flat = g.given("flat", np.array([0, 4 + LABELS, -1], np.int64))
    grids = []
    for name, source, wide in (("high", high, 16), ("low", low, 32)):
        made = g.add("Conv", [source, g.drawn(f"{name}.w", 4 + LABELS, wide, 1, 1)], f"/head/{name}")
        grids.append(g.add("Reshape", [made, flat], f"/head/{name}.flat"))
    every = g.add("Concat", grids, "/head/all", axis=2)
    g.given("cut", np.array([4, LABELS], np.int64))
    g.nodes.append(helper.make_node("Split", [every, "cut"], ["/head/boxes", "/head/logits"], axis=1))
    scores = g.add("Sigmoid", ["/head/logits"], "scores")
    boxes = g.add("Transpose", ["/head/boxes"], "boxes", perm=[0, 2, 1])
    most, least = g.given("most", np.array([BOXES], np.int64)), g.given("least", np.array([0.5], np.float32))
    g.add("NonMaxSuppression", [boxes, scores, most, least], "chosen", center_point_box=1)
    return g.write(
        path, {"boxes": TensorProto.FLOAT, "scores": TensorProto.FLOAT, "chosen": TensorProto.INT64}
    )


def of_queries(path: Path) -> Path:
    """A picture as rows, queries that look at them, a box and labels of each."""
    g, wide = Drawn(), 16
    seen = g.conv(g.conv("images", "stem", 3, 8, stride=4), "one", 8, wide, stride=4)
    rows = g.add("Reshape", [seen, g.given("flat", np.array([0, wide, -1], np.int64))], "/encoder/flat")
    rows = g.add("Transpose", [rows], "/encoder/rows", perm=[0, 2, 1])
    keys = g.add("MatMul", [rows, g.drawn("k", wide, wide)], "/decoder/keys")
    turned = g.add("Transpose", [keys], "/decoder/keys.turned", perm=[0, 2, 1])
    scores = g.add("MatMul", [g.drawn("queries", QUERIES, wide), turned], "/decoder/scores")
    shares = g.add("Softmax", [scores], "/decoder/shares", axis=-1)
    mixed = g.add("MatMul", [shares, rows], "/decoder/mixed")
    for name, count in (("logits", LABELS + 1), ("boxes", 4)):
        made = g.add("MatMul", [mixed, g.drawn(f"{name}.w", wide, count)], f"/head/{name}")
        g.add("Sigmoid" if name == "boxes" else "Identity", [made], name)
    return g.write(path, {"logits": TensorProto.FLOAT, "boxes": TensorProto.FLOAT})


@pytest.mark.parametrize("made", [of_a_grid, of_queries])
def test_a_detector_finds_the_same_cut_at_any_border(made: Any, tmp_path: Path) -> None:
    file, store = made(tmp_path / "detector.onnx"), Store(tmp_path / "store")
    sizes = (("batch", 2),)
    model = import_graph(SourceGraph(file, "detector", sizes=sizes), store)
    manifest = decode_graph_manifest(store.manifest_bytes(model))
    pictures = np.random.default_rng(3).standard_normal((2, 3, SIDE, SIDE)).astype(np.float32)
    whole = ort.InferenceSession(file).run(list(manifest.outputs), {"images": pictures})
    assert all(np.size(each) for each in whole)
    assert len(manifest.units) > 2
    for border in range(1, len(manifest.units)):
        values: dict[str, Any] = {"images": pictures}
        for part in ((0, border), (border, len(manifest.units))):
            runtime = GraphRuntime(
                compose(manifest, store, *part), store.root / "blobs", 1, fused=manifest.fused
            )
            values |= runtime.run({name: values[name] for name in manifest.needed(*part)})
        for name, expected in zip(manifest.outputs, whole, strict=True):
            np.testing.assert_allclose(values[name], expected, rtol=1e-5, atol=1e-5)
