"""Decides how the servers of ICE are named, and the credentials with which a member may use a TURN relay. Pure.

The relay and this server share a secret (coturn's `use-auth-secret`, draft-uberti-behave-turn-rest); members
see only a name that says until when it is valid, and a password made from it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from signaling.errors import BadIceServer

LIFETIME_S = 24 * 3600  # a connection made within this time stays for as long as it lives
LENT_TIMES = 3  # within a lifetime: who dials always has credentials for two thirds of one
MIN_SECRET_BYTES = 16
_URL = re.compile(r"(stuns?|turns?):(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?(\?transport=(udp|tcp))?")


@dataclass(frozen=True)
class IceServer:
    """One STUN or TURN server, as WebRTC names it. The credential stays out of repr."""

    urls: tuple[str, ...]
    username: str = ""
    credential: str = ""

    def __repr__(self) -> str:
        return f"IceServer({', '.join(self.urls)})"


@dataclass(frozen=True)
class TurnService:
    """A TURN relay and the secret shared with it."""

    urls: tuple[str, ...]
    secret: bytes = field(repr=False)
    lifetime_s: int = LIFETIME_S

    def lend(self, peer: str, now_unix: float) -> IceServer:
        """Credentials for one peer, valid for `lifetime_s` from now."""
        username = f"{int(now_unix) + self.lifetime_s}:{peer}"
        digest = hmac.new(
            self.secret, username.encode(), hashlib.sha1
        ).digest()  # SHA-1 is what relays expect
        return IceServer(self.urls, username, base64.b64encode(digest).decode())


def ice_services(
    stun: Iterable[str], turn: Iterable[str], secret: bytes | None, lifetime_s: int = LIFETIME_S
) -> tuple[tuple[IceServer, ...], TurnService | None]:
    """The servers that members are told of, and the relay with its secret. Raises BadIceServer."""
    stuns, turns = tuple(stun), tuple(turn)
    for url, scheme in (*((url, "stun") for url in stuns), *((url, "turn") for url in turns)):
        if (match := _URL.fullmatch(url)) is None or not match[1].startswith(scheme):
            raise BadIceServer(
                f"expected an address such as {scheme}:relay.example.org:3478, got {url[:80]!r}"
            )
    if bool(turns) != (secret is not None):
        raise BadIceServer(
            "a relay takes both: --turn with its address, and --turn-secret with what it was given"
        )
    if secret is not None and len(secret) < MIN_SECRET_BYTES:
        raise BadIceServer(
            f"expected a secret of at least {MIN_SECRET_BYTES} bytes, as `openssl rand -hex 32` makes, in --turn-secret"
        )
    servers = (IceServer(stuns),) if stuns else ()
    return servers, TurnService(turns, secret, lifetime_s) if secret is not None else None
