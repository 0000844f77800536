"""Fixtures that every package's tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from planner.importers.registry import fetch_short_name

settings.register_profile(
    "any machine", deadline=None
)  # how long an example takes says nothing about the code
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The real SmolLM2-135M-Instruct: downloaded the first time, then kept in SHOAL_TEST_CACHE or the user's cache."""
    kept = os.environ.get("SHOAL_TEST_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return fetch_short_name("smollm2-135m", Path(kept) if kept else home / "shoal")
