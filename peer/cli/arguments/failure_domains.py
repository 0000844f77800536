"""The arguments by which a peer says what it fails with."""

from __future__ import annotations

import argparse

from peer.member.peer_options import known_as


def surroundings_arguments(made: argparse.ArgumentParser) -> None:
    """Of every peer that lends."""
    made.add_argument(
        "--owner",
        type=known_as,
        metavar="NAME",
        help="who may take this peer away: copies are kept with other owners where they can be; others see a hash of "
        "it [nobody]",
    )
    made.add_argument(
        "--machine",
        type=known_as,
        metavar="NAME",
        help="a name that virtual machines of one computer share, so that copies are kept elsewhere; others see a "
        "hash of it [what the system says]",
    )
