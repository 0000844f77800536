"""The options of `shoal transcribe`."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.member.peer_options import text


def transcribe_arguments(made: argparse.ArgumentParser) -> None:
    """Adds them."""
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a recording, or a film with sound")
    made.add_argument(
        "--model",
        type=text,
        metavar="NAME",
        help="what the mesh offers it as: shoal status LINK lists it [the only one that writes what is said]",
    )
    made.add_argument(
        "--language", type=text, metavar="CODE", help="of the speakers, such as en [as the beginning sounds]"
    )
    made.add_argument("--translate", action="store_true", help="write it in English")
    made.add_argument(
        "--subtitles",
        choices=("srt", "vtt", "none"),
        default="srt",
        help="written beside each file [%(default)s]",
    )
    made.add_argument("--overwrite", action="store_true", help="subtitles that are there already")
