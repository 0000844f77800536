"""Measures the way to another peer: round trip from small probes, rate from a burst.

Edge. Probes travel on the data channel like activations do, so that what is measured is what a step will see.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from peer.errors import PeerError
from peer.state.failure_domains import agreed
from peer.state.generated.commands import LinkFacts
from peer.wire.generated.frames import Frame, Probe, ProbeAck
from peer.wire.generated.requests import MeasureLinkAnswer

ROUNDS = 9  # odd, for a median; a first exchange on a fresh connection is slower and is not counted
SMALL_BYTES = 64
FRAME_BYTES = 2048  # an activation of a small model, in several datagrams; what larger ones take is the rate
BURST_BYTES = 256 * 1024  # several congestion windows, under 0.2 s on any link worth using
PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Round trip of a small message, one-way rate of a burst, and what a frame of an activation takes beyond both."""

    rtt_s: float
    bytes_per_s: float
    overhead_s: float


def link_words(measured: Measured, relayed: bool | None = None) -> MeasureLinkAnswer:
    """As it goes over the wire. `relayed`: as far as this side can tell."""
    return MeasureLinkAnswer(
        relayed=relayed,
        rtt_us=round(measured.rtt_s * 1e6),
        bytes_per_s=round(measured.bytes_per_s),
        overhead_us=round(measured.overhead_s * 1e6),
    )


def both_ways(
    me: str, peer: str, there: MeasureLinkAnswer, back: MeasureLinkAnswer
) -> tuple[LinkFacts, LinkFacts]:
    """A link as both ends measured it: it is relayed both ways or neither."""
    relayed = agreed(there.relayed, back.relayed)
    out = LinkFacts(me, peer, there.rtt_us, there.bytes_per_s, there.overhead_us, relayed)
    home = LinkFacts(peer, me, back.rtt_us, back.bytes_per_s, back.overhead_us, relayed)
    return out, home


class Prober:
    """Sends probes through `send(peer, frame)`; `clock()` is monotonic seconds."""

    def __init__(self, send: Callable[[str, Frame], None], clock: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._next_nonce = 0
        self._open: dict[tuple[str, int], asyncio.Future[float]] = {}

    async def measure(self, peer: str) -> Measured:
        """Raises ConnectionLost or TimeoutError."""
        await self._echo(peer, SMALL_BYTES)
        small, frames = [], []
        for _ in range(ROUNDS):  # by turns, so that a busy moment meets both
            small.append(await self._echo(peer, SMALL_BYTES))
            frames.append(await self._echo(peer, FRAME_BYTES))
        rtt = statistics.median(small)
        rate = BURST_BYTES / max(await self._echo(peer, BURST_BYTES) - rtt, 1e-6)
        beyond = statistics.median(frame - one for frame, one in zip(frames, small, strict=True))
        return Measured(rtt, rate, max(0.0, beyond - FRAME_BYTES / rate))

    async def answers(self, peer: str, within_s: float) -> bool:
        """Whether `peer` answers one small probe in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._echo(peer, SMALL_BYTES)
        except (PeerError, TimeoutError):
            return False
        return True

    def probed(self, peer: str, frame: Probe) -> None:
        """Answers the other side's probe."""
        self._send(peer, ProbeAck(frame.nonce, len(frame.body)))

    def acknowledged(self, peer: str, frame: ProbeAck) -> None:
        """Takes the answer to a probe; an answer to nothing is ignored."""
        future = self._open.get((peer, frame.nonce))
        if future is not None and not future.done():
            future.set_result(self._clock())

    async def _echo(self, peer: str, size: int) -> float:
        self._next_nonce += 1
        key = (peer, self._next_nonce)
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._open[key] = future
        try:
            begun = self._clock()
            self._send(peer, Probe(self._next_nonce, bytes(size)))
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await future - begun
        finally:
            del self._open[key]
