"""Peers whose arithmetic is of two classes in one mesh: what checks say, and what an answer tells after a takeover.

The other class is one for real: its peer multiplies with activations that are not rounded, so that its results are as
far from the others' as those of a processor that rounds to the other side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peer.member import lending
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.runtime.stage_runtime import StageRuntime
from peer.session.evidence import SAME
from peer.session.seat import Run_
from peer.stage import unit_host
from peer.state.generated.commands import FairnessChosen, Profile
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.state.protection import STANDARD
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.browsers.numerics import Cut
from tests.e2e.real_mesh import CONTEXT, PLEDGE, Models, options

WITHIN_S = 120.0
TOKENS = 24
BLOCKS = 4  # of the real model: one that multiplies plainly is slow
BORDER = 5
STAGES = ((0, BORDER), (BORDER, 2 * BLOCKS + 2))
ONE = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755"
OTHER = "cpu/avx2/rows-1/0123456789abcdef"
OF_OTHER = "other"  # in the name of a peer


class Classes:
    """Every peer says ONE, but those with OF_OTHER in their name: these say OTHER, and compute so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain = set[int]()  # servings that do not round
        self._making = threading.local()
        profile_of, make, make_shard = (
            lending.profile_of,
            unit_host.Serving._make,
            vars(unit_host)["make_shard"],
        )

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


def before_crossing(end: Finished, classes: Mapping[str, str]) -> list[str]:
    """The classes of both stages when the first token came. What the end tells of crossings leads from these, one
    after the other, to those of its route; what moved before the first token is no crossing.
    """
    now = [classes[peer] for peer in end.route]
    for each in reversed(end.crossed):
        changed = [
            stage for stage, (first, stop) in enumerate(STAGES) if each.first < stop and first < each.stop
        ]
        assert all(now[stage] == each.after for stage in changed)
        for stage in changed:
            now[stage] = each.before
    return now


@pytest.fixture
def models(smollm2_gguf: Path, tmp_path: Path) -> Models:
    """Some blocks of the real model: it says nothing that makes sense, by the same arithmetic."""
    store = Store(tmp_path / "store")
    return Models(store, {"8bit": build_model(Cut(open_gguf(smollm2_gguf), BLOCKS), "8bit", store)})


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

        gone = False

        async def answered(*, lose: bool) -> Finished:
            """`lose`: the first stage's peer is killed while it answers, and is `gone`."""
            nonlocal gone
            talk = founder.conversation()
            count, end = 0, None
            try:
                async for piece in talk.complete("The sea is", Settings(max_tokens=TOKENS, ignore_end=True)):
                    if isinstance(piece, Delta) and piece.token >= 0:
                        count += 1
                        if lose and not gone and count >= TOKENS // 3 and talk.route[0] == first.me:
                            gone = True
                            await first.close("gone")  # as a process that is killed: nothing is handed over
                    if isinstance(piece, Finished):
                        end = piece
            finally:
                talk.close()
            assert end is not None
            assert end.tokens == TOKENS
            return end

        classes = {first.me: ONE, second.me: OTHER}
        judges = [peer.accounts.checks for peer in (first, second) if peer.accounts is not None]
        while not all(judge.made.same for judge in judges):  # checks wait for idle peers
            quiet = await answered(lose=False)
            before_crossing(quiet, classes)  # on a busy machine a late stage moves for real
        assert all(not (judge.made.differs or judge.made.disputed) for judge in judges)
        assert max(judge.judge.worst for judge in judges) > SAME, "the classes differ for real"
        assert not view.state.fairness.findings
        lost = await answered(lose=True)
        while not gone:
            lost = await answered(lose=True)
        assert lost.route == (second.me, second.me)
        before_crossing(lost, classes)
        last = lost.crossed[-1]
        assert (last.first, last.before, last.after) == (0, ONE, OTHER)
        assert last.stop >= BORDER
        assert TOKENS // 3 <= last.tokens < TOKENS
        assert not view.state.fairness.findings
