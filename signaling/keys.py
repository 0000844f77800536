"""Decides what a key, an id and a valid signature are.

A public key travels as one tag byte and the raw key: 1 + 32 bytes of Ed25519, or 2 + 65 bytes of an
uncompressed P-256 point (browsers without Ed25519). Signatures are 64 bytes in both cases (Ed25519, or r and
s side by side as WebCrypto writes them, over SHA-256). What is signed is always a `transcript`.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils

from signaling.errors import BadKey

TAG_ED25519 = 1
TAG_P256 = 2
ED25519_BYTES = 1 + 32
P256_BYTES = 1 + 65
SIGNATURE_BYTES = 64
SEED_BYTES = 32
ID_BYTES = 20  # 160 bits: nobody finds a second key with the same id
ID_CHARS = 32
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True)
class PublicKey:
    """A checked public key. `encoded` is the tagged form that travels and that ids are made of."""

    encoded: bytes
    _key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey = field(repr=False, compare=False)

    @cached_property
    def id(self) -> str:
        """The id of whoever has this key: a hash of it."""
        return key_id(self.encoded)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the owner of this key signed `message`."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            if isinstance(self._key, ed25519.Ed25519PublicKey):
                self._key.verify(signature, message)
            else:
                r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
                self._key.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Identity:
    """A key pair. The private half never shows in repr or logs."""

    public: PublicKey
    _private: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The id of whoever has this key: a hash of its public half."""
        return self.public.id

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        if isinstance(self._private, ed25519.Ed25519PrivateKey):
            return self._private.sign(message)
        signed = self._private.sign(message, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
        r, s = utils.decode_dss_signature(signed)
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def identity_from_seed(seed: bytes) -> Identity:
    """The Ed25519 key pair of a 32-byte secret. The caller draws the secret; BadKey for another length."""
    if len(seed) != SEED_BYTES:
        raise BadKey(f"a key seed has {SEED_BYTES} bytes, this one has {len(seed)}")
    private = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return Identity(PublicKey(bytes([TAG_ED25519]) + raw, private.public_key()), private)


def p256_identity_from_seed(seed: bytes) -> Identity:
    """A P-256 key pair from a 32-byte secret, as a browser without Ed25519 would have."""
    if len(seed) != SEED_BYTES:
        raise BadKey(f"a key seed has {SEED_BYTES} bytes, this one has {len(seed)}")
    private = ec.derive_private_key(int.from_bytes(seed, "big") % (_P256_ORDER - 1) + 1, ec.SECP256R1())
    raw = private.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    return Identity(PublicKey(bytes([TAG_P256]) + raw, private.public_key()), private)


def public_key(encoded: bytes) -> PublicKey:
    """Decode a tagged public key; BadKey when it is none."""
    tag = encoded[0] if encoded else -1
    try:
        if tag == TAG_ED25519 and len(encoded) == ED25519_BYTES:
            return PublicKey(encoded, ed25519.Ed25519PublicKey.from_public_bytes(encoded[1:]))
        if tag == TAG_P256 and len(encoded) == P256_BYTES:
            point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), encoded[1:])
            return PublicKey(encoded, point)
    except ValueError as error:
        raise BadKey(f"a public key of type {tag} is not a point of its curve") from error
    raise BadKey(
        f"a public key is tag 1 with 32 bytes or tag 2 with 65 bytes, not tag {tag} with {len(encoded) - 1}"
    )


def key_id(encoded: bytes) -> str:
    """Mesh or peer id of a tagged public key: lower-case base32 of the first 20 bytes of its SHA-256."""
    return base64.b32encode(hashlib.sha256(encoded).digest()[:ID_BYTES]).decode().lower()


def is_id(text: str) -> bool:
    """Whether `text` has the form of a mesh or peer id."""
    return len(text) == ID_CHARS and all(c in "abcdefghijklmnopqrstuvwxyz234567" for c in text)


def transcript(purpose: str, *parts: bytes | str | int) -> bytes:
    """The bytes that get signed: purpose and parts, each with its length in front, so no two lists collide.

    Strings are UTF-8, integers are 8 bytes big-endian; the length is 4 bytes big-endian.
    """
    pieces = []
    for part in (f"shoal/1 {purpose}", *parts):
        match part:
            case str():
                raw = part.encode()
            case int():
                raw = struct.pack(">Q", part)
            case bytes():
                raw = part
        pieces.append(struct.pack(">I", len(raw)) + raw)
    return b"".join(pieces)


def to_text(raw: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Undo `to_text`; ValueError unless `text` is exactly what `to_text` writes."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if to_text(raw) != text:
        raise ValueError("not canonical base64url")
    return raw
