"""Fixtures that every package's tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.importers.registry import fetch_short_name


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The real SmolLM2-135M-Instruct: downloaded the first time, then kept in SHOAL_TEST_CACHE or the user's cache."""
    kept = os.environ.get("SHOAL_TEST_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return fetch_short_name("smollm2-135m", Path(kept) if kept else home / "shoal")
