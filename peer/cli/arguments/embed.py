"""The options of `shoal embed`."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.member.peer_options import text


def embed_arguments(made: argparse.ArgumentParser) -> None:
    """Adds them."""
    made.add_argument(
        "texts", nargs="*", metavar="TEXT", help="a text; without one, --file says where texts are"
    )
    made.add_argument(
        "--file",
        metavar="FILE",
        help="a text a line, UTF-8; - reads standard input; empty lines are left out",
    )
    made.add_argument(
        "--model",
        type=text,
        metavar="NAME",
        help="what the mesh offers it as: shoal status LINK lists it [the only one that makes embeddings]",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="FILE.npy",
        help="float32 (texts, dimensions) [a line of JSON for each text, printed]",
    )
