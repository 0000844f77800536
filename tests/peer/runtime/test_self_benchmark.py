"""What is measured is there, positive and plausible; figures themselves belong to the benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import peer.bench.single as bench_module
from peer.bench.single import compare
from peer.errors import CannotServe, MeasuringEnded
from peer.runtime.arithmetic import prove
from peer.runtime.self_benchmark import measure_units
from planner.model.manifest import encode_manifest
from planner.types import UnitKind
from tests.patience import soon


@pytest.mark.parametrize(
    ("weights", "changes"),
    [("8bit", {}), ("4bit", {"context": 1}), ("f32", {}), ("f16", {"head_size": 8, "rope_dims": 8})],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_every_kind_is_measured(made_up: Callable[..., Any], weights: str, changes: dict[str, Any]) -> None:
    _, manifest, store = made_up(weights, **changes)
    times = measure_units(store, manifest, prove(store, manifest, "cpu", 1), "cpu", 1)
    for table in (times.decode_s, times.prefill_s, times.batch_s):
        assert set(table) == set(get_args(UnitKind))
        assert all(0 <= seconds < soon(1) for seconds in table.values())
    assert min(times.decode_s.values()) > 0
    assert (
        0 <= times.step_s < soon(0.1)
    )  # what it takes beyond the units: nothing, where the clock sees nothing
    assert times.overhead_bytes > 20 << 20


def test_a_measurement_ends_as_soon_as_it_is_told_to_and_leaves_nothing(
    made_up: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, manifest, store = made_up()
    asked = 0

    def stop(after: int) -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    for after in (0, 5, 60, 130):
        asked = 0
        with pytest.raises(MeasuringEnded):
            measure_units(
                store, manifest, prove(store, manifest, "cpu", 1), "cpu", 1, lambda after=after: stop(after)
            )
        assert asked == after + 1  # it is asked before each call of the model
    assert [*tmp_path.iterdir()] == []


def test_a_missing_provider_is_named(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    with pytest.raises(CannotServe, match="CUDAExecutionProvider"):
        measure_units(store, manifest, prove(store, manifest, "cpu", 1), "cuda", 1)


def test_the_benchmark_without_its_rival_has_null_ratios(real_model: Callable[..., Any]) -> None:
    manifest, store = real_model("4bit")
    figures = compare(store, store.put_manifest(encode_manifest(manifest)), None, rounds=1, tokens=3)
    ratios = ("decode_vs_llamacpp", "prefill_vs_llamacpp", "sessions8_vs_llamacpp")
    assert [figures[name] for name in ratios] == [None] * 3
    assert all(figures[f"{name}_tok_s"] for name in ("decode", "prefill", "sessions8"))


@pytest.mark.parametrize(
    ("spec", "words"), [(None, "llama-cpp-python is not installed"), (1, "GGUF files only")]
)
def test_a_missing_rival_is_loud(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    spec: object,
    words: str,
) -> None:
    monkeypatch.setattr(bench_module, "find_spec", lambda name: spec)
    monkeypatch.setattr(bench_module, "_four_bit", lambda *_: "id")
    args = argparse.Namespace(store=tmp_path, model=str(tmp_path), rounds=1, tokens=1)
    with pytest.raises(CannotServe, match=words):
        bench_module.bench_single(args)
