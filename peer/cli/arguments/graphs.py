"""`--name`, `--sample`, `--size` and `--tiles` of the command line: how an ONNX file is imported."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

MAX_SIZE: Final = 1 << 20  # of one axis of a sample
MOST_TILES: Final = 8  # as planner.slices.tiles has it, which is not loaded for --help


def size(text: str) -> tuple[str, int]:
    """A symbolic size of "height=640". Raises ArgumentTypeError."""
    name, _, number = text.rpartition("=")
    count = int(number) if number.isascii() and number.isdecimal() and len(number) < 8 else 0
    if not name or not 1 <= count <= MAX_SIZE:
        raise argparse.ArgumentTypeError(
            f"expected NAME=NUMBER with a number from 1 to {MAX_SIZE}, such as height=640; got {text!r:.80}"
        )
    return name, count


def tiles(text: str) -> int:
    """Into how many bands pictures are cut. Raises ArgumentTypeError."""
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else 0
    if not 2 <= count <= MOST_TILES:
        raise argparse.ArgumentTypeError(f"expected a number from 2 to {MOST_TILES}, got {text!r:.20}")
    return count


def graph_arguments(made: argparse.ArgumentParser) -> None:
    """How an ONNX file is called and tried."""
    made.add_argument("--name", help="what the model of an .onnx file is called [the name of the file]")
    made.add_argument(
        "--sample",
        type=Path,
        metavar="FILE",
        help="an .npz file with the inputs that an .onnx file is tried with [made up from their shapes]",
    )
    made.add_argument(
        "--size",
        type=size,
        action="append",
        metavar="NAME=NUMBER",
        help="a symbolic size of the inputs that are made up, such as height=640; may be repeated",
    )
    made.add_argument(
        "--tiles",
        type=tiles,
        metavar="N",
        help="pictures of an .onnx file in N bands of rows, which plans can place on N peers that work side by side",
    )
