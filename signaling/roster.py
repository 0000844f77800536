"""Decides what a member believes about the others: who is here, and which offers and answers are real. Pure.

The server is not trusted: it may stay silent, but what it says is checked here against signatures and
memory. The memory outlives sockets, so that a server that restarts, or another one, cannot play back what
was seen.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TypeVar

from signaling.errors import (
    ForgedGrant,
    ForgedPresence,
    InviteRevoked,
    ReplayedDescription,
    ReplayedJoin,
    UnexpectedAnswer,
    UnknownPeer,
)
from signaling.invites import Admissions, Grant, Revocation, verify_grant
from signaling.keys import PublicKey
from signaling.presence import Presence, Signal, SignalKind, verify_presence, verify_signal

K = TypeVar("K")
V = TypeVar("V")
MAX_NONCES = 20_000  # past joins remembered, all peers together
MAX_CONNECTIONS = 20_000  # connection ids remembered
MAX_CANDIDATES = 256  # per connection and direction; real ones have about ten


@dataclass(frozen=True)
class _Known:
    presence: Presence
    key: PublicKey


class Roster:
    """The verified members of one mesh, as seen by the peer `own`."""

    def __init__(self, mesh: str, own: str) -> None:
        self.admissions = Admissions(mesh)
        self._mesh = mesh
        self._own = own
        self._present: dict[str, _Known] = {}
        self._nonces: OrderedDict[bytes, str] = OrderedDict()  # join nonce -> peer that used it
        self._signals: OrderedDict[tuple[str, SignalKind, bytes], int] = OrderedDict()
        self._offered: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def members(self) -> dict[str, Presence]:
        """The others who are here, by peer id."""
        return {peer: known.presence for peer, known in self._present.items()}

    def find(self, peer: str) -> Presence:
        """A member that is here; UnknownPeer otherwise."""
        known = self._present.get(peer)
        if known is None:
            raise UnknownPeer(f"peer {peer} is not in the room at the moment")
        return known.presence

    def arrived(self, presence: Presence, now_unix: float) -> bool:
        """Take a member that the server shows, after checking it. False: here with the same proof."""
        peer = presence.peer
        if peer == self._own:
            raise ForgedPresence("the server shows this peer's own key as somebody else: refused")
        present = self._present.get(peer)
        if present is not None and present.presence == presence:
            return False
        admitted = presence.person in self.admissions.admitted.get(presence.grant.key, {})
        key = verify_presence(presence, self._mesh, now_unix, admitted)
        seen = self._nonces.get(presence.join_nonce)
        if seen is not None and not (present and present.presence.join_nonce == presence.join_nonce):
            raise ReplayedJoin(
                f"the join of peer {peer} was seen before: the server plays back an old one, refused"
            )
        self.admissions.check(presence.grant, presence.person, now_unix, presence.membership)
        self.admissions.admit(presence.grant, presence.person)
        _remember(self._nonces, presence.join_nonce, peer, MAX_NONCES)
        self._present[peer] = _Known(presence, key)
        return True

    def left(self, peer: str) -> bool:
        """The server says that a member is gone."""
        return self._present.pop(peer, None) is not None

    def admitted(self, membership: Grant) -> bool:
        """The founder made a person a lasting member; False when it is for somebody not here."""
        verify_grant(membership, self._mesh)
        theirs = {p: k for p, k in self._present.items() if k.presence.person_key == membership.key}
        fitting = {p: k for p, k in theirs.items() if k.presence.grant.key == membership.via}
        if theirs and not fitting:
            raise ForgedGrant("a membership carries the invite that its peer came with")
        for peer, known in fitting.items():
            self._present[peer] = _Known(replace(known.presence, membership=membership), known.key)
        return bool(fitting)

    def revoked(self, revocation: Revocation) -> list[str]:
        """The founder withdrew an invite: returns the members that came with it and are out now."""
        self.admissions.revoke(revocation)
        gone = [p for p, k in self._present.items() if k.presence.grant.key == revocation.key]
        for peer in gone:
            del self._present[peer]
        return gone

    def offered(self, peer: str, connection: bytes) -> None:
        """This side sent an offer, so one answer may come."""
        _remember(self._offered, (peer, connection), None, MAX_CONNECTIONS)

    def accept(self, signal: Signal, own: Presence) -> Signal:
        """Check an offer, answer or candidate that the server delivered; raises an IdentityError."""
        known = self._present.get(signal.sender)
        if known is None:
            raise UnknownPeer(
                f"the {signal.kind} is from {signal.sender}, who is not a verified member here: refused"
            )
        if known.presence.grant.origin in self.admissions.revocations:
            raise InviteRevoked(f"peer {signal.sender} came with an invite that was withdrawn: refused")
        verify_signal(signal, known.presence, own, known.key)
        seen_key = (signal.sender, signal.kind, signal.connection)
        seen = self._signals.get(seen_key, 0)
        if seen >= (MAX_CANDIDATES if signal.kind is SignalKind.CANDIDATE else 1):
            raise ReplayedDescription(f"the {signal.kind} from peer {signal.sender} came before: refused")
        if signal.kind is SignalKind.ANSWER and (signal.sender, signal.connection) not in self._offered:
            raise UnexpectedAnswer(f"peer {signal.sender} answers an offer that was never made: refused")
        _remember(self._signals, seen_key, seen + 1, MAX_CONNECTIONS)
        return signal


def _remember(memory: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > most:
        memory.popitem(last=False)
