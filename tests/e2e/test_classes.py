"""Peers whose arithmetic is of two classes in one mesh: what checks say, and what an answer tells after a takeover.

The other class is one for real: its peer multiplies with activations that are not rounded, so that its results are as
far from the others' as those of a processor that rounds to the other side.
"""

from __future__ import annotations

import os
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from peer.member import lending
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.origin.arithmetic_changes import Crossing
from peer.runtime.stage_runtime import StageRuntime
from peer.session.evidence import SAME
from peer.session.seat import Run_
from peer.stage import unit_host
from peer.state.generated.commands import FairnessChosen, Profile
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.state.protection import STANDARD
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import CONTEXT, PLEDGE, Models, options

WITHIN_S = 120.0
TOKENS = 24
BORDER = 30
ONE = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755"
OTHER = "cpu/avx2/rows-1/0123456789abcdef"
OF_OTHER = "other"  # in the name of a peer


class Classes:
    """Every peer says ONE, but those with OF_OTHER in their name: these say OTHER, and compute so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain = set[int]()  # servings that do not round
        self._making = threading.local()
        profile_of, make, make_shard = lending.profile_of, unit_host.Serving._make, unit_host.make_shard

        def saying(of: Any, times: Any) -> Profile:
            arithmetic = OTHER if OF_OTHER in of.name else ONE
            return replace(profile_of(of, times), arithmetic=arithmetic)

        def making(itself: unit_host.Serving, run: Run_) -> StageRuntime:
            self._making.plain = id(itself) in self.plain
            try:
                return make(itself, run)
            finally:
                self._making.plain = False

        def sharding(*given: Any, exact: bool = False, **named: Any) -> Any:
            return make_shard(*given, exact=exact or getattr(self._making, "plain", False), **named)

        begin = lending.Lending.begin

        def beginning(itself: lending.Lending, fetcher: Any) -> None:
            begin(itself, fetcher)
            if OF_OTHER in itself.options.name:
                self.plain.add(id(itself._parts.stage.units))

        monkeypatch.setattr(lending, "profile_of", saying)
        monkeypatch.setattr(unit_host.Serving, "_make", making)
        monkeypatch.setattr(unit_host, "make_shard", sharding)
        monkeypatch.setattr(lending.Lending, "begin", beginning)


def promise(models: Models, checks_ppm: int) -> Founding:
    protection = replace(STANDARD, redundancy_milli=2000)
    fairness = FairnessChosen("open", 1_000_000, checks_ppm)
    wishes = MeshOptions(CONTEXT, 2, "latency", (BORDER,), protection, fairness)
    return Founding(models.ids["8bit"], wishes, ServerOptions())


async def joined(stack: AsyncExitStack, founder: MeshMember, models: Models, *names: str) -> list[MeshMember]:
    assert founder.link is not None
    meshes = []
    for name in names:
        joining = join(founder.link.url(), options(name, PLEDGE), models.store, compute=True)
        meshes.append(await stack.enter_async_context(joining))
    return meshes


def doubled(state: MeshState) -> bool:
    """Every stage of the plan that serves has a standby that is ready, and nothing is about to change."""
    plan = state.serving()
    return (
        plan is not None
        and state.proposed is None
        and all(stage.standbys for stage in plan.stages)
        and all((s.first, s.stop) in state.members[p].held for s in plan.stages for p in s.standbys)
    )


async def test_a_standby_of_another_class_takes_over_and_the_answer_says_so(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    Classes(monkeypatch)
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(32))
        founding = found(promise(models, 1_000_000), options("founder", 0), models.store, key)
        founder = await stack.enter_async_context(founding)
        first, second = await joined(stack, founder, models, "first", f"second {OF_OTHER}")
        view = founder.view
        assert await view.until(doubled, WITHIN_S)
        plan = view.state.plan
        assert plan is not None
        assert route_of(plan) == (first.me, second.me)
        said = [line for line in plan.why if "other arithmetic" in line]
        assert len(said) == 1
        assert "after a takeover wording may differ" in said[0]

        async def answered(*, lose: bool) -> tuple[Finished, tuple[str, ...]]:
            """The end of an answer, and the peers that made its first token."""
            talk = founder.conversation()
            count, end = 0, None
            began: tuple[str, ...] = ()
            try:
                async for piece in talk.complete("The sea is", Settings(max_tokens=TOKENS, ignore_end=True)):
                    if isinstance(piece, Delta) and piece.token >= 0:
                        count += 1
                        began = began or talk.route
                        if lose and count == TOKENS // 3:
                            await first.close("gone")  # as a process that is killed: nothing is handed over
                    if isinstance(piece, Finished):
                        end = piece
            finally:
                talk.close()
            assert end is not None
            assert end.tokens == TOKENS
            return end, began

        judges = [peer.accounts.checks for peer in (first, second) if peer.accounts is not None]
        stayed = False  # on a busy machine a stage may be late, and its standby takes over for real
        while not (stayed and all(judge.made.same for judge in judges)):  # checks wait for idle peers
            serving = view.state.serving()
            assert serving is not None
            quiet, began = await answered(lose=False)  # what moves before its first token is no crossing
            moves = sum(now != before for now, before in zip(quiet.route, began, strict=True))
            assert len(quiet.crossed) >= moves
            assert (len(quiet.crossed) - moves) % 2 == 0, "each crossing moves one stage, away or back"
            stayed = stayed or (quiet.crossed == () and began == route_of(serving))
        assert all(not (judge.made.differs or judge.made.disputed) for judge in judges)
        assert max(judge.judge.worst for judge in judges) > SAME, "the classes differ for real"
        assert not view.state.fairness.findings
        lost, _ = await answered(lose=True)
        assert len(lost.crossed) == 1
        (crossing,) = lost.crossed
        assert crossing == Crossing(crossing.tokens, 0, BORDER, ONE, OTHER)
        assert TOKENS // 3 <= crossing.tokens < TOKENS
        assert not view.state.fairness.findings
