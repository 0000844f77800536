"""Frames for peers that shadow a stage: sent several at a time, and only while there is room for them.

Edge. What is dropped here is asked for again by the shadow, or replayed when it takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from peer.wire.bundles import bundled
from peer.wire.generated.frames import Frame

TOGETHER: Final = (
    4  # frames that go as one bundle: as many tokens may be missing at a shadow when it takes over
)
WAIT_S: Final = 0.03  # and no frame waits longer than this


class Spares:
    """`send(peer, frame)` hands a frame over; `room(peer)` says whether the way to a peer is free."""

    def __init__(self, send: Callable[[str, Frame], None], room: Callable[[str], bool]) -> None:
        self._send = send
        self._room = room
        self._waiting: dict[str, list[Frame]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.dropped = 0  # frames, since there was no room

    def put(self, peer: str, frame: Frame) -> None:
        """Takes a frame for `peer`."""
        waiting = self._waiting.setdefault(peer, [])
        waiting.append(frame)
        if len(waiting) >= TOGETHER:
            self.flush(peer)
        elif peer not in self._timers:
            self._timers[peer] = asyncio.get_running_loop().call_later(WAIT_S, self.flush, peer)

    def flush(self, peer: str) -> None:
        """Sends what waits for `peer`, or drops it."""
        timer = self._timers.pop(peer, None)
        if timer is not None:
            timer.cancel()
        frames = self._waiting.pop(peer, [])
        if not frames:
            return
        if not self._room(peer):
            self.dropped += len(frames)
            return
        for frame in frames if len(frames) == 1 else bundled(frames):
            self._send(peer, frame)

    def forget(self, peer: str) -> None:
        """Drops what waits for a peer that is gone."""
        self._waiting.pop(peer, None)
        timer = self._timers.pop(peer, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Drops everything."""
        for peer in list(self._waiting):
            self.forget(peer)
