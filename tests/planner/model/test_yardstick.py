"""What peers time without a model that answers in words: one graph, the same in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from peer.runtime.product_benchmark import measure_product
from planner.model.onnxruntime_import import ort
from planner.model.yardstick import FLOPS, GRAPH, KIND, ROWS, WIDTH

TWIN = Path(__file__).parents[3] / "web_peer" / "src" / "planner" / "yardstick.ts"


def test_it_multiplies_by_a_constant_matrix() -> None:
    session = ort.InferenceSession(GRAPH, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).integers(-8, 8, (3, WIDTH)).astype(np.float32)
    (y,) = session.run(["y"], {"x": x})
    np.testing.assert_array_equal(y, np.broadcast_to(x.sum(axis=1, keepdims=True), (3, WIDTH)))


def test_tabs_time_the_same() -> None:
    text = TWIN.read_text(encoding="utf-8")
    assert "".join(re.findall(r"'([0-9a-f]{9,})'", text)) == GRAPH.hex()
    assert f"WIDTH = {WIDTH};" in text
    assert f"ROWS = {ROWS};" in text
    assert FLOPS == 2 * WIDTH * WIDTH


def test_it_tells_times_of_its_kind_alone_and_a_rate_that_machines_have() -> None:
    times = measure_product(1)
    for table in (times.decode_s, times.prefill_s, times.batch_s):
        assert table.keys() == {KIND}
        assert table[KIND] > 0
    assert 1e8 < FLOPS / times.prefill_s[KIND] < 1e13
    assert times.overhead_bytes > 20 << 20
