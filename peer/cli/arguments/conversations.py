"""The words of `shoal conversations`. Imports little: every start of `shoal` waits for it."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.member.peer_options import text


def title(given: str) -> str:
    """What names a conversation. Raises ArgumentTypeError where nothing does."""
    if not given.strip():
        raise argparse.ArgumentTypeError("a title, an id or a number expected, got nothing")
    return text(given)


def talk_arguments(made: argparse.ArgumentParser) -> None:
    """Adds them to the command."""
    made.add_argument(
        "--in", dest="within", type=title, metavar="TITLE", help="which one, by title, id or number"
    )
    made.add_argument("--json", action="store_true", help="print them all as JSON")
    made.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="keep one in a file: Markdown if it ends in .md, else JSON",
    )
    made.add_argument(
        "--import", dest="bring", type=Path, metavar="FILE", help="begin one with what a file holds"
    )
    made.add_argument(
        "--invite",
        choices=("member", "viewer"),
        help="print a link that brings somebody into the one of --in, as that",
    )
    made.add_argument("--invites", action="store_true", help="list the links into the one of --in")
    made.add_argument(
        "--withdraw", metavar="LINK", help="nobody comes in with that one of --invites any more"
    )
    made.add_argument(
        "--entry",
        dest="entry_by",
        choices=("open", "invited"),
        help="who comes into the one of --in from now on: everybody in the mesh, or who is invited",
    )
