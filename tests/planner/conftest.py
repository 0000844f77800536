"""Tiny models with random weights, written as GGUF files and as Hugging Face folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planner.tiny_models import TinyModel


@pytest.fixture(scope="session")
def tiny_model() -> TinyModel:
    """A tied llama of two blocks; `.but(...)` gives the others."""
    return TinyModel()


@pytest.fixture(autouse=True)
def _no_weights_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """pytest keeps the folders of three runs; hundreds of tiny models would make that gigabytes."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    for path in folder.rglob("*") if folder else ():
        if path.is_file() and not path.is_symlink() and path.stat().st_size > 1 << 20:
            path.unlink()
