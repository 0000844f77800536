"""Decides how fast, how much and how many: token buckets and the server's limits (pure, `now_s` comes in)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from signaling.errors import LimitError, TooFast, TooManyJoins

MAX_ADDRESSES = 10_000  # buckets kept; the one unused for longest goes first


@dataclass(frozen=True)
class Rate:
    """`per_s` units a second over time, at most `burst` at once."""

    per_s: float
    burst: float


@dataclass(frozen=True)
class Limits:
    """What one server takes. The defaults fit a few hundred people on one small machine."""

    messages: Rate = Rate(40, 400)  # per socket; a dial is an offer and a dozen candidates
    bytes: Rate = Rate(256 * 1024, 2 * 1024 * 1024)  # per socket
    joins: Rate = Rate(2, 60)  # per address
    sockets: int = 2000
    sockets_per_address: int = 200
    rooms: int = 1000
    remembered: int = 10_000  # meshes with nobody in, kept for their invites and revocations
    members: int = 128  # per room
    entries: int = 100_000  # grants, revocations and uses of all meshes; a kilobyte each
    entries_of_mesh: int = 256  # that a mesh may have, whatever others have
    queued_bytes: int = 4 * 1024 * 1024  # per socket, what a slow reader may leave lying
    queued_in_all: int = 256 * 1024 * 1024
    join_within_s: float = 20.0  # a socket that does not join is closed
    plan_bytes: int = 4 * 1024 * 1024
    plan_within_s: float = 20.0


@dataclass
class TokenBucket:
    """Holds up to `rate.burst` tokens and gains `rate.per_s` a second."""

    rate: Rate
    at_s: float
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.rate.burst

    def take(self, now_s: float, count: float = 1.0) -> bool:
        """Take `count` tokens if they are there."""
        self.tokens = min(self.rate.burst, self.tokens + max(0.0, now_s - self.at_s) * self.rate.per_s)
        self.at_s = now_s
        if count > self.tokens:
            return False
        self.tokens -= count
        return True


class SocketMeter:
    """Messages and bytes that one socket may send."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._messages = TokenBucket(limits.messages, now_s)
        self._bytes = TokenBucket(limits.bytes, now_s)

    def count(self, size: int, now_s: float) -> LimitError | None:
        """None, or why the socket must be closed."""
        if not self._messages.take(now_s):
            return TooFast(
                f"more than {self._messages.rate.per_s:g} messages a second: slow down and join again"
            )
        if not self._bytes.take(now_s, size):
            return TooFast(f"more than {self._bytes.rate.per_s:g} bytes a second: slow down and join again")
        return None


class JoinGate:
    """Joins per address, over all its sockets."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def join(self, address: str, now_s: float) -> LimitError | None:
        """None, or why this join must wait."""
        bucket = self._buckets.pop(address, None) or TokenBucket(self._rate, now_s)
        self._buckets[address] = bucket
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        if bucket.take(now_s):
            return None
        return TooManyJoins(
            f"more than {self._rate.per_s:g} joins a second from one address: try again shortly"
        )
