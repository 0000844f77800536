"""A peer that computes slower while it answers is relieved, and its answers move in the middle, token for token."""

from __future__ import annotations

import time

import pytest

from peer.coordination import rebalance
from peer.member.peer_options import Disturbance
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from peer.runtime import slowdown
from peer.session.sampling import Sampling
from peer.stage import slowdown_reports
from peer.state.plan_record import route_of
from tests.e2e.real_mesh import CONTEXT, Start, tokens_of
from tests.patience import WITHIN_S

PEERS = 3
SLOW_S = 1.0  # of every call of a slow peer's model: many times what it takes on a busy machine, too
QUICK_S = 0.25  # between looks, so that the test is short
DRAWN = Sampling(temperature=0.8, seed=5)
MORE = 8  # tokens after the move


async def test_a_running_answer_leaves_a_peer_that_became_slower(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (slowdown, "CHECK_S"),
        (slowdown_reports, "CHECK_S"),
        (rebalance, "LOOK_S"),
        (rebalance, "REST_S"),
    ):
        monkeypatch.setattr(module, name, QUICK_S)
    slow: set[str] = set()

    def disturbed(name: str) -> Disturbance:
        return Disturbance(lambda: time.sleep(SLOW_S) if name in slow else None, lambda engine: engine)

    async with start(None, PEERS, sessions=2, disturbed=disturbed) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        assert await founder.view.until(
            lambda state: len([m for m in state.members.values() if m.profile]) == PEERS, WITHIN_S
        )
        by_peer = {mesh.me: mesh for mesh in meshes}
        prompt = founder.text.encode_chat([Message("user", "Tell me about the history of bridges.")])
        talk, got, left = founder.conversation(), [], MORE
        victim = ""
        async for piece in talk.tokens(prompt, Settings(DRAWN, CONTEXT - len(prompt), ignore_end=True)):
            if not isinstance(piece, Delta) or piece.token < 0:
                continue
            got.append(piece.token)
            first = by_peer[talk.route[0]]
            if not victim and first.stage.units.pacing.learned:
                victim = first.me
                slow.add(founder.view.state.members[victim].name)
            if victim and victim not in talk.route:
                left -= 1
            if not left:
                break
        talk.stop()
        assert not left, "the answer came to its end before it had left the slow peer"
        plan = founder.view.state.plan
        assert plan is not None
        assert victim not in route_of(plan)
        assert victim in founder.view.state.members, "it was relieved, not lost"
        assert got == await tokens_of(founder, prompt, Settings(DRAWN, len(got), ignore_end=True))
        talk.close()
