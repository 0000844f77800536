"""Starts `shoal`: Ctrl-C ends it without a word also while its modules are being read."""

from __future__ import annotations


def main() -> int:
    """As peer.cli.main."""
    try:
        from peer.cli import main as run

        return run()
    except KeyboardInterrupt:
        from peer.options import INTERRUPTED

        return INTERRUPTED
