"""Decides what a peer says of what may take it away, and when it says so again: machine, network, owner, hazard.

Pure; the same in web_peer/src/state/failure_domains.ts. Machine, network and owner are hashes with the mesh's id: equal
ones are the same, and they are of no use in another mesh. What a peer does not say is unknown.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from peer.errors import BadCommand
from peer.wire.json_codec import Codec, matching, maybe, record
from planner.predict.hazard import CONDITIONS, HOUR, PRIOR_STAY_S

Platform = Literal["process", "tab", "phone"]
Place = Literal["machine", "network", "owner"]
ID_BYTES: Final = 20
MAX_HAZARD_MILLI: Final = 1_000_000  # a peer that leaves every four seconds is worth no plan
WORSE_MS: Final = 5_000  # a higher hazard, or another place, is told when it holds for so long
BETTER_MS: Final = 60_000  # a lower one: who was in the background a moment ago may be there again soon
AGAIN_MS: Final = (
    20_000  # and no sooner after it was told; twice as long each time that the log does not have it
)
AGAIN_AT_MOST_MS: Final = 3_600_000
_CANDIDATE: Final = re.compile(r"^a=candidate:(\S+) \d+ \S+ \d+ (\S+) (\d+) typ (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one peer says of itself beyond its speed and memory."""

    hazard_milli: int | None = None  # thousandths of leavings an hour; None: unknown
    machine: str = ""  # what ends with it; "": unknown
    network: str = ""  # the public address that it is reached by
    owner: str = ""  # who may take it away

    def domains(self) -> tuple[str, ...]:
        """What it fails with, as the planner tells domains apart."""
        known = (("machine", self.machine), ("network", self.network), ("owner", self.owner))
        return tuple(f"{kind} {name}" for kind, name in known if name)


UNKNOWN: Final = Surroundings()


# --- how likely it leaves


def hazard_milli(platform: Platform, conditions: Collection[str]) -> int:
    """Thousandths of leavings an hour, by the priors of the platform and of what holds of `conditions`."""
    found = 1000 * HOUR / PRIOR_STAY_S[platform]
    for condition in sorted(CONDITIONS.keys() & set(conditions)):
        found *= CONDITIONS[condition]
    return math.floor(found + 0.5)


# --- where it is


def hashed(what: Place, mesh: str, name: str) -> str:
    """`name` as only members of `mesh` can compare it; "" stays "". 32 characters."""
    if not name:
        return ""
    digest = hashlib.sha256(f"shoal {what}\n{mesh}\n{name}".encode()).digest()
    return base64.b32encode(digest[:ID_BYTES]).decode().lower()


def public_address(sdp: str) -> str:
    """How this peer is reached from outside, by its own description; "" where that has no public address.

    The least public IPv4 address, else the least /64 of IPv6. Candidates of relays say nothing of the peer.
    """
    four: list[str] = []
    six: list[str] = []
    for candidate in _CANDIDATE.finditer(sdp):
        if candidate[4] not in ("host", "srflx"):
            continue
        try:
            address = ipaddress.ip_address(candidate[2])
        except ValueError:
            continue  # a name that only this network knows
        if isinstance(address, ipaddress.IPv4Address):
            four += [str(address)] if _is_public(address.packed) else []
        elif address.packed[0] >> 5 == 1:  # 2000::/3
            six.append(f"{address.packed[:8].hex()}/64")
    return min(four or six, default="")


def _is_public(address: bytes) -> bool:
    first, second = address[0], address[1]
    return not (
        first in (0, 10, 127)
        or first >= 224
        or (first == 100 and second >> 6 == 1)
        or (first == 169 and second == 254)
        or (first == 172 and second >> 4 == 1)
        or (first == 192 and second == 168)
        or (first == 198 and second >> 1 == 9)
    )


# --- whether a relay is in the way


@dataclass(frozen=True, slots=True)
class End:
    """One end of the pair of addresses that a connection uses. `kind`: that of its ICE candidate."""

    host: str
    port: int
    kind: str


def relays_of(descriptions: Iterable[str]) -> frozenset[tuple[str, int]]:
    """Addresses in these descriptions that are somebody else's: of TURN relays, of third peers."""
    return frozenset(
        (candidate[2], int(candidate[3][:5]))
        for sdp in descriptions
        for candidate in _CANDIDATE.finditer(sdp)
        if candidate[4] == "relay" or candidate[1].startswith("third")
    )


def is_relayed(descriptions: Iterable[str], pair: tuple[End, End] | None) -> bool | None:
    """Whether a connection with these descriptions goes through a relay; None: nobody can tell. `pair`: its ends."""
    relays = relays_of(descriptions)
    if pair is None:
        return None if relays else False
    return any(end.kind == "relay" or (end.host, end.port) in relays for end in pair)


def agreed(mine: bool | None, theirs: bool | None) -> bool | None:
    """Of a link, by what both ends say: one that sees a relay is right, else one that knows there is none."""
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    return mine or theirs


# --- when it is told again


class Telling:
    """A change that lasts is told; one that comes and goes does not get into the log."""

    def __init__(self) -> None:
        self._new = UNKNOWN
        self._since_ms = 0
        self._not_before_ms = 0
        self._pause_ms = AGAIN_MS

    def due(self, now_ms: int, said: Surroundings, seen: Surroundings) -> bool:
        """Whether `seen` is to be told now; `said`: what the log has."""
        if seen == said:
            self._new, self._pause_ms = said, AGAIN_MS
            return False
        if seen != self._new:
            self._new, self._since_ms = seen, now_ms
        lasts = BETTER_MS if _only_better(said, seen) else WORSE_MS
        if now_ms < max(self._since_ms + lasts, self._not_before_ms):
            return False
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, AGAIN_AT_MOST_MS)
        return True


def _only_better(said: Surroundings, seen: Surroundings) -> bool:
    if said.domains() != seen.domains() or said.hazard_milli is None or seen.hazard_milli is None:
        return False
    return seen.hazard_milli < said.hazard_milli


# --- wire


def _hazard(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_HAZARD_MILLI:
        raise BadCommand(f"{where}: expected an integer from 0 to {MAX_HAZARD_MILLI}, got {value!r:.60}")
    return value


_place: Final = matching("([a-z2-7]{32})?", "nothing or 32 characters of a to z and 2 to 7")
surroundings_codec: Final = record(
    Surroundings,
    {
        "hazard_milli": maybe(Codec(_hazard, lambda value: value)),
        "machine": _place,
        "network": _place,
        "owner": _place,
    },
)
