"""Conversations that one is invited to: the log decides who comes in, and waits until every voter understands it."""

from __future__ import annotations

import pytest

from peer.conversation.entry_links import EntryLink, used
from peer.errors import PeerError
from peer.limits import LOWEST_VERSION
from peer.member.mesh_member import MeshMember
from peer.state.generated.commands import (
    ConversationCommand,
    ConversationStarted,
    EntryChosen,
    EntryOffered,
    EntryWithdrawn,
    MessageAdded,
    ParticipantPutOut,
    ParticipantSet,
)
from signaling.keys import to_text
from tests.peer.town import NAME, Town, town

GREY = "#888888"
LINK = EntryLink("tea", bytes(range(32)))
KEY = to_text(LINK.identity().public.encoded)
STARTED = ConversationStarted("tea", "Tea", "", "", (), 1, "ann", "Ann", GREY)
CLOSED = EntryChosen("tea", True)
OFFERED = EntryOffered("tea", KEY, "member", "ann", 2)


def hello(author: str) -> MessageAdded:
    return MessageAdded("tea", f"of-{author}", "", author, "to-people", "hello", 3, "", "", (), 0)


def comes(name: str) -> ParticipantSet:
    return ParticipantSet("tea", name, name, GREY, "member")


async def says(mesh: MeshMember, *commands: ConversationCommand) -> None:
    for command in commands:
        await mesh.propose(command)


async def refuses(mesh: MeshMember, command: ConversationCommand, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        await mesh.propose(command)


async def meet(made: Town) -> tuple[MeshMember, MeshMember, MeshMember]:
    ann = await made.found("ann")
    return ann, await made.join("bob"), await made.join("cho")


async def test_who_is_not_invited_does_not_come_in_and_who_is_put_out_does_not_come_back() -> None:
    async with town() as made:
        ann, bob, cho = await meet(made)
        await says(ann, STARTED, CLOSED, OFFERED)
        await refuses(bob, comes("bob"), "expected somebody who was invited")
        stolen = used(LINK, NAME, "cho", "Bob", GREY)  # Cho's signature in Bob's hands
        await refuses(bob, stolen, "in its own name")
        forged = used(EntryLink("tea", bytes(32)), NAME, "bob", "Bob", GREY)
        await refuses(bob, forged, "withdrawn, or never was")
        unsigned = used(LINK, "another mesh", "bob", "Bob", GREY)
        await refuses(bob, unsigned, "a signature by the key of that invite")
        await says(bob, used(LINK, NAME, "bob", "Bob", GREY), hello("bob"))

        await refuses(bob, ParticipantPutOut("tea", "ann"), "expected an owner")
        await says(ann, ParticipantPutOut("tea", "bob"))
        await refuses(bob, used(LINK, NAME, "bob", "Bob", GREY), "was put out")
        await refuses(bob, MessageAdded(**{**_fields(hello("bob")), "id": "again"}), "takes part")
        await refuses(cho, EntryWithdrawn("tea", KEY), "expected an owner")
        await says(ann, EntryWithdrawn("tea", KEY))
        await refuses(cho, used(LINK, NAME, "cho", "Cho", GREY), "withdrawn, or never was")
        await says(ann, EntryChosen("tea", False))
        await refuses(bob, comes("bob"), "expected somebody who was invited")
        await says(cho, comes("cho"))
        await says(ann, comes("bob"))  # an owner lets him in again
        talk = ann.view.state.conversations["tea"]
        assert {peer: each.role for peer, each in talk.participants.items()} == {
            "ann": "owner",
            "bob": "member",
            "cho": "member",
        }
        assert talk.entry.barred == ()


def _fields(message: MessageAdded) -> dict[str, object]:
    return {name: getattr(message, name) for name in MessageAdded.__slots__}


async def test_the_log_has_nothing_that_a_voter_does_not_understand() -> None:
    async with town() as made:
        made.spoken = {"bob": LOWEST_VERSION}
        ann, bob, _ = await meet(made)
        await made.until(lambda: len(made.voters(ann)) == 3)
        await says(ann, STARTED)
        await refuses(
            ann, CLOSED, "a peer that keeps the mesh speaks protocol 3, and this needs 4: update it"
        )
        await says(bob, comes("bob"), hello("bob"))  # what both know goes on
        assert "bob" in ann.view.state.conversations["tea"].participants


async def test_an_older_peer_does_not_vote_once_the_log_has_what_it_does_not_understand() -> None:
    async with town() as made:
        made.spoken = {"bob": LOWEST_VERSION}
        ann = await made.found("ann")
        await says(ann, STARTED, CLOSED)
        await made.join("bob")
        await made.join("cho")
        await made.join("dan")
        await made.until(lambda: {"ann", "cho", "dan"} <= set(made.voters(ann)))
        assert set(made.voters(ann)) == {"ann", "cho", "dan"}
        assert "bob" in ann.view.state.members
