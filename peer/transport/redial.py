"""Decides to whom this peer keeps a connection for the log's sake, and when it dials again after a failure.

Pure. Whoever is not reached is tried again, ever more rarely: an attempt costs a few packets and some computing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from peer.consensus.records import Config

FIRST_PAUSE_S: Final = 0.5
MOST_PAUSE_S: Final = 15.0


def wanted(config: Config, me: str, *, leads: bool) -> frozenset[str]:
    """Every member is connected with every voter, so that whoever leads next reaches everybody at once."""
    if me not in config.by_id:
        return frozenset()
    if leads or me in config.voters:
        return frozenset(config.by_id) - {me}
    return frozenset(config.voters) - {me}


class Redial:
    """Whom to dial now. Forget a peer when its connection opens."""

    def __init__(self) -> None:
        self._next: dict[str, tuple[float, float]] = {}  # by peer: not before, and the pause after that

    def due(self, now: float, peers: Collection[str], connected: Callable[[str], bool]) -> list[str]:
        """Those without a connection whose pause is over; they count as dialled."""
        for peer in [peer for peer in self._next if peer not in peers or connected(peer)]:
            del self._next[peer]
        found = []
        for peer in sorted(peers):
            at, pause_s = self._next.get(peer, (now, FIRST_PAUSE_S))
            if not connected(peer) and now >= at:
                self._next[peer] = (now + pause_s, min(2 * pause_s, MOST_PAUSE_S))
                found.append(peer)
        return found
