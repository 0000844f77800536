"""What a link takes is told apart: its round trip, its rate, and what a frame of several datagrams takes beyond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.errors import BadCommand
from peer.state.generated.commands import LinkFacts
from peer.transport.link_probe import FRAME_BYTES, SMALL_BYTES, Prober, both_ways, link_words
from peer.wire.generated.frames import Frame, Probe, ProbeAck
from peer.wire.generated.requests import MEASURE_LINK

RATE = 10e6


class Way:
    """A link in virtual time: `trips` are the round trips of small messages, by turns; `beyond_s` is of frames."""

    def __init__(self, trips: list[float], beyond_s: float) -> None:
        self.now, self.trips, self.beyond_s, self.sent = 5.0, trips, beyond_s, 0
        self.prober = Prober(self.send, lambda: self.now)

    def send(self, peer: str, frame: Frame) -> None:
        assert isinstance(frame, Probe)
        size = len(frame.body)
        beyond = self.beyond_s + size / RATE if size == FRAME_BYTES else 0.0
        trip = self.trips[(self.sent + 1) // 2 % len(self.trips)]
        self.now += size / RATE + trip if size > FRAME_BYTES else trip + beyond
        self.sent += 1
        self.prober.acknowledged(peer, ProbeAck(frame.nonce, size))


@pytest.mark.parametrize("beyond_s", [0.0, 0.0004])
async def test_a_frame_takes_more_than_half_a_round_trip_and_its_bytes(beyond_s: float) -> None:
    assert SMALL_BYTES < FRAME_BYTES
    measured = await Way([0.002, 0.003, 0.9, 0.002, 0.003], beyond_s).prober.measure("pb")
    assert measured.overhead_s == pytest.approx(beyond_s, abs=2e-4)
    assert measured.rtt_s == pytest.approx(0.003)


async def test_it_goes_into_the_log_and_a_peer_of_before_tells_none() -> None:
    measured = await Way([0.002], 0.0004).prober.measure("pb")
    words = link_words(measured)
    out, home = both_ways("pa", "pb", words, words)
    assert out == LinkFacts("pa", "pb", 2000, words.bytes_per_s, words.overhead_us)
    assert words.overhead_us == pytest.approx(400, abs=2)
    said = MEASURE_LINK.answer_body(words)
    with pytest.raises(BadCommand, match="overhead_us"):
        MEASURE_LINK.read_answer({**said, "overhead_us": -1})
    del said["overhead_us"]
    assert both_ways("pa", "pb", words, MEASURE_LINK.read_answer(said))[1] == replace(home, overhead_us=0)
