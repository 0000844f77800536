"""The arguments by which peers behind routers reach each other: servers for ICE, and keeping to a relay."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.member.peer_options import span
from signaling.ice import LIFETIME_S


def relay_argument(made: argparse.ArgumentParser) -> None:
    """Of every peer."""
    made.add_argument(
        "--relay-only",
        action="store_true",
        help="connect through the mesh's relay only: the others see its address, not this machine's",
    )


def ice_arguments(made: argparse.ArgumentParser) -> None:
    """Of who runs a signaling server."""
    made.add_argument(
        "--stun",
        action="append",
        default=[],
        metavar="URL",
        help="tells peers their outside address, such as stun:stun.example.org:3478",
    )
    made.add_argument(
        "--turn",
        action="append",
        default=[],
        metavar="URL",
        help="relay for peers that cannot connect otherwise, such as turn:turn.example.org:3478?transport=udp",
    )
    made.add_argument(
        "--turn-secret",
        type=Path,
        metavar="FILE",
        help="file with the secret shared with the relay (coturn: static-auth-secret) [$SHOAL_TURN_SECRET]",
    )
    made.add_argument(
        "--turn-lifetime",
        type=span,
        default=LIFETIME_S,
        metavar="SPAN",
        help="how long lent credentials let a peer begin to use the relay [24h]",
    )
