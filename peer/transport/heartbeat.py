"""Decides when to ask whether the other peer is there, how far away it is, and when it is lost. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from peer.limits import BEAT_S, LOST_S, SUSPECT_S

RTT_GAIN: Final = 1 / 8  # RFC 6298
RTT_DEVIATION_GAIN: Final = 1 / 4  # RFC 6298
ASK_BEATS: Final = 5  # a connection that is heard but does not work is asked at every fifth beat
MAX_ASKED: Final = 64  # PINGs remembered; older ones were never answered


@dataclass(frozen=True, slots=True)
class HeartbeatTimes:
    """How often to ask, after how much silence to suspect the other peer, and after how much it is lost."""

    interval_s: float = BEAT_S
    suspect_s: float = SUSPECT_S
    lost_s: float = LOST_S  # a person must see within 10 s what became of an answer


class Verdict(Enum):
    """What a beat says about the other peer."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    LOST = "lost"


class Heartbeat:
    """Round trip and silence of one connection. `now_s` is any monotonic time."""

    def __init__(self, times: HeartbeatTimes, now_s: float) -> None:
        self._times = times
        self._heard_s = now_s
        self._beat_s = now_s
        self._asked_s: dict[int, float] = {}
        self._nonce = 0
        self._skipped = 0
        self._works = False
        self._deviation_s = 0.0
        self.rtt_s: float | None = None

    def heard(self, now_s: float) -> None:
        """Anything came from the other peer."""
        self._heard_s = now_s

    def works(self) -> None:
        """Data goes over this connection: how long an answer takes has to be known well."""
        self._works = True

    def beat(self, now_s: float) -> tuple[Verdict, int | None]:
        """To be called every interval_s: the verdict, and the nonce of the PING to send now, if one is due.

        None is due where the other side was heard since the beat before, the connection carries no data, and the
        round trip was asked for lately: so an idle mesh costs little. A beat that comes late says that this side
        slept; that time does not count as the other side's silence.
        """
        late_s = now_s - self._beat_s - self._times.interval_s
        heard = self._heard_s > self._beat_s
        if late_s > self._times.interval_s:
            self._heard_s = min(self._heard_s + late_s, now_s)
        self._beat_s = now_s
        silent_s = now_s - self._heard_s
        if silent_s >= self._times.lost_s:
            return Verdict.LOST, None
        verdict = Verdict.SUSPECT if silent_s >= self._times.suspect_s else Verdict.ALIVE
        return verdict, self._ask(now_s, heard)

    def _ask(self, now_s: float, heard: bool) -> int | None:
        if heard and not self._works and self.rtt_s is not None and self._skipped < ASK_BEATS - 1:
            self._skipped += 1
            return None
        self._works, self._skipped = False, 0
        self._nonce += 1
        self._asked_s[self._nonce] = now_s
        while len(self._asked_s) > MAX_ASKED:
            del self._asked_s[next(iter(self._asked_s))]
        return self._nonce

    def answered(self, nonce: int, now_s: float) -> None:
        """A PONG came. One that was never asked for, or comes twice, changes nothing."""
        asked_s = self._asked_s.pop(nonce, None)
        if asked_s is None:
            return
        sample_s = now_s - asked_s
        if self.rtt_s is None:
            self.rtt_s, self._deviation_s = sample_s, sample_s / 2
            return
        self._deviation_s += RTT_DEVIATION_GAIN * (abs(self.rtt_s - sample_s) - self._deviation_s)
        self.rtt_s += RTT_GAIN * (sample_s - self.rtt_s)

    @property
    def timeout_s(self) -> float | None:
        """How long an answer may take before it is late (RFC 6298 without its minimum)."""
        return None if self.rtt_s is None else self.rtt_s + 4 * self._deviation_s
