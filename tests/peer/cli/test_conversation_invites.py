"""Who may come into a conversation, chosen on the command line: done once, and said either way."""

from __future__ import annotations

from typing import cast

import pytest

from peer.cli.conversation_invites import choose_entry
from peer.errors import BadCommand
from peer.member.mesh_member import MeshMember
from peer.state.conversations import Conversation, Conversations, converse
from peer.state.generated.commands import ConversationStarted, EntryChosen


class Mesh:
    def __init__(self) -> None:
        self.said: list[EntryChosen] = []

    async def propose(self, command: EntryChosen) -> None:
        self.said.append(command)


def talk(*commands: EntryChosen) -> Conversation:
    started = ConversationStarted("c", "the trip", "", "", (), 1, "ann", "Ann", "#000000")
    held: Conversations | str = {}
    for command in (started, *commands):
        assert not isinstance(held, str)
        held = converse(held, command)
    assert not isinstance(held, str)
    return held["c"]


@pytest.mark.parametrize(
    ("before", "word", "told", "words"),
    [
        ((), "invited", [EntryChosen("c", True)], "only who is invited comes in"),
        ((), "open", [], "everybody in the mesh may come in"),
        ((EntryChosen("c", True),), "invited", [], "only who is invited comes in"),
        ((EntryChosen("c", True),), "open", [EntryChosen("c", False)], "everybody in the mesh may come in"),
    ],
)
async def test_what_was_chosen_is_said(
    before: tuple[EntryChosen, ...], word: str, told: list[EntryChosen], words: str
) -> None:
    mesh = Mesh()
    assert await choose_entry(cast(MeshMember, mesh), "c", talk(*before), word) == words
    assert mesh.said == told


async def test_another_word_is_refused() -> None:
    mesh = Mesh()
    with pytest.raises(BadCommand, match="expected open or invited, got 'all'"):
        await choose_entry(cast(MeshMember, mesh), "c", talk(), "all")
    assert mesh.said == []
