"""A mesh answers over either transport engine, and over both at once."""

from __future__ import annotations

import importlib.util
import os
from contextlib import AsyncExitStack

import pytest

from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import CONTEXT, Models, options
from tests.e2e.unsplit import QUESTION
from tests.patience import WITHIN_S

fast = pytest.mark.skipif(
    importlib.util.find_spec("aiolibdatachannel") is None,
    reason="aiolibdatachannel (extra fast) needs CPython 3.12 or newer; .ci/run covers it with another interpreter",
)


@pytest.mark.parametrize(
    ("founder", "joiner"),
    [
        ("aiortc", "aiortc"),
        pytest.param("libdatachannel", "libdatachannel", marks=fast),
        pytest.param("aiortc", "libdatachannel", marks=fast),
    ],
)
async def test_three_stages_answer(models: Models, founder: str, joiner: str) -> None:
    promise = Founding(models.ids["8bit"], MeshOptions(CONTEXT, 2, "latency", (20, 41)), ServerOptions())
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(32))
        mesh = await stack.enter_async_context(
            found(promise, options("f", transport=founder), models.store, key)
        )
        assert mesh.link is not None
        for name in ("a", "b"):
            entering = join(mesh.link.url(), options(name, transport=joiner), models.store, compute=True)
            other: MeshMember = await stack.enter_async_context(entering)
        await mesh.until_serving(WITHIN_S)
        text = ""
        question = [Message("user", QUESTION)]
        async for piece in other.conversation().chat(question, Settings(max_tokens=12)):
            if isinstance(piece, Delta):
                text += piece.text
        assert "Paris" in text
