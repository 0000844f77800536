"""Builds tests/vectors/signaling.json, which the Python and the TypeScript suite replay.

Run it (`python tests/vectors/make_signaling.py`) after a deliberate change of the wire; a test compares the file.
Everything is made from fixed seeds; Ed25519 signs the same way every time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from signaling.generated.messages import (
    SIGNALING_PROTOCOL,
    Admit,
    Admitted,
    Challenge,
    ClientMessage,
    Ice,
    Join,
    Joined,
    Leave,
    Left,
    Refused,
    Register,
    Registered,
    Relay,
    Revoked,
    ServerMessage,
    Welcome,
)
from signaling.ice import IceServer
from signaling.invites import Role, founder_grant, make_invite, make_membership, make_revocation
from signaling.keys import identity_from_seed, p256_identity_from_seed, to_text, transcript
from signaling.messages import encode
from signaling.presence import (
    SignalKind,
    join_transcript,
    make_presence,
    make_signal,
    vouch_transcript,
)

FILE = Path(__file__).parents[1] / "vectors" / "signaling.json"
MESH_SEED, INVITE_SEED, PEER_SEED, BROWSER_SEED = (bytes([i]) * 32 for i in (1, 2, 3, 4))
ROOM_NONCE, JOIN_NONCE, OTHER_NONCE, CONNECTION = (bytes([i]) * 16 for i in (5, 6, 7, 8))
SDP = "v=0\r\na=fingerprint:SHA-256 " + ":".join(["ab"] * 32) + "\r\na=fingerprint:sha-1 00:11\r\n"

MESH, INVITE, PEER = (identity_from_seed(s) for s in (MESH_SEED, INVITE_SEED, PEER_SEED))
BROWSER = p256_identity_from_seed(BROWSER_SEED)
LINK, GRANT = make_invite(MESH, "https://shoal.example", INVITE_SEED, Role.PEER, 2_000_000_000, 3)
MEMBERSHIP = make_membership(MESH, PEER.public.encoded, GRANT)
REVOCATION = make_revocation(MESH, INVITE.public.encoded)
PRESENCE = make_presence(PEER, INVITE, GRANT, "Bób’s laptop", (ROOM_NONCE, JOIN_NONCE), MEMBERSHIP)
FOUNDER = make_presence(PEER, MESH, founder_grant(MESH), "ann", (ROOM_NONCE, OTHER_NONCE))
VIEWER = make_presence(BROWSER, INVITE, GRANT, "second tab", (ROOM_NONCE, OTHER_NONCE), MEMBERSHIP, PEER)
BROWSER_PRESENCE = make_presence(BROWSER, INVITE, GRANT, "tab", (ROOM_NONCE, OTHER_NONCE))
OFFER = make_signal(PEER, PRESENCE, BROWSER_PRESENCE, SignalKind.OFFER, CONNECTION, SDP)
CANDIDATE = make_signal(
    PEER,
    PRESENCE,
    BROWSER_PRESENCE,
    SignalKind.CANDIDATE,
    CONNECTION,
    "candidate:1 1 udp 1 127.0.0.1 9 typ host",
)

CLIENT: tuple[ClientMessage, ...] = (
    Join(
        SIGNALING_PROTOCOL,
        PRESENCE.mesh,
        GRANT.key,
        PRESENCE.key,
        PRESENCE.name,
        ROOM_NONCE,
        JOIN_NONCE,
        PRESENCE.invite_proof,
        PRESENCE.peer_proof,
        GRANT,
        None,
        None,
    ),
    Join(
        SIGNALING_PROTOCOL,
        VIEWER.mesh,
        GRANT.key,
        VIEWER.key,
        VIEWER.name,
        ROOM_NONCE,
        OTHER_NONCE,
        VIEWER.invite_proof,
        VIEWER.peer_proof,
        None,
        MEMBERSHIP,
        VIEWER.vouch,
    ),
    Register(1, (GRANT,), (REVOCATION,)),
    Register(2**31 - 1, (), ()),
    Admit(MEMBERSHIP),
    Leave(),
    Relay(OFFER),
    Relay(CANDIDATE),
)
SERVER: tuple[ServerMessage, ...] = (
    Challenge(SIGNALING_PROTOCOL, ROOM_NONCE),
    Welcome(
        PRESENCE,
        (FOUNDER,),
        (REVOCATION,),
        (IceServer(("stun:a", "stun:b")), IceServer(("turn:c",), "u", "p")),
    ),
    Joined(FOUNDER),
    Joined(VIEWER),
    Left(PRESENCE.peer, "disconnected"),
    Registered(1),
    Registered(2, "TooManyGrants", "full"),
    Revoked(REVOCATION),
    Refused("InviteExpired", "too late", True),
    Ice((IceServer(("turn:c",), "u", "p"),)),
    Ice(()),
    Relay(OFFER),
    Admitted(MEMBERSHIP),
)


def _cases() -> list[tuple[str, str, str]]:
    leave, challenge, relay = encode(Leave()), encode(SERVER[0]), encode(Relay(OFFER))

    def without(text: str, *path: str) -> str:
        raw = json.loads(text)
        inner = raw
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
        return json.dumps(raw)

    def changed(text: str, value: Any, *path: str) -> str:
        raw = json.loads(text)
        inner = raw
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        return json.dumps(raw)

    return [
        ("client", "", "MalformedMessage"),
        ("client", "{", "MalformedMessage"),
        ("client", "null", "MalformedMessage"),
        ("client", "[" * 100_000, "MalformedMessage"),
        ("client", '{"kind":"leave","kind":"leave"}', "MalformedMessage"),
        ("client", "{}", "MalformedMessage"),
        ("client", '{"kind":1}', "MalformedMessage"),
        ("client", '{"kind":"welcome"}', "UnknownMessage"),
        ("client", '{"kind":"leave","more":1}', "MalformedMessage"),
        ("client", leave[:-1], "MalformedMessage"),
        ("client", " " * 300_000, "MessageTooLarge"),
        ("client", '{"kind":"leave","n":1e3}', "MalformedMessage"),
        ("client", '{"kind":"leave","n":NaN}', "MalformedMessage"),
        ("client", '{"kind":"register","request":' + "9" * 5000 + "}", "MalformedMessage"),
        ("client", without(relay, "signal", "text"), "MalformedMessage"),
        ("client", changed(relay, "song", "signal", "kind"), "MalformedMessage"),
        ("client", changed(relay, ["offer"], "signal", "kind"), "MalformedMessage"),
        ("client", changed(relay, "A" * 32, "signal", "sender"), "MalformedMessage"),
        ("client", changed(relay, to_text(b"1" * 15), "signal", "connection"), "MalformedMessage"),
        ("client", changed(relay, to_text(b"1" * 16) + "==", "signal", "connection"), "MalformedMessage"),
        ("client", changed(relay, "x" * 70_000, "signal", "text"), "MalformedMessage"),
        ("client", changed(relay, "a\u0000b", "signal", "text"), "MalformedMessage"),
        ("client", changed(relay, "a\ud800b", "signal", "text"), "MalformedMessage"),
        ("client", changed(encode(CLIENT[0]), "", "name"), "MalformedMessage"),
        ("client", changed(encode(CLIENT[0]), "a\u001b[2Jb", "name"), "MalformedMessage"),
        ("client", changed(encode(CLIENT[0]), True, "protocol"), "MalformedMessage"),
        ("client", changed(encode(CLIENT[0]), -1, "grant", "uses"), "MalformedMessage"),
        ("client", changed(encode(CLIENT[0]), 10**12, "grant", "expires_unix"), "MalformedMessage"),
        (
            "client",
            changed(encode(CLIENT[1]), {"key": to_text(PEER.public.encoded)}, "vouch"),
            "MalformedMessage",
        ),
        ("client", changed(encode(CLIENT[1]), to_text(bytes(63)), "vouch", "proof"), "MalformedMessage"),
        ("client", without(encode(CLIENT[0]), "vouch"), "MalformedMessage"),
        ("client", changed(encode(CLIENT[2]), [[]] * 65, "grants"), "MalformedMessage"),
        ("server", leave, "UnknownMessage"),
        ("server", without(challenge, "room_nonce"), "MalformedMessage"),
        ("server", changed(challenge, None, "room_nonce"), "MalformedMessage"),
        ("server", changed(encode(SERVER[8]), 1, "ends"), "MalformedMessage"),
        ("server", changed(encode(SERVER[1]), {}, "members"), "MalformedMessage"),
    ]


def _reject() -> list[dict[str, str]]:
    return [
        {"side": side, "text": text, "error": error} for side, text, error in _cases() if len(text) < 2000
    ]


def long_rejects() -> list[tuple[str, str]]:
    """(text, error) for texts too long to keep in a file; all sent by a client."""
    return [(text, error) for _, text, error in _cases() if len(text) >= 2000]


def build() -> dict[str, Any]:
    keys = (("mesh", MESH_SEED, MESH), ("invite", INVITE_SEED, INVITE), ("peer", PEER_SEED, PEER))
    signed_join = join_transcript(
        PRESENCE.mesh, GRANT.key, PRESENCE.key, PRESENCE.name, ROOM_NONCE, JOIN_NONCE
    )
    joined_viewer = join_transcript(VIEWER.mesh, GRANT.key, VIEWER.key, VIEWER.name, ROOM_NONCE, OTHER_NONCE)
    return {
        "keys": [
            {"name": name, "seed": seed.hex(), "public": identity.public.encoded.hex(), "id": identity.id}
            for name, seed, identity in keys
        ],
        "p256": {
            "public": BROWSER.public.encoded.hex(),
            "id": BROWSER.id,
            "message": signed_join.hex(),
            "signature": BROWSER.sign(signed_join).hex(),
        },
        "transcript": {"parts": ["text", 258, "hex:0001"], "bytes": transcript("text", 258, b"\0\1").hex()},
        "join_transcript": signed_join.hex(),
        "vouch_transcript": vouch_transcript(PEER.public.encoded, joined_viewer).hex(),
        "link": {"server": LINK.server, "mesh": LINK.mesh, "seed": LINK.seed.hex(), "url": LINK.url()},
        "client": [encode(m) for m in CLIENT],
        "server": [encode(m) for m in SERVER],
        "reject": _reject(),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(build(), indent=1, ensure_ascii=True) + "\n", encoding="ascii")
