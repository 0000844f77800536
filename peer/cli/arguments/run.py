"""The options of `shoal run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.member.peer_options import positive, text


def run_arguments(made: argparse.ArgumentParser) -> None:
    """Adds them."""
    made.add_argument(
        "model", type=text, metavar="MODEL", help="what the mesh offers it as: shoal status LINK lists it"
    )
    made.add_argument(
        "--input",
        action="append",
        default=[],
        required=True,
        metavar="[NAME=]FILE",
        help="an input: a file, a folder, or a pattern in quotes; .npy, .npz, .json, .txt, pictures and sound",
    )
    made.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for an .npz of each item [one item is printed]"
    )
    made.add_argument(
        "--resume", action="store_true", help="leave out items whose outputs are in --out already"
    )
    made.add_argument(
        "--mean", type=numbers, default=(0.0,), metavar="R,G,B", help="of pixels from 0 to 1, taken off [0]"
    )
    made.add_argument(
        "--std", type=divisors, default=(1.0,), metavar="R,G,B", help="pixels are divided by it then [1]"
    )
    made.add_argument(
        "--round",
        type=positive,
        default=1,
        metavar="N",
        help="sides of pictures that the model leaves open: multiples",
    )
    made.add_argument(
        "--rate", type=positive, default=16_000, metavar="HZ", help="of sound, one channel [%(default)s]"
    )


def divisors(said: str) -> tuple[float, ...]:
    """The same, none of them 0. Raises ArgumentTypeError."""
    found = numbers(said)
    if not all(found):
        raise argparse.ArgumentTypeError(f"numbers other than 0 expected, got {said!r}")
    return found


def numbers(said: str) -> tuple[float, ...]:
    """One number, or three. Raises ArgumentTypeError."""
    try:
        found = tuple(float(part) for part in said.split(","))
    except ValueError:
        found = ()
    if len(found) not in (1, 3) or not all(abs(number) < 1e9 for number in found):
        raise argparse.ArgumentTypeError(f"one number or three with commas expected, got {said!r}")
    return found
