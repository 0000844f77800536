"""The page in a mesh without a model that answers in words: it computes, shows what runs, and runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from peer.api import Mesh
from peer.member.joining import Founding, found
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.runtime.graph_runtime import GraphRuntime
from peer.state.generated.commands import ModelOffered, ModelWithdrawn, RunStage
from planner.model.compose import compose
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.browsers.further_models import put_further
from tests.browsers.harness import Driver, visit
from tests.browsers.page import Page
from tests.e2e.graph_model import inputs, place, put_towers
from tests.patience import WITHIN_S

NAME = "towers"
TYPE = (  # into a field of the page, as a person does
    "((field, text) => { const { set } = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value');"
    " set.call(field, text); field.dispatchEvent(new Event('input', { bubbles: true })); })"
)


@pytest.mark.parametrize("browser", ["chromium"])
async def test_a_tab_computes_shows_and_runs_what_is_offered(
    driver: Driver, app: Path, tmp_path: Path, browser: str
) -> None:
    store = Store(tmp_path)
    model, manifest = put_towers(store)
    runtime = GraphRuntime(
        compose(manifest, store, 0, 5),
        store.blob_path(manifest.units[0].graph.sha256).parent,
        1,
        fused=manifest.fused,
    )
    promise = Founding(None, MeshOptions(0, 1, "latency", None), ServerOptions(web_app=app))
    options = PeerOptions("founder", 1 << 30, 1, "cpu", "aiortc", ("127.0.0.1",))
    made = await visit(driver, browser)
    async with found(promise, options, store, identity_from_seed(os.urandom(32))) as founder:
        assert founder.link is not None
        page = Page(await made.tab(founder.link.url(), width=1280, height=800))
        await page.until_says("No model is offered yet.", WITHIN_S)
        await page.until("document.querySelector('.lending.is-lending')")
        await founder.propose(ModelOffered(model, NAME))
        await founder.view.until(lambda state: NAME in state.offers, WITHIN_S)
        me, (there,) = founder.me, founder.view.state.members.keys() - {founder.me}
        profile = founder.view.state.members[there].profile
        assert profile is not None
        assert profile.provider == "wasm"
        assert profile.prefill_ns["ffn"] > 0
        await place(
            founder, NAME, RunStage(0, 2, there, ()), RunStage(2, 4, me, ()), RunStage(4, 5, there, ())
        )
        expected = runtime.run(inputs(0))["sum"]
        outputs = await Mesh(founder).run(NAME, inputs(0))
        np.testing.assert_allclose(
            outputs["sum"], expected, rtol=0, atol=1e-4 * float(np.abs(expected).max())
        )

        await page.until_says("units 0–1, unit 4 of towers")  # of this tab, among who is here
        await page.until_says("2 here")
        for absent in (".composer", ".talks", ".to-plan", ".to-models", "[aria-label=Settings]"):
            assert await page.run(f"document.querySelector({json.dumps(absent)})") is None, absent
        await page.until("document.querySelectorAll('.models-place textarea').length === 2")
        for at, side in enumerate(("left", "right")):
            field = f"document.querySelectorAll('.models-place textarea')[{at}]"
            await page.run(f"{TYPE}({field}, {json.dumps(json.dumps(inputs(0)[side].tolist()))})")
        await page.press("Run")
        await page.until("document.querySelector('.models-place .model-output pre')")
        await page.until_says("float32, 4 × 64")
        # A model that answers in words is offered, then a second one, and both are withdrawn; nothing is loaded anew.
        await page.run("(window.isTheSamePage = true)")
        for at, name in enumerate(("other", "zebra")):
            offer = put_further(tmp_path, store, name, seed=at)
            await founder.propose(offer)
        await page.until(
            "[...document.querySelectorAll('.model-choice option')].map((o) => o.value).join() === 'other,zebra'"
        )
        assert await page.run("document.querySelector('.model-choice select').value === 'other'")
        for absent in (".to-plan", ".models-place", ".switch[for=pin-ends]"):
            assert await page.run(f"document.querySelector({json.dumps(absent)})") is None, absent
        await page.ask("Who is there?")
        await page.until("document.querySelector('.answer[aria-busy=false] .facts')")
        assert await page.run("document.querySelector('.failed') === null")
        await founder.propose(ModelWithdrawn("zebra"))
        await page.until("document.querySelector('.model-choice') === null")
        assert await page.run("document.querySelector('.composer textarea') !== null")
        await founder.propose(ModelWithdrawn("other"))
        await page.until("document.querySelector('.composer') === null")
        await page.until_says("No model of this mesh answers in words any more: other was withdrawn.")
        await page.until("document.querySelector('.models-place')")
        assert await page.run("window.isTheSamePage === true")
        await page.sized(390, 844)
        for part in ("Mesh", "My part", "Models"):
            await page.press(part)
            assert await page.run("document.documentElement.scrollWidth <= innerWidth"), part
        await made.close()
