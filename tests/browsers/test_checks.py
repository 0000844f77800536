"""A tab checks steps of others: honest ones pass, a process that lies is found, and its word counts as one of two."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.origin.answer_stream import Delta, Settings
from peer.stage import unit_host
from peer.state.generated.commands import FairnessChosen
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.state.protection import STANDARD
from peer.validation.world.wrong_results import Lie, LyingRuntime
from peer.wire.generated.requests import STATUS
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.browsers.harness import Driver, visit
from tests.patience import WITHIN_S

CUT = 3  # of six units
TOKENS = 12
ASKED = 40  # answers at most, until enough of them was checked
CHECKED = 3  # honest checks of each asker
TWICE = replace(STANDARD, redundancy_milli=2000)  # copies of each stage
EACH_TOKEN = FairnessChosen("open", 2_000_000, 1_000_000)


class LiesLater(LyingRuntime):
    lie = Lie.NOISE
    begun = False

    def lies(self) -> bool:
        return LiesLater.begun


def doubled(state: MeshState, liar: str, tab: str) -> bool:
    """Both hold both stages, and the liar serves one."""
    plan = state.plan
    runs = {(stage.first, stage.stop) for stage in plan.stages} if plan is not None else set()
    held = [set(state.members[peer].held) for peer in (liar, tab) if peer in state.members]
    return (
        plan is not None
        and state.proposed is None
        and liar in route_of(plan)
        and len(held) == 2
        and all(runs <= each for each in held)
    )


async def ask(mesh: MeshMember) -> None:
    talk = mesh.conversation()
    try:
        said = talk.complete("The sea is", Settings(max_tokens=TOKENS, ignore_end=True))
        assert len([piece async for piece in said if isinstance(piece, Delta)]) >= TOKENS
    finally:
        talk.close()


async def test_a_tab_finds_a_process_that_lies_and_no_honest_one(
    driver: Driver, harness: Path, tiny: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_host, "StageRuntime", LiesLater)
    monkeypatch.setattr(LiesLater, "begun", False)
    store, model = tiny
    wishes = MeshOptions(128, 4, "latency", (CUT,), TWICE, EACH_TOKEN)
    promise = Founding(model, wishes, ServerOptions(web_app=harness))
    key = identity_from_seed(os.urandom(32))
    asker = PeerOptions("founder", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
    lender = PeerOptions("liar", 1 << 30, 1, "cpu", "aiortc", ("127.0.0.1",))
    async with (
        found(promise, asker, store, key) as founder,
        join(founder.link.url() if founder.link is not None else "", lender, store, compute=True) as other,
    ):
        assert founder.link is not None
        opened = await visit(driver, "chromium")
        page = await opened.tab(founder.link.server)
        status = await page.join(founder.link.url(), lends=True)
        assert status["state"] == "in", status
        liar, tab, view = other.me, status["me"], founder.view
        assert await view.until(lambda s: doubled(s, liar, tab), WITHIN_S)
        assert founder.accounts is not None
        got = founder.accounts.checks.got

        async def by_founder() -> None:
            await ask(founder)

        async def by_tab() -> None:
            await page.run(f"shoal.complete('The sea is', {TOKENS})")

        async def made(verdict: str) -> int:
            """Checks of the tab, for itself and for others, as it says."""
            said = await founder.links.call(tab, STATUS, None)
            assert said.checks is not None
            return int(getattr(said.checks.made, verdict))

        for asks in (
            by_founder,
            by_tab,
        ):  # of what the liar still computes nobody but the tab can be the judge
            before = await made("same")
            for _ in range(ASKED):
                await asks()
                if await made("same") >= before + CHECKED:
                    break
            assert await made("same") >= before + CHECKED
        assert (await made("differs"), got.differs, view.state.fairness.findings) == (0, 0, ())

        LiesLater.begun = True
        for asks, convicted in ((by_tab, False), (by_founder, True)):

            def told(state: MeshState, convicted: bool = convicted) -> bool:
                found = state.fairness
                return liar in found.quarantined if convicted else any(x.by == tab for x in found.findings)

            for _ in range(ASKED):
                await asks()
                if told(view.state):
                    break
            assert await view.until(told, WITHIN_S)
        assert view.state.fairness.quarantined.keys() == {liar}
        assert set(view.state.fairness.quarantined[liar].by) == {tab, view.me}
        await opened.close()
