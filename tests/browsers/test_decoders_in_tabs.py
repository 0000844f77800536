"""Two models that answer in words in one mesh of processes and tabs: each answers with its own tokens, at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from peer.cli.offers import saved_shown
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
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
from planner.model.manifest import decode_manifest, encode_manifest
from planner.model.store import Store
from signaling.server import ServerOptions, serve
from tests.browsers.further_models import put_further
from tests.browsers.harness import Driver, Models, TabInBrowser, founded, launch, lending_tabs, visit
from tests.browsers.page import Page
from tests.browsers.voter_processes import Watch, processes
from tests.patience import WITHIN_S

OTHER: Final = "other"
PROMPT: Final = "hello, two models of the world"
TOKENS: Final = 40
LONG: Final = 200


async def asked(
    mesh: MeshMember,
    name: str,
    count: int = TOKENS,
    over: Callable[[set[str]], bool] = bool,
) -> list[int]:
    """The tokens that a process gets of that model; "": the mesh's own. `over`: what is true of the peers that
    computed the last of them.
    """
    conversation = (await mesh.answering(name or None)).conversation()
    found: list[int] = []
    try:
        async for piece in conversation.complete(PROMPT, Settings(max_tokens=count, ignore_end=True)):
            if isinstance(piece, Finished):
                assert over(set(piece.route)), piece.route
            elif isinstance(piece, Delta) and piece.token >= 0:
                found.append(piece.token)
    finally:
        conversation.close()
    return found


async def asked_by(tab: TabInBrowser, name: str, count: int = TOKENS) -> list[int]:
    """The tokens that a tab gets of that model; "": the mesh's own."""
    answer = await tab.run(f"shoal.complete({PROMPT!r}, {count}, {json.dumps(name)})")
    tokens: list[int] = answer["tokens"]
    return tokens


async def offered(mesh: MeshMember, offer: DecoderOffered) -> None:
    """Has the mesh answer with it, too."""
    await mesh.propose(offer)
    assert await mesh.view.until(
        lambda state: OTHER in state.decoders and state.decoders[OTHER].plan is not None, WITHIN_S
    )


async def test_a_person_chooses_which_model_answers(
    driver: Driver, app: Path, tiny: tuple[Store, str], tmp_path: Path
) -> None:
    """By keyboard: the choice comes with an offer, an answer says who gave it, and a withdrawal is said."""
    store, own = tiny
    select = "document.querySelector('.model-choice select')"
    async with founded(Models(store, {"f32": own}), app, weights="f32") as mesh:
        assert mesh.link is not None
        made = await visit(driver, "chromium")
        page = Page(await made.tab(mesh.link.url()))
        await page.until("document.querySelector('.pill.is-ready')")
        assert await page.run(f"{select} === null"), "one model is no choice"
        await offered(mesh, put_further(tmp_path, store, OTHER))
        await page.until(f"[...({select}?.options ?? [])].some(({{ text }}) => text === '{OTHER}')")
        await page.sized(390, 844)
        height = await page.run(f"{select}.getBoundingClientRect().height")
        assert height >= 44, "a finger finds it"
        await page.run(f"{select}.focus()")
        await page.key("ArrowDown")
        await page.until(f"{select}.value === '{OTHER}'")
        await page.ask("Who is there?")
        await page.until(f"document.querySelector('.answer-by')?.textContent === '{OTHER}'")
        await page.until("document.querySelector('.answer[aria-busy=false] .facts')")
        assert await page.run("document.querySelector('.failed') === null")
        await mesh.propose(ModelWithdrawn(OTHER))
        await page.until_says(f"{OTHER} is not offered any more: choose another model.", WITHIN_S)
        await page.run(f"{select}.focus()")
        await page.key("ArrowUp")
        await page.until(f"{select} === null")  # one is left, which the conversation has from now on
        await page.ask("And now?")
        await page.until("document.querySelectorAll('.answer[aria-busy=false] .facts').length === 2")
        assert await page.run("document.querySelectorAll('.answer-by').length === 1")
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


@pytest.mark.parametrize(
    ("source", "cuts"),
    [
        ("two_blocks", None),
        pytest.param("models", (31,), marks=pytest.mark.soak),  # all of it, half of that on a tab
    ],
)
async def test_tabs_compute_a_further_model_and_one_is_killed_in_mid_answer(
    driver: Driver,
    harness: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    source: str,
    cuts: tuple[int, ...] | None,
) -> None:
    """A process, a tab of Chromium and one of Firefox; every answer as it is of the process alone."""
    own: Models = request.getfixturevalue(source)
    store, few = own.store, 150 if cuts is None else 40
    async with founded(own, harness, weights="f32") as mesh:
        assert mesh.link is not None
        # Before there are tabs: each model in one piece, on the process.
        await mesh.until_serving(WITHIN_S)
        offer = put_further(tmp_path, store, OTHER)
        await offered(mesh, offer)
        expected = {"": await asked(mesh, "", few), OTHER: await asked(mesh, OTHER, LONG)}
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
        if cuts is not None:
            mesh.set_cuts(cuts)
            assert await mesh.view.until(
                lambda state: (plan := state.serving()) is not None and len(plan.stages) > 1, WITHIN_S
            )
        border, mib = offer.units // 2, 1 << 20
        halves = (
            PlanStage(0, border, ids["chromium"], (mesh.me,), mib, mib, mib),
            PlanStage(border, offer.units, ids["firefox"], (mesh.me,), mib, mib, mib),
        )
        await placed(mesh, *halves)
        both = await asyncio.gather(
            asked(mesh, "", few),
            asked(mesh, OTHER, LONG),
            asked_by(tabs["firefox"], OTHER, LONG),
        )
        assert both == [expected[""], expected[OTHER], expected[OTHER]]
        for name, tab in tabs.items():
            assert await tab.run(f"shoal.steps({OTHER!r})") > 0, f"{name} computed nothing"

        # The tab that computes the first half is killed while one answer follows on the other; both models answer on.
        await placed(mesh, *halves)
        killing = asyncio.ensure_future(chromium.kill())

        async def asked_on(name: str, count: int) -> None:
            while not killing.done():  # so the last one was under way
                assert await asked(mesh, name, count) == expected[name]

        await asyncio.gather(asked_on("", few), asked_on(OTHER, LONG))
        await killing
        assert await mesh.view.until(lambda state: ids["chromium"] not in state.members, WITHIN_S)
        assert await mesh.view.until(lambda state: seen(state).serving() is not None, WITHIN_S)
        assert (
            await asked(mesh, OTHER, LONG, over=lambda route: ids["chromium"] not in route) == expected[OTHER]
        )
        assert await asked_by(tabs["firefox"], OTHER, LONG) == expected[OTHER]
        assert await asked_by(tabs["firefox"], "", few) == expected[""]
        await firefox.close()


COUNTED: Final = """(() => {
  const Plain = Worker;
  const alive = new Set();
  globalThis.Worker = class extends Plain {
    constructor(url, options) {
      super(url, options);
      if (/[/]worker[-.]/.test(String(url))) alive.add(this);
    }
    terminate() {
      alive.delete(this);
      super.terminate();
    }
  };
  globalThis.computing = () => alive.size;
  return true;
})()"""  # workers that compute stages and have not ended, of those that begin from here on


@pytest.mark.parametrize("where", ["chromium", pytest.param("firefox", marks=pytest.mark.soak)])
async def test_a_tab_loads_equal_models_once(
    driver: Driver, harness: Path, tiny: tuple[Store, str], tmp_path: Path, where: str
) -> None:
    """One model under two names on the only tab that lends: one worker, answers as of each alone, and one stays as one
    goes.
    """
    store, own = tiny
    twin = "twin"
    offer = put_further(tmp_path, store, OTHER)
    manifest = decode_manifest(store.manifest_bytes(offer.model))
    same = replace(offer, name=twin, model=store.put_manifest(encode_manifest(replace(manifest, name=twin))))
    async with founded(Models(store, {"f32": own}), harness, weights="f32", memory=0) as mesh:
        assert mesh.link is not None
        browser = await visit(driver, where)
        tab = await browser.tab(mesh.link.server)
        assert await tab.run(COUNTED)
        status = await tab.join(mesh.link.url(), lends=True)
        assert status["state"] == "in", status
        await mesh.until_serving(WITHIN_S)
        await offered(mesh, offer)
        assert await mesh.view.until(lambda state: seen(state).serving() is not None, WITHIN_S)
        expected = await asked(mesh, OTHER)
        alone = await tab.run("globalThis.computing()")
        await mesh.propose(same)
        assert await mesh.view.until(
            lambda state: twin in state.decoders and seen_as(state, twin).serving() is not None, WITHIN_S
        )
        assert await tab.run("globalThis.computing()") == alone
        found = await asyncio.gather(*(asked(mesh, name) for name in (OTHER, twin, OTHER, twin)))
        assert found == [expected] * 4
        saved = await saved_shown(mesh)
        assert saved["loaded_bytes"] == sum(unit.held_bytes("wide") for unit in manifest.planner_units())
        await mesh.propose(ModelWithdrawn(OTHER))
        assert await mesh.view.until(lambda state: OTHER not in state.decoders, WITHIN_S)
        assert await asked(mesh, twin) == expected
        assert await tab.run("globalThis.computing()") == alone
        await mesh.propose(ModelWithdrawn(twin))
        async with asyncio.timeout(WITHIN_S):
            while await tab.run("globalThis.computing()") != alone - 1:  # noqa: ASYNC110 - a page tells nobody
                await asyncio.sleep(0.05)
        await browser.close()


def doubled(state: MeshState, peers: set[str]) -> bool:
    """Each of `peers` holds every stage of the further model."""
    plan = seen(state).serving()
    return plan is not None and all(
        peers == {stage.primary, *stage.standbys}
        and all((stage.first, stage.stop) in seen(state).members[peer].held for peer in peers)
        for stage in plan.stages
    )


@pytest.mark.soak
async def test_a_tab_that_coordinates_plans_a_further_model(
    driver: Driver, harness: Path, tiny: tuple[Store, str], tmp_path: Path
) -> None:
    """The founder introduces and offers; it is killed, and of the tabs that are left one pauses and comes back."""
    store, model = tiny
    other = put_further(tmp_path, store, OTHER).model
    async with (
        serve(ServerOptions(web_app=harness), store) as meeting,
        processes(store.root, tmp_path) as others,
    ):
        link = await others.start("founder", "found", model, meeting.url, "0", other)
        opened = await lending_tabs(driver, meeting.url, link, tmp_path)
        asks = PeerOptions("asker", 0, 1, "cpu", "aiortc", ("127.0.0.1",))
        async with join(link, asks, store) as mesh:
            tabs = set(opened)
            watch = Watch(mesh)
            await watch.until(lambda: watch.whole(3), "three voters")
            assert await mesh.view.until(lambda state: doubled(state, tabs), WITHIN_S)
            expected = {name: await asked(mesh, name) for name in ("", OTHER)}
            lost = mesh.view.leader
            assert lost is not None
            assert lost not in opened
            await others.kill("founder")
            await watch.until(lambda: watch.led_without(lost), "a leader without the founder")
            leader = mesh.view.leader
            assert leader in opened
            (paused,) = tabs - {leader}
            await opened[paused][1].run("shoal.pause()")
            assert await mesh.view.until(lambda state: doubled(state, {leader}), WITHIN_S)
            before = seen(mesh.view.state).last_version
            assert await asked(mesh, OTHER) == expected[OTHER]
            assert mesh.view.leader == leader
            await opened[paused][1].run("shoal.resume()")
            assert await mesh.view.until(lambda state: doubled(state, tabs), WITHIN_S)
            assert seen(mesh.view.state).last_version > before
            both = await asyncio.gather(*(asked(mesh, name) for name in expected))
            assert both == list(expected.values())
        for made, _ in opened.values():
            await made.close()
