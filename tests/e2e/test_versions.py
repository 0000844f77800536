"""A peer that was not updated yet: it joins, computes and asks beside current ones, and what is new waits for it."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from peer.errors import PeerError
from peer.limits import HIGHEST_VERSION, LOWEST_VERSION
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.session.effects import StageEffect
from peer.session.prefix_cache import split
from peer.session.stage import StageCore
from peer.state.generated.commands import ConversationStarted, EntryChosen, MessageAdded, ParticipantSet
from peer.wire.generated.frames import Open
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import options
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

MEMORY = 1 << 30
CUTS = (3,)  # of the tiny model's six units: two stages
GREY = "#888888"


async def answer(mesh: MeshMember) -> list[int]:
    """Tokens of a greedy answer."""
    session = Conversation(mesh.sessions, mesh.model.prompts, os.urandom(16))
    pieces = session.tokens([1, 2, 3, 4], Settings(max_tokens=12, ignore_end=True, front=3))
    got = [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
    session.close()
    return got


async def test_an_older_peer_joins_computes_and_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens: list[Open] = []
    original = StageCore.open

    def opened(self: StageCore, now: float, sender: str, frame: Open) -> list[StageEffect]:
        opens.append(frame)
        return original(self, now, sender, frame)

    monkeypatch.setattr(StageCore, "open", opened)
    store = Store(tmp_path / "store")
    model = build_model(open_gguf(TinyModel().write_gguf(tmp_path / "tiny.gguf"), "tiny"), "f32", store)
    promise = Founding(model, MeshOptions(256, 4, "latency", CUTS), ServerOptions())
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        founder = await enter(
            found(promise, options("founder", MEMORY), store, identity_from_seed(os.urandom(32)))
        )
        assert founder.link is not None
        link = founder.link.url()
        older = await enter(
            join(link, replace(options("older", MEMORY), older=True), Store(tmp_path / "older"), compute=True)
        )
        newer = await enter(join(link, options("newer", MEMORY), Store(tmp_path / "newer"), compute=True))
        await newer.until_serving(WITHIN_S)
        me = older.me
        stages = newer.view.state.serving()
        assert stages is not None
        assert me in {stage.primary for stage in stages.stages}

        asked = [await answer(mesh) for mesh in (older, newer, founder)]
        assert asked[0] == asked[1] == asked[2]
        over = [split(frame)[1] for frame in opens if me in frame.route]
        assert over, "it computed"
        assert set(over) == {None}, "it knows of no fronts"
        assert founder.links.dialer.speaks(me) == LOWEST_VERSION
        assert older.links.dialer.speaks(founder.me) == LOWEST_VERSION
        assert founder.links.dialer.speaks(newer.me) == HIGHEST_VERSION

        await founder.propose(ConversationStarted("tea", "Tea", "", "", (), 1, founder.me, "Ann", GREY))
        await older.propose(ParticipantSet("tea", me, "Old", GREY, "member"))
        await older.propose(MessageAdded("tea", "m", "", me, "to-people", "hello", 2, "", "", (), 0))
        assert founder.view.replica is not None
        replica = founder.view.replica
        assert await founder.view.until(lambda _: me in replica.config.voters, WITHIN_S), "it votes"
        with pytest.raises(PeerError, match="speaks protocol 3, and this needs 4"):
            await founder.propose(EntryChosen("tea", True))
        assert await newer.view.until(lambda state: len(state.conversations["tea"].messages) == 1, WITHIN_S)

        await older.close("it is updated")
        await founder.view.until(lambda state: me not in state.members, WITHIN_S)
        assert await founder.view.until(lambda _: me not in replica.config.voters, WITHIN_S), (
            "its place is free"
        )
        await founder.propose(EntryChosen("tea", True))
        assert newer.links.dialer.speaks(founder.me) == HIGHEST_VERSION
