"""Two models that answer in words in one mesh of processes and tabs: each answers with its own tokens, at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.state.decoder_sight import seen_as
from peer.state.generated.commands import (
    DecoderOffered,
    DecoderPlanned,
    ModelWithdrawn,
    PlanRecord,
    PlanStage,
)
from peer.state.mesh_state import MeshState
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.browsers.harness import Driver, Models, TabInBrowser, founded, launch, visit
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

OTHER: Final = "other"
PROMPT: Final = "hello, two models of the world"
TOKENS: Final = 40
CONTEXT: Final = 256


def put_other(home: Path, store: Store) -> DecoderOffered:
    """Another model of random weights in the store, of four blocks, as an owner offers it."""
    gguf = TinyModel(seed=5, blocks=4).write_gguf(home / "other.gguf")
    model = build_model(open_gguf(gguf, OTHER), "f32", store)
    units = len(decode_manifest(store.manifest_bytes(model)).units)
    return DecoderOffered(OTHER, model, units, CONTEXT, 2, "latency")


async def nothing() -> None:
    """What is done in the middle of most answers."""


async def asked(
    mesh: MeshMember,
    name: str,
    count: int = TOKENS,
    at: int = -1,
    action: Callable[[], Awaitable[None]] = nothing,
    over: set[str] | None = None,
) -> list[int]:
    """The tokens that a process gets of that model; "": the mesh's own. `action` is done when `at` of them are here;
    `over`: the peers that must have computed the last of them.
    """
    conversation = (await mesh.answering(name or None)).conversation()
    found: list[int] = []
    try:
        async for piece in conversation.complete(PROMPT, Settings(max_tokens=count, ignore_end=True)):
            if isinstance(piece, Finished) and over is not None:
                assert set(piece.route) == over
            elif isinstance(piece, Delta) and piece.token >= 0:
                found.append(piece.token)
                if len(found) == at:
                    await action()
    finally:
        conversation.close()
    return found


async def asked_by(tab: TabInBrowser, name: str, count: int = TOKENS) -> list[int]:
    """The tokens that a tab gets of that model; "": the mesh's own."""
    answer = await tab.run(f"shoal.complete({PROMPT!r}, {count}, {json.dumps(name)})")
    tokens: list[int] = answer["tokens"]
    return tokens


async def until_refused(tab: TabInBrowser) -> None:
    """Asks the further model until the tab has heard that there is none any more. Raises RuntimeError then."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            await asked_by(tab, OTHER, 1)


async def offered(mesh: MeshMember, offer: DecoderOffered) -> None:
    """Has the mesh answer with it, too."""
    await mesh.propose(offer)
    assert await mesh.view.until(
        lambda state: OTHER in state.decoders and state.decoders[OTHER].plan is not None, WITHIN_S
    )


@pytest.mark.parametrize("browser", ["firefox"])
async def test_a_tab_asks_a_further_model_beside_the_meshs_own(
    driver: Driver, harness: Path, tiny: tuple[Store, str], tmp_path: Path, browser: str
) -> None:
    store, own = tiny
    async with founded(Models(store, {"f32": own}), harness, weights="f32") as mesh:
        assert mesh.link is not None
        await mesh.until_serving(WITHIN_S)
        await offered(mesh, put_other(tmp_path, store))
        expected = {name: await asked(mesh, name) for name in ("", OTHER)}
        assert expected[""] != expected[OTHER]
        made = await visit(driver, browser)
        tab = await made.tab(mesh.link.server)
        status = await tab.join(mesh.link.url(), lends=False)
        assert status["state"] == "in", status
        both = await asyncio.gather(*(asked_by(tab, name) for name in expected))
        assert dict(zip(expected, both, strict=True)) == expected
        await mesh.propose(ModelWithdrawn(OTHER))
        with pytest.raises(RuntimeError, match=f"is offered under the name {OTHER}"):
            await until_refused(tab)
        assert await asked_by(tab, "") == expected[""]
        await made.close()


def seen(state: MeshState) -> MeshState:
    """The mesh as those see it who serve the further model."""
    return seen_as(state, OTHER)


async def placed(mesh: MeshMember, *stages: PlanStage) -> None:
    """Has the further model run there, in place of where the leader put it, and every copy held; again where the leader
    plans it anew meanwhile.
    """

    def holds(state: MeshState) -> bool:
        plan = seen(state).serving()
        return plan is not None and all(
            (stage.first, stage.stop) in seen(state).members[peer].held
            for stage in plan.stages
            for peer in (stage.primary, *stage.standbys)
        )

    def is_there(state: MeshState) -> bool:
        plan = seen(state).serving()
        return plan is not None and plan.stages == stages and holds(state)

    async with asyncio.timeout(WITHIN_S):
        while not is_there(mesh.view.state):
            assert mesh.leadership.current is not None
            version = seen(mesh.leadership.current.state).last_version + 1
            mesh.leadership.current.submit(DecoderPlanned(OTHER, PlanRecord(version, stages, 1, 1)))
            assert await mesh.view.until(
                lambda state, version=version: seen(state).last_version > version or is_there(state), WITHIN_S
            )


async def test_tabs_compute_a_further_model_and_one_is_killed_in_mid_answer(
    driver: Driver, harness: Path, two_blocks: Models, tmp_path: Path
) -> None:
    """A process, a tab of Chromium and one of Firefox; every answer as it is of the process alone."""
    store = two_blocks.store
    many = 150
    async with founded(two_blocks, harness, weights="f32") as mesh:
        assert mesh.link is not None
        # Before there are tabs: each model in one piece, on the process.
        await mesh.until_serving(WITHIN_S)
        offer = put_other(tmp_path, store)
        await offered(mesh, offer)
        expected = {name: await asked(mesh, name, many) for name in ("", OTHER)}
        assert expected[""] != expected[OTHER]
        chromium = await launch(driver, "chromium", tmp_path / "profile")
        firefox = await visit(driver, "firefox")
        tabs: dict[str, TabInBrowser] = {}
        ids: dict[str, str] = {}
        for name, browser in (("chromium", chromium), ("firefox", firefox)):
            tabs[name] = await browser.tab(mesh.link.server)
            status = await tabs[name].join(mesh.link.url(), lends=True)
            assert status["state"] == "in", status
            ids[name] = status["me"]
        assert await mesh.view.until(
            lambda state: all(state.members[peer].profile is not None for peer in ids.values()), WITHIN_S
        )
        border, mib = offer.units // 2, 1 << 20
        await placed(
            mesh,
            PlanStage(0, border, ids["chromium"], (mesh.me,), mib, mib, mib),
            PlanStage(border, offer.units, ids["firefox"], (mesh.me,), mib, mib, mib),
        )
        both = await asyncio.gather(
            asked(mesh, "", many),
            asked(mesh, OTHER, many, over=set(ids.values())),
            asked_by(tabs["firefox"], OTHER, many),
        )
        assert both == [expected[""], expected[OTHER], expected[OTHER]]

        # The tab that computes the first half is killed in the middle of an answer; both models answer on.
        both = await asyncio.gather(
            asked(mesh, "", many), asked(mesh, OTHER, many, 20, chromium.kill, {mesh.me, ids["firefox"]})
        )
        assert both == [expected[""], expected[OTHER]]
        assert await mesh.view.until(lambda state: ids["chromium"] not in state.members, WITHIN_S)
        assert await mesh.view.until(lambda state: seen(state).serving() is not None, WITHIN_S)
        assert await asked_by(tabs["firefox"], OTHER, many) == expected[OTHER]
        assert await asked_by(tabs["firefox"], "", many) == expected[""]
        await firefox.close()
