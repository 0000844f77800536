"""Decides how a link that leads into one conversation is written, and what proves that somebody holds it.

Pure; the same in web_peer/src/conversation/entry_links.ts. The link of the mesh, then `&in=`, the conversation's id, a
dot and 32 secret bytes: the seed of the key by which the log knows this invite. Whoever uses it signs mesh,
conversation and peer id with that key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from peer.state.generated.commands import ParticipantInvited
from signaling.errors import BadKey, WrongLink
from signaling.keys import (
    SEED_BYTES,
    Identity,
    from_text,
    identity_from_seed,
    public_key,
    to_text,
    transcript,
)

MARK: Final = "&in="
_ENTRY: Final = re.compile(r"([0-9A-Za-z_.:-]{1,64})\.([0-9A-Za-z_-]{43})")


@dataclass(frozen=True, slots=True)
class EntryLink:
    """What stands behind the mesh's link."""

    conversation: str
    seed: bytes = field(repr=False)

    def identity(self) -> Identity:
        """The key pair of the link, made from its secret."""
        return identity_from_seed(self.seed)

    def after(self, link: str) -> str:
        """The whole link. It is a secret, as the mesh's is."""
        return f"{link}{MARK}{self.conversation}.{to_text(self.seed)}"


def split_link(link: str) -> tuple[str, EntryLink | None]:
    """The link of the mesh, and what leads into a conversation of it. Raises WrongLink."""
    mesh_link, mark, rest = link.strip().partition(MARK)
    if not mark:
        return link, None
    found = _ENTRY.fullmatch(rest)
    try:
        seed = from_text(found[2]) if found is not None else b""
    except ValueError:
        seed = b""
    if found is None or len(seed) != SEED_BYTES:
        raise WrongLink("the end of the link, which leads into a conversation, is not whole: copy all of it")
    return mesh_link, EntryLink(found[1], seed)


def signed_entry(mesh: str, conversation: str, peer: str) -> bytes:
    """What the key of an invite to a conversation signs."""
    return transcript("entry", mesh, conversation, peer)


def used(link: EntryLink, mesh: str, peer: str, name: str, colour: str) -> ParticipantInvited:
    """The command by which `peer` comes in with that link."""
    key = link.identity()
    proof = to_text(key.sign(signed_entry(mesh, link.conversation, peer)))
    return ParticipantInvited(link.conversation, to_text(key.public.encoded), peer, name, colour, proof)


def is_proven(mesh: str, command: ParticipantInvited) -> bool:
    """Whether who says the command holds the invite's secret."""
    signed = signed_entry(mesh, command.conversation, command.peer)
    try:
        return public_key(from_text(command.key)).verifies(from_text(command.proof), signed)
    except (ValueError, BadKey):
        return False
