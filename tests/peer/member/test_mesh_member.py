"""A member that takes another name in a running mesh: everybody reads it, and it keeps it when it comes back."""

from __future__ import annotations

import pytest

from peer.cli.conversation_lines import read_line
from peer.cli.conversations import Room
from peer.conversation.conversation_client import Manner, Self
from peer.errors import BadCommand, MeshError
from peer.state.display_names import names
from peer.state.generated.commands import MemberLeft, MemberRenamed
from tests.peer.town import town

DESK = "Ada's desk"


async def test_everybody_reads_the_new_name_also_after_it_was_put_out() -> None:
    async with town() as here:
        founder, asker = await here.found("a"), await here.join("q", compute=False)
        await asker.rename(DESK)
        await here.until(lambda: names(founder.view.state.members).get("q") == DESK)
        assert founder.leadership.current is not None
        founder.leadership.current.submit(MemberLeft("q", "lost"))
        await here.until(lambda: "q" not in asker.view.state.members)
        await here.enter(asker)
        assert names(asker.view.state.members)["q"] == DESK
        assert asker.report_of_self()["name"] == DESK


async def test_no_other_name_than_a_peer_could_join_with_and_of_no_other_peer() -> None:
    async with town() as here:
        founder, asker = await here.found("a"), await here.join("q", compute=False)
        for name, why in (("", "1 to 64"), ("x" * 65, "got 65"), ("a\x1b[2J", "without control")):
            with pytest.raises(BadCommand, match=why):
                await asker.rename(name)
            with pytest.raises(MeshError, match=why):
                await asker.propose(MemberRenamed("q", name))
        with pytest.raises(MeshError, match="what this peer itself does"):
            await asker.propose(MemberRenamed("a", DESK))
        assert names(founder.view.state.members) == {"a": "a", "q": "q"}


async def test_who_talks_takes_another_name_in_its_conversations_too() -> None:
    async with town() as here:
        founder = await here.found("a")
        asker = await here.join("q", compute=False)
        room = Room(asker, Self("q", "#4c8bf5"), Manner(""))
        try:
            room.begin("a talk")
            typed = read_line(f"/name {DESK}")
            assert typed is not None
            await room.do(typed)
            await room.talking.said()
            (talk,) = founder.view.state.conversations.values()
            assert talk.participants["q"].name == DESK == founder.view.state.members["q"].name
            with pytest.raises(BadCommand, match="got 65"):
                await room.do(read_line("/name " + "x" * 65))  # type: ignore[arg-type]
            assert room.own.name == DESK
        finally:
            await room.talking.close()
