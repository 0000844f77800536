"""A decoder family that an importer adds alone answers over a process and a tab, as its definition says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peer.model.tokenizer import text_of
from planner.importers.gguf import open_gguf
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.browsers.harness import Driver, Models, founded, tokens_of, visit
from tests.e2e.command import running
from tests.patience import WITHIN_S
from tests.planner.made_up_family import TowerModel, import_tower, reference_tokens
from tests.planner.tiny_models import TinyModel

PROMPT = "hello, towers of the world"
TOKENS = 24
CUT = 2  # one block on one side, two on the other
SEED = 15  # of weights with which no two tokens are nearly as likely, and the answer has many


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_family_of_an_importer_answers_over_a_process_and_a_tab(
    driver: Driver, harness: Path, tmp_path: Path, browser: str
) -> None:
    tokenizer = open_gguf(TinyModel().write_gguf(tmp_path / "tiny.gguf"), "tiny").tokenizer
    model, store = TowerModel(tokenizer, SEED), Store(tmp_path / "store")
    model_id = import_tower(model, "f32", store)
    prompt = text_of(store, decode_manifest(store.manifest_bytes(model_id))).encode(PROMPT)
    expected = reference_tokens(model, list(prompt), TOKENS)
    assert len(set(expected)) > TOKENS // 2, "an answer that says something"
    models = Models(store, {"f32": model_id})
    async with founded(models, harness, weights="f32", cuts=(CUT,), memory=0) as mesh:
        assert mesh.link is not None
        home = tmp_path / "process"
        home.mkdir()
        words = ["join", mesh.link.url(), "--store", home / "store", "--memory", "1GiB"]
        with running(home, *words, "--bind", "127.0.0.1"):
            made = await visit(driver, browser)
            tab = await made.tab(mesh.link.server)
            measured = f"shoal.start({json.dumps(mesh.link.url())}, true, {1 << 30}, true)"
            status = await tab.run(measured)
            assert status["state"] == "in", status
            await mesh.until_serving(WITHIN_S)
            plan = mesh.view.state.plan
            assert plan is not None
            assert len({stage.primary for stage in plan.stages} - {mesh.me}) == 2
            assert await tokens_of(mesh, PROMPT, TOKENS) == expected
            answer = await tab.run(f"shoal.complete({PROMPT!r}, {TOKENS})")
            assert answer["tokens"] == expected
            await made.close()
