"""A peer that gives pieces of a model over a slow link still says in time where it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from peer.limits import LOW_WATER_BYTES, LOWEST_VERSION, MAX_PROBE_BYTES, PIECE_BYTES
from peer.session.origin import PATIENCE_S
from peer.transport.connection import Connection, EngineEvents
from peer.transport.flow_control import Receiver
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Channel, Feed, Frame, Hello, Here, Piece, Ping, Probe, Step
from peer.wire.tensors import tensor_of

BYTES_PER_S = 5_000_000 / 8
ROUND_TRIP_S = 0.04
SESSION, OTHER = bytes(16), bytes(range(16))
PIECE = Piece(1, 0, bytes(256 * 1024))
PROBE = Probe(1, bytes(MAX_PROBE_BYTES))
HERE = Here(SESSION, 1, 0, 8, 8, 100)
FEED = Feed(SESSION, 1, 0, 5)
STEP = Step(SESSION, 1, 1, 0, 32, 1, tensor_of(np.zeros((32, 960), np.float32)))  # 120 KiB


@dataclass
class Arrival:
    frame: Frame
    at_s: float


class SlowEngine:
    """A link that takes BYTES_PER_S, in time of its own; the other side notes when each frame is whole."""

    name = "slow"

    def __init__(self) -> None:
        self.now_s = 0.0
        self.arrivals: list[Arrival] = []
        self._waiting: list[tuple[Channel, bytes]] = []
        self._sent = 0.0  # of the first that waits
        self._receivers = {channel: Receiver(channel) for channel in Channel}
        self._events: EngineEvents | None = None

    def attach(self, events: EngineEvents) -> None:
        self._events = events

    async def offer(self) -> str:
        return "offer"

    async def accept(self, offer: str) -> str:
        return "answer"

    async def set_answer(self, answer: str) -> None:
        pass

    async def add_candidate(self, candidate: str) -> None:
        pass

    async def close(self) -> None:
        pass

    def send(self, channel: Channel, data: bytes) -> None:
        self._waiting.append((channel, data))

    def buffered_bytes(self, channel: Channel) -> int:
        return sum(len(data) for each, data in self._waiting if each is channel)

    def run(self, seconds: float) -> None:
        """What goes over the link meanwhile."""
        end_s = self.now_s + seconds
        while self._waiting:
            channel, data = self._waiting[0]
            took_s = (len(data) - self._sent) / BYTES_PER_S
            if self.now_s + took_s > end_s:
                self._sent += (end_s - self.now_s) * BYTES_PER_S
                break
            self.now_s, self._sent = self.now_s + took_s, 0.0
            before = self.buffered_bytes(channel)
            self._waiting.pop(0)
            whole = self._receivers[channel].accept(data)
            if whole is not None:
                self.arrivals.append(Arrival(decode(whole, channel), self.now_s))
            if before > LOW_WATER_BYTES >= self.buffered_bytes(channel):
                assert self._events is not None
                self._events.engine_writable(channel)
        self.now_s = end_s

    def when(self, frame: Frame) -> float:
        return next(arrival.at_s for arrival in self.arrivals if arrival.frame == frame)

    def order(self) -> list[Frame]:
        return [arrival.frame for arrival in self.arrivals if not isinstance(arrival.frame, Hello | Ping)]


async def opened() -> tuple[Connection, SlowEngine]:
    engine = SlowEngine()
    connection = Connection(engine, Hello(LOWEST_VERSION, "a", "A", "test"), lambda *_: None, lambda *_: None)
    await connection.offer()
    connection.engine_open()
    hello = Hello(LOWEST_VERSION, "b", "B", "test")
    connection.engine_message(Channel.CONTROL, b"\x13" + encode(hello))
    engine.run(0.1)
    return connection, engine


async def ended(connection: Connection) -> None:
    connection._close("test over")
    connection.engine_closed("test over")
    await connection.wait_closed()


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("given", [(PIECE,), (PIECE,) * 4, (PROBE,), (PROBE, PIECE, PIECE)], ids=len)
async def test_where_is_answered_within_the_patience_of_an_asker(
    given: tuple[Frame, ...], after_s: float
) -> None:
    connection, engine = await opened()
    for frame in given:
        connection.send(frame)
    engine.run(after_s)
    asked_s = engine.now_s
    connection.send(HERE)
    engine.run(10.0)
    assert engine.when(HERE) - asked_s + ROUND_TRIP_S < PATIENCE_S
    assert sorted(map(type_of, engine.order())) == sorted(map(type_of, (*given, HERE)))
    await ended(connection)


async def test_the_link_is_never_idle_while_pieces_wait() -> None:
    connection, engine = await opened()
    begun_s = engine.now_s
    for _ in range(4):
        connection.send(PIECE)
    engine.run(10.0)
    took_s = max(arrival.at_s for arrival in engine.arrivals) - begun_s
    assert took_s == pytest.approx(4 * len(PIECE.body) / BYTES_PER_S, rel=0.001)
    await ended(connection)


async def test_a_frame_waits_for_the_long_one_of_its_own_session() -> None:
    connection, engine = await opened()
    connection.send(PROBE)
    connection.send(STEP)
    connection.send(FEED)
    other = Feed(OTHER, 1, 0, 5)
    connection.send(other)
    engine.run(10.0)
    assert [type_of(frame) for frame in engine.order()] == ["Feed", "Probe", "Step", "Feed"]
    assert engine.when(other) < engine.when(PROBE) < engine.when(STEP) < engine.when(FEED)
    await ended(connection)


def type_of(frame: Frame) -> str:
    return type(frame).__name__


async def test_a_step_fills_the_engine_as_before() -> None:
    connection, engine = await opened()
    for _ in range(4):
        connection.send(STEP)
    assert engine.buffered_bytes(Channel.DATA) > 256 * 1024 - PIECE_BYTES
    await asyncio.sleep(0)
    await ended(connection)
