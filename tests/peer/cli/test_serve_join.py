"""Options of `shoal serve` that are about a model that answers in words, where none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.cli.main import parser
from peer.cli.serve_join import founding
from peer.errors import BadCommand
from planner.model.store import Store


@pytest.mark.parametrize(
    "words", ["--context 100", "--cuts 3,5", "--component low=0-2", "--priority head,embed"]
)
def test_they_are_refused_by_name(words: str, tmp_path: Path) -> None:
    args = parser().parse_args(["serve", "det.onnx", *words.split()])
    with pytest.raises(BadCommand, match=f"{words.split()[0]} is about a model that answers in words"):
        founding(args, Store(tmp_path), None, None)


def test_without_them_nothing_is_promised(tmp_path: Path) -> None:
    args = parser().parse_args(["serve", "det.onnx", "--goal", "throughput"])
    found = founding(args, Store(tmp_path), None, None)
    assert found.model_id is None
    assert found.mesh.wish is not None
    assert found.mesh.wish.goal == "throughput"
