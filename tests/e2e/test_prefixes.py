"""A system prompt that several conversations share is computed once on each stage, and changes no token."""

from __future__ import annotations

from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.session.sampling import Sampling
from tests.e2e.real_mesh import Start
from tests.patience import WITHIN_S

SYSTEM = (
    "You are a guide in a museum of maps. " + "Say where each map was drawn, by whom, and what it shows. " * 9
)
COUNT = 6
DRAWN = Sampling(temperature=0.8, seed=5, repetition_penalty=1.1)


async def asked(mesh: MeshMember, question: str, *, alone: bool = False) -> tuple[list[int], Finished]:
    """The tokens of an answer in a conversation of its own; `alone`: it shares nothing with others."""
    conversation = mesh.conversation()
    messages = [Message("system", SYSTEM), Message("user", question)]
    settings = Settings(DRAWN, COUNT, ignore_end=True)
    prompt = mesh.text.encode_chat(messages)
    pieces = conversation.tokens(prompt, settings) if alone else conversation.chat(messages, settings)
    ids, end = [], None
    async for piece in pieces:
        match piece:
            case Delta():
                ids += [piece.token] * (piece.token >= 0)
            case Finished():
                end = piece
    conversation.close()
    assert end is not None
    return ids, end


async def test_a_shared_system_prompt_is_computed_once_and_the_tokens_are_the_same(start: Start) -> None:
    async with start((31,), 2) as meshes:
        founder, other = meshes
        await founder.until_serving(WITHIN_S)
        cores = [mesh.stage.core for mesh in meshes]
        alone, _ = await asked(founder, "Who drew the oldest one?", alone=True)
        assert all(len(core.prefixes) == 0 for core in cores)
        _, first = await asked(founder, "What is the oldest map here?")
        assert first.cached_tokens == 0
        while not all(len(core.prefixes) for core in cores):  # on a busy machine one may have had both stages
            await asked(founder, "What is the oldest map here?")
        for mesh in (founder, other):  # a front is anybody's
            before = [core.prefixes.reused for core in cores]
            ids, _ = await asked(mesh, "Who drew the oldest one?")
            assert ids == alone
            gained = [core.prefixes.reused - had for core, had in zip(cores, before, strict=True)]
            assert sum(gained) > first.prompt_tokens - 30, "by each stage, and maybe by standbys"
        for mesh in meshes:
            assert mesh.stage.units is not None
            assert mesh.stage.units.memory_bytes()["fronts"] > 0
            for run in mesh.stage.units.runs:
                mesh.stage.core.prefixes.forget(run)
            ids, _ = await asked(founder, "Who drew the oldest one?")
            assert ids == alone, "a stage that lacks it computes it again"
