"""A running answer of the real model moves to another cut and back: its tokens are those of an answer that stays."""

from __future__ import annotations

import asyncio

from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from peer.session.sampling import Sampling
from tests.e2e.real_mesh import CONTEXT, Start, tokens_of
from tests.patience import WITHIN_S

QUESTION = "Tell me about the history of bridges."
DRAWN = Sampling(temperature=0.8, seed=11)
MORE = 8  # tokens after each move
CUTS = ((31,), (21,), (31,))


async def test_a_running_answer_moves_and_moves_back(start: Start) -> None:
    async with start(CUTS[0], 2) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        settings = Settings(DRAWN, CONTEXT - len(prompt), ignore_end=True)
        talk = founder.conversation()
        got: list[int] = []
        moves, left = 0, MORE
        async for piece in talk.tokens(prompt, settings):
            if not isinstance(piece, Delta) or piece.token < 0:
                continue
            got.append(piece.token)
            plan = founder.view.state.plan
            assert plan is not None
            if moves and (founder.view.state.cuts, talk.plan) != (CUTS[moves], plan.version):
                continue  # it is still on its way
            if plan.stages[0].stop != CUTS[moves][0]:
                continue
            left -= 1
            if not left and moves + 1 < len(CUTS):
                moves, left = moves + 1, MORE
                founder.set_cuts(CUTS[moves])
            elif not left:
                break
        talk.stop()
        assert moves > 1 or (moves, left) == (1, 0), "the answer came to its end before it had moved"
        assert got == await tokens_of(founder, prompt, Settings(DRAWN, len(got), ignore_end=True))
        talk.close()
        for mesh in meshes:
            while mesh.stage.core.sessions():
                mesh.stage.touched.clear()
                await asyncio.wait_for(mesh.stage.touched.wait(), WITHIN_S)
