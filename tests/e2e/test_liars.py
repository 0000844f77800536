"""Peers of a real mesh that give wrong results are found, by checks of answers or by a known one; the mesh goes on."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peer.audit.canaries import Due, Times
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Disturbance, MeshOptions
from peer.origin.answer_stream import Delta, Settings
from peer.runtime.stage_runtime import StageRuntime, Step
from peer.session.routes import holders
from peer.stage import unit_host
from peer.state.decoder_sight import seen_as
from peer.state.decoders import mark_of
from peer.state.generated.commands import DecoderOffered, FairnessChosen
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.state.protection import STANDARD
from peer.validation.world.wrong_results import Lie, LyingRuntime
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.real_mesh import CONTEXT, PLEDGE, Models, options, until
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

TOKENS = 24
OTHER = "other"


def liars_mark() -> None:
    """The runtime of the peer that lies is told by it."""


class OneLies(LyingRuntime):
    lie = Lie.SLIGHTLY

    def __init__(self, *args: Any, **named: Any) -> None:
        self._lies = named.get("before_call") is liars_mark
        super().__init__(*args, **named)

    def _finish(self, step: Step, result: Any, logits: Any) -> None:
        StageRuntime._finish(self, step, result, logits) if not self._lies else super()._finish(
            step, result, logits
        )


async def answer(mesh: MeshMember) -> int:
    talk = mesh.conversation()
    try:
        said = talk.complete("The sea is", Settings(max_tokens=TOKENS, ignore_end=True))
        return len([piece async for piece in said if isinstance(piece, Delta)])
    finally:
        talk.close()


async def test_a_peer_whose_results_are_slightly_wrong_is_convicted_by_two_and_does_without_its_earnings(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_host, "StageRuntime", OneLies)
    protection = replace(STANDARD, redundancy_milli=2000)
    fairness = FairnessChosen("open", 1, 200_000)
    wishes = MeshOptions(CONTEXT, 2, "latency", (30,), protection, fairness)
    promise = Founding(models.ids["f32"], wishes, ServerOptions())
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(32))
        founder = await stack.enter_async_context(found(promise, options("founder", 0), models.store, key))
        assert founder.link is not None
        meshes = []
        for number in range(3):
            mine = options(f"peer{number}", PLEDGE)
            if (
                number == 0
            ):  # of the first stage: at the last one, results that draw the same token count as the same
                mine = replace(mine, disturbance=Disturbance(liars_mark, lambda engine: engine))
            joining = join(founder.link.url(), mine, models.store, compute=True)
            meshes.append(await stack.enter_async_context(joining))
        liar = meshes[0].me
        view = founder.view
        assert await view.until(
            lambda s: (
                s.plan is not None and route_of(s.plan)[0] == liar and all(x.standbys for x in s.plan.stages)
            ),
            WITHIN_S,
        )
        asked = 0
        while liar not in view.state.fairness.quarantined and asked < 1000:
            asked += await answer(founder)
        assert await view.until(lambda s: liar in s.fairness.quarantined, WITHIN_S)
        verdict = view.state.fairness.quarantined[liar]
        assert len(set(verdict.by)) == 2
        assert liar not in verdict.by
        assert {*view.state.fairness.quarantined} == {liar}
        await founder.until_serving(WITHIN_S)
        assert await answer(founder) >= TOKENS
        assert liar not in (route_of(view.state.plan) if view.state.plan is not None else ())
        ledger = view.state.ledger
        assert ledger.balances.get(liar) is None or ledger.balances[liar].earned == 0
        lost = verdict.lost_milli
        assert sum(b.earned for b in ledger.balances.values()) + lost == sum(
            b.spent for b in ledger.balances.values()
        )


class OneIsNoisy(OneLies):
    lie = Lie.NOISE


AT_ONCE = Times((0.0, 0.0), (3600.0, 3600.0))
MOST_LOOKS = 6  # an answer may be over before anything of it can be checked


async def test_a_standby_that_lies_is_found_by_a_known_answer_before_anybody_needs_it(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_host, "StageRuntime", OneIsNoisy)
    protection = replace(STANDARD, redundancy_milli=2000)
    wishes = MeshOptions(CONTEXT, 2, "latency", (30,), protection)
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(32))
        promise = Founding(models.ids["8bit"], wishes, ServerOptions())
        founder = await stack.enter_async_context(found(promise, options("founder", 0), models.store, key))
        assert founder.link is not None
        meshes = []
        for number in range(3):
            mine = options(f"peer{number}", PLEDGE)
            if number == 2:
                mine = replace(mine, disturbance=Disturbance(liars_mark, lambda engine: engine))
            joining = join(founder.link.url(), mine, models.store, compute=True)
            meshes.append(await stack.enter_async_context(joining))
        liar, view = meshes[2].me, founder.view
        assert await view.until(
            lambda s: (
                s.plan is not None
                and s.proposed is None
                and all(x.standbys for x in s.plan.stages)
                and all((x.first, x.stop) in s.members[p].held for x in s.plan.stages for p in x.standbys)
                and any(liar in (x.primary, *x.standbys) for x in s.plan.stages)
            ),
            WITHIN_S,
        )
        assert founder.accounts is not None
        canaries = founder.canaries
        assert canaries is not None
        honest = {mesh.me for mesh in meshes[:2]}
        for seed in range(MOST_LOOKS):
            canaries.due = Due(AT_ONCE, random.Random(seed))
            canaries.due.look(0.0, True, ())  # it leads already, and everybody comes now
            await canaries.look()
            if liar in view.state.fairness.quarantined and honest <= canaries.tried.keys():
                break
        assert await view.until(lambda s: liar in s.fairness.quarantined, WITHIN_S)
        assert {*view.state.fairness.quarantined} == {liar}
        assert len(set(view.state.fairness.quarantined[liar].by)) == 2
        assert not {canaries.tried.get(peer) for peer in honest} & {"differs", "disputed"}


class OneOfThemIsNoisy(LyingRuntime):
    """Whoever `liar` marks gives noise; nobody before that is said."""

    lie = Lie.NOISE
    liar: Callable[[], None] | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        self._mark = named.get("before_call")
        super().__init__(*args, **named)

    def _finish(self, step: Step, result: Any, logits: Any) -> None:
        if self._mark is not None and self._mark is OneOfThemIsNoisy.liar:
            super()._finish(step, result, logits)
        else:
            StageRuntime._finish(self, step, result, logits)


async def test_a_further_model_is_checked_and_accounted_as_the_own_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_host, "StageRuntime", OneOfThemIsNoisy)
    monkeypatch.setattr(OneOfThemIsNoisy, "liar", None)
    store = Store(tmp_path / "store")
    own, other = (
        build_model(open_gguf(TinyModel(seed=seed).write_gguf(tmp_path / f"{name}.gguf"), name), "f32", store)
        for seed, name in enumerate(("own", OTHER))
    )
    protection = replace(STANDARD, redundancy_milli=2000)
    wishes = MeshOptions(CONTEXT, 2, "latency", None, protection, FairnessChosen("open", 1, 200_000))
    async with AsyncExitStack() as stack:
        key = identity_from_seed(os.urandom(32))
        promise = Founding(own, wishes, ServerOptions())
        founder = await stack.enter_async_context(found(promise, options("founder", 0), store, key))
        assert founder.link is not None
        view, marks = founder.view, {}
        for number in range(3):
            mark = partial(nobody_lies, number)
            mine = replace(
                options(f"peer{number}", PLEDGE), disturbance=Disturbance(mark, lambda engine: engine)
            )
            peer = await stack.enter_async_context(join(founder.link.url(), mine, store, compute=True))
            marks[peer.me] = mark
        units = len(decode_manifest(store.manifest_bytes(other)).units)
        await founder.propose(DecoderOffered(OTHER, other, units, CONTEXT, 2, "latency"))

        def doubled(state: MeshState) -> bool:
            seen = seen_as(state, OTHER)
            plan = seen.serving()
            return plan is not None and all(
                {*stage.standbys} & {*holders(seen, stage)} for stage in plan.stages
            )

        assert await view.until(doubled, WITHIN_S)
        mark = mark_of(OTHER, other).hex()
        asked = await founder.answering(OTHER)

        async def answered() -> int:
            talk = asked.conversation()
            try:
                said = talk.complete("The sea is", Settings(max_tokens=TOKENS, ignore_end=True))
                return len([piece async for piece in said if isinstance(piece, Delta)])
            finally:
                talk.close()

        # Everybody is honest: what was computed is paid, and whoever the leader tries passes.
        audit = founder.parts.decoders.named(OTHER).audit
        assert audit is not None
        for seed in range(MOST_LOOKS):
            audit.canaries.due = Due(AT_ONCE, random.Random(seed))
            audit.canaries.due.look(0.0, True, ())
            await audit.canaries.look()
            if "same" in audit.canaries.tried.values():
                break
        assert "same" in audit.canaries.tried.values()
        assert not {"differs", "disputed"} & {*audit.canaries.tried.values()}
        assert await answered() >= TOKENS
        assert await view.until(lambda s: any(each.startswith(mark) for each in s.ledger.sessions), WITHIN_S)
        plan = seen_as(view.state, OTHER).serving()
        assert plan is not None
        liar = plan.stages[0].primary
        assert view.state.ledger.balances[liar].earned > 0
        assert not view.state.fairness.findings

        monkeypatch.setattr(OneOfThemIsNoisy, "liar", marks[liar])
        tokens = 0
        while liar not in view.state.fairness.quarantined and tokens < 1000:
            tokens += await answered()
        assert await view.until(lambda s: liar in s.fairness.quarantined, WITHIN_S)
        verdict = view.state.fairness.quarantined[liar]
        assert {*view.state.fairness.quarantined} == {liar}
        assert len({*verdict.by}) == 2
        assert all(session.startswith(mark) for session in verdict.sessions)
        checks = audit.checks
        await until(lambda: checks.got.differs >= 2)  # the second verdict may be in the log before it is told

        def moved(state: MeshState) -> bool:
            found = seen_as(state, OTHER).serving()
            return found is not None and liar not in route_of(found)

        assert await view.until(moved, WITHIN_S)
        assert await answered() >= TOKENS


def nobody_lies(_: int) -> None:
    """A mark of one peer: `OneOfThemIsNoisy.liar` says whose results are wrong."""
