"""What processes of an import begin with. It loads no engine before it runs: who asks for an import needs none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planner.importers.onnx.asked import SourceGraph

if TYPE_CHECKING:
    from planner.importers.onnx.steps import Steps


def load() -> None:
    """What all of them need in memory."""
    from planner.importers.onnx import reading, steps  # noqa: F401

    reading.known_operators()


def external_files(_: None, source: Path, name: str) -> tuple[str, ...]:
    """Where external data of a file lies, in its folder."""
    from planner.importers.onnx import reading

    return reading.external_files(source, name)


def begun(_: None, asked: SourceGraph, scratch: Path) -> Steps:
    """An import that its process keeps."""
    from planner.importers.onnx.steps import Steps

    return Steps(asked, scratch)
