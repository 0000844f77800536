"""Decides the short-lived credentials with which a member may use a TURN relay. Pure.

The relay and this server share a secret (coturn's `use-auth-secret`, draft-uberti-behave-turn-rest); members
see only a name that says until when it is valid, and a password made from it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from signaling.messages import IceServer

LIFETIME_S = 24 * 3600  # a connection made within this time stays for as long as it lives


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
