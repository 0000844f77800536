"""The options of `shoal classify`."""

from __future__ import annotations

import argparse

from peer.member.peer_options import positive, text


def classify_arguments(made: argparse.ArgumentParser) -> None:
    """Adds them."""
    made.add_argument(
        "texts", nargs="*", metavar="TEXT", help="a text; without one, --file says where they are"
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
        help="what the mesh offers it as: shoal status LINK lists it [the only one that sorts texts]",
    )
    made.add_argument("--top", type=positive, metavar="N", help="print the N best labels alone [all]")
