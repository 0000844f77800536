"""Links into one conversation from the command line: made, listed, withdrawn, and used by who comes with one."""

from __future__ import annotations

import os
import time

from peer.cli.conversation_lines import names_in
from peer.conversation.conversation_client import Self, Talking
from peer.conversation.entry_links import EntryLink, used
from peer.errors import BadCommand
from peer.member.mesh_member import MeshMember
from peer.state.conversations import Conversation
from peer.state.display_names import name_of
from peer.state.generated.commands import EntryChosen, EntryOffered, EntryWithdrawn, Given
from signaling.keys import SEED_BYTES, to_text

SHORT_KEY = slice(2, 10)  # of a public key, behind its tag: enough to tell invites apart
ENTRIES = {"open": False, "invited": True}
WHO_COMES = {True: "only who is invited comes in", False: "everybody in the mesh may come in"}
GIVEN: tuple[Given, ...] = ("member", "viewer")


def given(role: str) -> Given:
    """Raises BadCommand for what no link gives."""
    for each in GIVEN:
        if each == role:
            return each
    raise BadCommand(f"expected member or viewer as what the link gives, got {role!r:.20}")


async def invite(mesh: MeshMember, conversation: str, role: str) -> str:
    """A new link that lets into the conversation; it is in the log. Raises BadCommand or another MeshError."""
    if mesh.link is None:
        raise BadCommand("there is no link to this mesh")
    link = EntryLink(conversation, os.urandom(SEED_BYTES))
    key = to_text(link.identity().public.encoded)
    when_ms = int(time.time() * 1000)
    await mesh.propose(EntryOffered(conversation, key, given(role), mesh.me, when_ms))
    return link.after(mesh.link.url())


def listed(talk: Conversation) -> list[str]:
    """The links into a conversation without their secrets, a line each, and who may come in without one."""
    called = names_in(talk)
    lines = [
        f"{key[SHORT_KEY]}  {offer.role}, by {name_of(offer.by, called)}"
        for key, offer in talk.entry.offers.items()
    ]
    return [*lines, WHO_COMES[talk.entry.by_invite]]


async def withdraw(mesh: MeshMember, conversation: str, talk: Conversation, short: str) -> None:
    """Nobody comes in with that link any more. Raises BadCommand or another MeshError."""
    found = [key for key in talk.entry.offers if short and key[SHORT_KEY].startswith(short)]
    if len(found) != 1:
        have = ", ".join(key[SHORT_KEY] for key in talk.entry.offers) or "none"
        raise BadCommand(f"expected the beginning of one invite of this conversation; there are {have}")
    await mesh.propose(EntryWithdrawn(conversation, found[0]))


async def choose_entry(mesh: MeshMember, conversation: str, talk: Conversation, word: str) -> str:
    """Who may come in from now on, which it returns in words. Raises BadCommand or another MeshError."""
    if word not in ENTRIES:
        raise BadCommand(f"expected {' or '.join(ENTRIES)}, got {word!r:.20}")
    if talk.entry.by_invite is not ENTRIES[word]:
        await mesh.propose(EntryChosen(conversation, ENTRIES[word]))
    return WHO_COMES[ENTRIES[word]]


def come_in(mesh: MeshMember, talking: Talking, link: EntryLink, own: Self) -> None:
    """Takes part with what the link gives, unless this peer does already."""
    if mesh.link is not None and talking.me not in talking.conversations[link.conversation].participants:
        talking.bring([used(link, mesh.link.mesh, talking.me, own.name, own.colour)])


def why_outside(talk: Conversation, peer: str) -> str:
    """Why `peer` does not come in by itself; "" when it does."""
    if peer in talk.entry.barred:
        return "an owner put you out of this conversation: you read here"
    if talk.entry.by_invite:
        return "who is invited takes part in this conversation: you read here; ask an owner for a link"
    return ""
