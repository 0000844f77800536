"""Fixtures that every package's tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from planner.importers.registry import fetch_short_encoder, fetch_short_graph, fetch_short_name
from tests.seeds import SERIES

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests that load onnxruntime themselves, too
settings.register_profile(
    "any machine", deadline=None
)  # how long an example takes says nothing about the code
settings.load_profile("any machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if SERIES == "soak":
        for item in items:
            if item.get_closest_marker("series") is not None:
                item.add_marker(pytest.mark.timeout(0))  # it takes as long as it takes
    elif left := [item for item in items if item.get_closest_marker("soak") is not None]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The real SmolLM2-135M-Instruct: downloaded the first time, then kept in SHOAL_TEST_CACHE or the user's cache."""
    return fetch_short_name("smollm2-135m", _cache())


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """The real Gemma 3 270M, kept in the same place."""
    return fetch_short_name("gemma3-270m", _cache())


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The real all-MiniLM-L6-v2, kept in the same place."""
    return fetch_short_encoder("all-minilm-l6-v2", _cache())


@pytest.fixture(scope="session")
def graph_file() -> Callable[[str], Path]:
    """The ONNX file of a short name, kept in the same place."""
    return lambda name: fetch_short_graph(name, _cache())


def _cache() -> Path:
    kept = os.environ.get("SHOAL_TEST_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(kept) if kept else home / "shoal"
