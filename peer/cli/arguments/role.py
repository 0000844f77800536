"""What `shoal role` takes on the command line."""

from __future__ import annotations

import argparse

from peer.state.roles import ROLES


def role_arguments(made: argparse.ArgumentParser) -> None:
    """Whom, and what it may do from now on."""
    made.add_argument(
        "member", metavar="MEMBER", help="its name, as shoal status and the page show it, or its id"
    )
    made.add_argument(
        "role",
        choices=ROLES,
        metavar="ROLE",
        help="owner (changes how plans are made, decides over all conversations), member (asks) or viewer (reads); "
        "it stays with that machine's or browser's key, also when it comes back",
    )
