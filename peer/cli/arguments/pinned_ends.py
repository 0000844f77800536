"""The option with which an asker keeps embedding, head and sampling."""

from __future__ import annotations

import argparse


def pin_argument(made: argparse.ArgumentParser) -> None:
    """Of commands that ask."""
    made.add_argument(
        "--pin-ends",
        action="store_true",
        help="keep embedding, head and sampling here: no other peer handles token ids; not with --in",
    )
