"""The options of `shoal rerank`."""

from __future__ import annotations

import argparse

from peer.member.peer_options import positive, text


def rerank_arguments(made: argparse.ArgumentParser) -> None:
    """Adds them."""
    made.add_argument("query", type=text, metavar="QUERY", help="what the documents are to answer")
    made.add_argument(
        "texts", nargs="*", metavar="DOCUMENT", help="a document; without one, --file says where they are"
    )
    made.add_argument(
        "--file",
        metavar="FILE",
        help="a document a line, UTF-8; - reads standard input; empty lines are left out",
    )
    made.add_argument(
        "--model",
        type=text,
        metavar="NAME",
        help="what the mesh offers it as: shoal status LINK lists it [the only one that ranks texts]",
    )
    made.add_argument("--top", type=positive, metavar="N", help="print the N best alone [all]")
