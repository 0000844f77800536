"""What the tests of this folder share: keys, invites, records, and an ear for what a client reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from peer.transport.credentials import Credentials
from peer.transport.signaling_client import ClientSettings, SignalingClient, SignalingEvents
from signaling.generated.messages import SIGNALING_PROTOCOL, Join
from signaling.invites import Grant, InviteLink, Role, founder_grant, make_invite
from signaling.keys import Identity, identity_from_seed
from signaling.presence import Presence, make_presence
from tests.patience import WITHIN_S

MESH = identity_from_seed(b"m" * 32)
FAST = ClientSettings(patience_s=0.0, backoff_s=0.01, backoff_most_s=0.05)


@dataclass
class Ear:
    """Collects what a client reports, and lets a test wait for it."""

    heard: list[tuple[object, ...]] = field(default_factory=list)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, *what: object) -> None:
        self.heard.append(what)
        self.bell.set()

    def events(self) -> SignalingEvents:
        return SignalingEvents(
            on_member=lambda m: self.note("member", m.peer),
            on_left=lambda p, r: self.note("left", p, r),
            on_description=lambda p, c, k, s: self.note("description", p, c, k, s),
            on_candidate=lambda p, c, s: self.note("candidate", p, c, s),
            on_membership=lambda g: self.note("membership", g.key),
            on_rejected=lambda e: self.note("rejected", type(e)),
            on_state=lambda s, e: self.note("state", s, type(e)),
        )

    async def until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not found():
                self.bell.clear()
                await self.bell.wait()

    async def hears(self, *what: object) -> None:
        await self.until(lambda: any(heard[: len(what)] == what for heard in self.heard))

    def said(self, word: str) -> list[tuple[object, ...]]:
        return [heard for heard in self.heard if heard[0] == word]


class Kit:
    """Builders with short names; everything is made from letters, so every run is the same."""

    mesh = MESH
    fast = FAST
    ear = Ear
    now = 1_700_000_000

    @staticmethod
    def key(letter: str) -> Identity:
        return identity_from_seed(letter.encode() * 32)

    @staticmethod
    def nonce(letter: str) -> bytes:
        return letter.encode() * 16

    @staticmethod
    def sdp(byte: str = "AB") -> str:
        return "v=0\r\na=fingerprint:sha-256 " + ":".join([byte] * 32) + "\r\n"

    @staticmethod
    def invite(
        url: str = "http://127.0.0.1:1",
        letter: str = "i",
        uses: int = 0,
        expires: int = 0,
        mesh: Identity = MESH,
    ) -> tuple[InviteLink, Grant]:
        return make_invite(mesh, url, letter.encode() * 32, Role.PEER, expires, uses)

    @classmethod
    def presence(
        cls,
        letter: str,
        grant: Grant | None = None,
        invite: str = "i",
        nonces: tuple[str, str] = ("r", "n"),
        membership: Grant | None = None,
        voucher: str | None = None,
    ) -> Presence:
        """Peer `letter` with the default invite, or with `grant` proved by the seed `invite`."""
        chosen = grant or cls.invite()[1]
        pair = (cls.nonce(nonces[0]), cls.nonce(nonces[1]))
        return make_presence(
            cls.key(letter),
            cls.key(invite),
            chosen,
            f"peer {letter}",
            pair,
            membership,
            cls.key(voucher) if voucher else None,
        )

    @classmethod
    def founder_presence(cls, letter: str = "f", nonces: tuple[str, str] = ("r", "n")) -> Presence:
        pair = (cls.nonce(nonces[0]), cls.nonce(nonces[1]))
        return make_presence(cls.key(letter), MESH, founder_grant(MESH), f"peer {letter}", pair)

    @staticmethod
    def join(presence: Presence, grant: Grant | None = None, protocol: int = SIGNALING_PROTOCOL) -> Join:
        return Join(
            protocol,
            presence.mesh,
            presence.grant.key,
            presence.key,
            presence.name,
            presence.room_nonce,
            presence.join_nonce,
            presence.invite_proof,
            presence.peer_proof,
            grant,
            presence.membership,
            presence.vouch,
        )

    @classmethod
    def founder(cls, url: str, ear: Ear | None = None, letter: str = "f") -> SignalingClient:
        credentials = Credentials.founder(MESH, cls.key(letter), "ann")
        return SignalingClient(url, credentials, (ear or Ear()).events(), FAST)

    @classmethod
    def joiner(
        cls,
        link: InviteLink,
        letter: str = "j",
        ear: Ear | None = None,
        url: str = "",
        voucher: str = "",
    ) -> SignalingClient:
        vouching = cls.key(voucher) if voucher else None
        credentials = Credentials.from_link(link, cls.key(letter), "bob", None, vouching)
        return SignalingClient(url or link.server, credentials, (ear or Ear()).events(), FAST)


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
