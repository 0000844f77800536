"""The tolerances of docs/numerics.md, on two blocks of the real model: CPU, WASM, and WebGPU by a software adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.bench.browser import browser_path, build_page, drive
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from planner.types import WeightFormat
from tests.browsers.harness import binary
from tests.browsers.numerics import SOFTWARE_GPU, Cut, difference, in_browser, on_cpu

BLOCKS = 2
STEPS = 3
EXACT = 1e-3  # logits whose standard deviation is 9; both sides multiply in float32
ROUNDED = 1.0  # one side rounds activations to 8 bits


@pytest.fixture(scope="module")
def page(harness: Path) -> Path:
    """The page with both runtimes; `harness` has seen that the packages are there."""
    binary("chromium")
    assert harness.is_dir()
    return build_page()


@pytest.mark.parametrize(
    ("weights", "to_cpu"),
    [
        pytest.param("f32", EXACT, id="f32", marks=pytest.mark.soak),
        pytest.param("8bit", ROUNDED, id="8bit"),
        pytest.param("4bit", ROUNDED, id="4bit", marks=pytest.mark.soak),
    ],
)
async def test_providers_agree(
    page: Path, smollm2_gguf: Path, tmp_path: Path, weights: WeightFormat, to_cpu: float
) -> None:
    store = Store(tmp_path)
    model = build_model(Cut(open_gguf(smollm2_gguf), BLOCKS), weights, store)
    tokens, cpu = on_cpu(store, model, STEPS)
    wasm = await in_browser(store, page, model, "wasm", tokens)
    webgpu = await in_browser(store, page, model, "webgpu", tokens)
    assert difference(cpu, wasm).largest < to_cpu
    assert difference(cpu, webgpu).largest < to_cpu
    assert difference(wasm, webgpu).largest < EXACT
    assert difference(wasm, webgpu).same == STEPS


async def test_no_result_in_a_tab_depends_on_crowd_or_chunks_or_where_its_cache_was_made(
    page: Path, smollm2_gguf: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    model = build_model(Cut(open_gguf(smollm2_gguf), BLOCKS), "8bit", store)
    order = {"executable": browser_path(), "evaluate": {"call": "unequal", "args": [model, "wasm"]}}
    found = await drive(store, page, order)
    assert found["value"] == {"batch": 0, "chunks": 0, "moved": 0}


async def test_rows_of_a_batch_on_a_gpu_are_as_alone_and_caches_move(
    page: Path, smollm2_gguf: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    model = build_model(Cut(open_gguf(smollm2_gguf), 1), "8bit", store)
    order = {
        "executable": browser_path(),
        "flags": list(SOFTWARE_GPU),
        "evaluate": {"call": "crowd", "args": [model, "webgpu"]},
    }
    found = await drive(store, page, order)
    assert found["value"]["apart"] < EXACT
    assert not found["value"]["moved"]


async def test_a_lost_gpu_is_noticed(page: Path, smollm2_gguf: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    model = build_model(Cut(open_gguf(smollm2_gguf), 1), "8bit", store)
    order = {
        "executable": browser_path(),
        "flags": list(SOFTWARE_GPU),
        "evaluate": {"call": "untilLost", "args": [model]},
        "crashGpuAt": "loaded",
    }
    found = await drive(store, page, order)
    assert "the GPU device is gone" in found["value"]
