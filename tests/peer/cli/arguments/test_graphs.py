"""What the command line takes of ONNX files."""

from __future__ import annotations

import argparse

import pytest

from peer.cli.arguments.graphs import MOST_TILES, tiles
from planner.slices.tiles import MOST_BANDS


def test_as_many_tiles_as_there_are_bands() -> None:
    assert MOST_TILES == MOST_BANDS
    assert [tiles(str(count)) for count in (2, MOST_TILES)] == [2, MOST_TILES]
    for text in ("", "1", str(MOST_TILES + 1), "-2", "2.0", "\u0662"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a number from 2"):
            tiles(text)
