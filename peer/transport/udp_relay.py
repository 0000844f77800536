"""Two peers that cannot connect meet by a third one: it hands their datagrams on, and cannot read them. Edge.

The third peer opens two UDP ports, one for each side; what comes in at one goes out at the other. Candidates that lead
there stand in the descriptions which the two exchange, so ICE, DTLS and all above run between the two as ever.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from aioice.ice import get_host_addresses

from peer.errors import BadCommand, PeerError
from peer.wire.generated.requests import MAX_RELAY_HOSTS, RELAY, RelayAnswer, RelayRequest
from peer.wire.request_kind import RequestKind

MAX_PAIRS: Final = 32  # that one peer hands on for
MAX_PAIRS_EACH: Final = 4  # of them that one other peer asked for
IDLE_S: Final = 60.0  # ICE says something at least every few seconds
ASK_WITHIN_S: Final = 3.0
PRIORITY: Final = 65535  # below every other kind of candidate
_STUN_COOKIE: Final = b"\x21\x12\xa4\x42"
Address = tuple[Any, ...]
Ask = Callable[
    [str, RequestKind[RelayRequest, RelayAnswer], RelayRequest, float], Awaitable[RelayAnswer]
]  # the last: seconds to wait

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """Candidate lines (`candidate:...`) that lead through a third peer: for the other side, and for this one."""

    theirs: tuple[str, ...]
    mine: tuple[str, ...]


def with_candidates(sdp: str, candidates: Iterable[str]) -> str:
    """The description of one medium, with these candidates behind its own."""
    lines = [line for line in sdp.replace("\r\n", "\n").split("\n") if line]
    ending = [line for line in lines if line == "a=end-of-candidates"]
    kept = [line for line in lines if line != "a=end-of-candidates"]
    return "\r\n".join([*kept, *(f"a={candidate}" for candidate in candidates), *ending]) + "\r\n"


def candidate(number: int, host: str, port: int) -> str:
    """One candidate line for ICE."""
    return f"candidate:third{number} 1 udp {PRIORITY - number * 256} {host} {port} typ host"


# --- for others


class _Side(asyncio.DatagramProtocol):
    """One of the two ports. Its peer is whoever last sent a STUN packet, so it is found after a network change."""

    def __init__(self) -> None:
        self.transport: asyncio.DatagramTransport | None = None
        self.other: _Side | None = None
        self.source: Address | None = None
        self.heard = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, source: Address) -> None:
        if data[4:8] == _STUN_COOKIE and data[0] < 4:
            self.source = source
        elif source != self.source:
            return
        self.heard = time.monotonic()
        other = self.other
        if other is not None and other.transport is not None and other.source is not None:
            other.transport.sendto(data, other.source)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    @property
    def port(self) -> int:
        assert self.transport is not None
        return int(self.transport.get_extra_info("sockname")[1])


@dataclass(frozen=True, slots=True)
class _Pair:
    asker: str
    sides: tuple[_Side, _Side]

    def idle_s(self, now: float) -> float:
        return now - max(side.heard for side in self.sides)


class ThirdPeer:
    """What this peer hands on for others. `bind`: the addresses that may carry traffic; empty: all."""

    def __init__(self, bind: tuple[str, ...]) -> None:
        self._bind = bind
        self._pairs: list[_Pair] = []
        self._opening: Counter[str] = Counter()  # by asker: pairs that are being made
        self._closed = False
        self._sweeping: asyncio.TimerHandle | None = None

    async def open(self, asker: str) -> RelayAnswer:
        """Ports for `asker` and another peer. Raises BadCommand when there are too many."""
        asked = Counter(pair.asker for pair in self._pairs) + self._opening
        if self._is_closed() or asked.total() >= MAX_PAIRS or asked[asker] >= MAX_PAIRS_EACH:
            raise BadCommand("relay: this peer hands on for as many others as it can")
        hosts = list(self._bind) or get_host_addresses(use_ipv4=True, use_ipv6=False) or ["127.0.0.1"]
        loop = asyncio.get_running_loop()
        local = (self._bind[0] if len(self._bind) == 1 else "0.0.0.0", 0)
        sides: list[_Side] = []
        self._opening[asker] += 1
        try:
            for _ in range(2):
                _, side = await loop.create_datagram_endpoint(_Side, local_addr=local)
                sides.append(side)
        except OSError as error:
            for side in sides:
                side.close()
            raise BadCommand(f"relay: no port is free here: {error.strerror}") from error
        finally:
            self._opening[asker] -= 1
        if self._is_closed():  # meanwhile
            for side in sides:
                side.close()
            raise BadCommand("relay: this peer is leaving")
        mine, theirs = sides
        mine.other, theirs.other = theirs, mine
        self._pairs.append(_Pair(asker, (mine, theirs)))
        self._sweep()
        log.info("hands on for %s", asker[:8])
        return RelayAnswer(tuple(hosts[:MAX_RELAY_HOSTS]), mine.port, theirs.port)

    def _is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends all of it."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for pair in self._pairs:
            self._end(pair)
        self._pairs.clear()

    def _sweep(self) -> None:
        now = time.monotonic()
        for pair in [pair for pair in self._pairs if pair.idle_s(now) > IDLE_S]:
            self._pairs.remove(pair)
            self._end(pair)
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._sweeping = (
            asyncio.get_running_loop().call_later(IDLE_S / 4, self._sweep) if self._pairs else None
        )

    def _end(self, pair: _Pair) -> None:
        for side in pair.sides:
            side.close()


# --- for oneself


async def asked_way(peer: str, near: Iterable[str], ask: Ask) -> Way | None:
    """Returns the way to `peer` that the first of `near` gives which reaches it; None: none does. `ask` calls one."""
    for other in near:
        with suppress(PeerError, TimeoutError, ValueError):
            return way_of(await ask(other, RELAY, RelayRequest(peer), ASK_WITHIN_S))
    return None


def way_of(answer: RelayAnswer) -> Way:
    """The way that a third peer answered with. Raises BadCommand, ValueError for what is no address."""
    if not (answer.hosts and answer.mine and answer.theirs):
        raise BadCommand("relay: expected an address and two ports")
    addresses = [str(ipaddress.ip_address(host)) for host in answer.hosts]
    return Way(
        tuple(candidate(number, host, answer.theirs) for number, host in enumerate(addresses)),
        tuple(candidate(number, host, answer.mine) for number, host in enumerate(addresses)),
    )
