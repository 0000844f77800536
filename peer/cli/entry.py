"""Starts `shoal`: Ctrl-C ends it without a word also while its modules are being read."""

from __future__ import annotations


def main() -> int:
    """As peer.cli.main."""
    try:
        from peer.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        from peer.member.peer_options import INTERRUPTED

        return INTERRUPTED
