"""A mixture of experts over a process and a tab, and Gemma 3 270M over two processes and a tab, by real browsers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peer.model.tokenizer import text_of
from peer.session.sampling import GREEDY
from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.browsers.harness import Driver, Models, founded, tokens_of, visit
from tests.e2e.command import run, running
from tests.e2e.unsplit import Unsplit
from tests.patience import WITHIN_S
from tests.planner.importers.families.checkpoints import load, write_folder
from tests.planner.tiny_models import TinyModel

PROMPT = "hello, experts of the world"
TOKENS = 24
CUT = 3  # a block on one side, others and the head on the other side


def mixture(root: Path, case: str) -> Models:
    """A random mixture, 2 experts chosen, with a tokenizer of bytes, float32: the same everywhere."""
    checkpoint = load(case).but(vocab_size=TinyModel().vocab, max_position_embeddings=512)
    folder = write_folder(checkpoint, root / "mixture")
    TinyModel().write_tokenizer(folder)
    store = Store(root / "store")
    return Models(store, {"f32": build_model(open_safetensors(folder, "mixture"), "f32", store)})


@pytest.mark.parametrize(
    ("case", "browser"),
    [
        ("deepseek-v2-lite", "chromium"),
        pytest.param("mixtral", "chromium", marks=pytest.mark.soak),
        pytest.param("mixtral", "firefox", marks=pytest.mark.soak),
        pytest.param("gpt-oss", "chromium", marks=pytest.mark.soak),
    ],
)
async def test_a_mixture_answers_over_a_process_and_a_tab_as_unsplit(
    driver: Driver, harness: Path, tmp_path: Path, case: str, browser: str
) -> None:
    models = mixture(tmp_path, case)
    manifest = decode_manifest(models.store.manifest_bytes(models.ids["f32"]))
    prompt = list(text_of(models.store, manifest).encode(PROMPT))
    expected = Unsplit(models, "f32").answer(prompt, TOKENS, GREEDY)
    assert len(set(expected)) > TOKENS // 3, "an answer that says something"
    async with founded(models, harness, weights="f32", cuts=(CUT,), memory=0) as mesh:
        assert mesh.link is not None
        home = tmp_path / "process"
        home.mkdir()
        words = ["join", mesh.link.url(), "--store", home / "store", "--memory", "1GiB"]
        with running(home, *words, "--bind", "127.0.0.1"):
            made = await visit(driver, browser)
            tab = await made.tab(mesh.link.server)
            status = await tab.run(f"shoal.start({json.dumps(mesh.link.url())}, true, {1 << 30}, true)")
            assert status["state"] == "in", status
            await mesh.until_serving(WITHIN_S)
            plan = mesh.view.state.plan
            assert plan is not None
            assert [(stage.first, stage.stop) for stage in plan.stages] == [
                (0, CUT),
                (CUT, len(manifest.units)),
            ]
            assert len({stage.primary for stage in plan.stages} - {mesh.me}) == 2
            assert await tokens_of(mesh, PROMPT, TOKENS) == expected
            answer = await tab.run(f"shoal.complete({PROMPT!r}, {TOKENS})")
            assert answer["tokens"] == expected
            await made.close()


@pytest.mark.soak
def test_gemma_answers_over_two_processes_and_a_tab(gemma3_gguf: Path, tmp_path: Path) -> None:
    """`shoal demo`, as a person types it; three stages, one of them in the tab."""
    words = ("demo", gemma3_gguf, "--store", tmp_path / "store", "--peers", 3, "--browsers", "chromium")
    done = run(tmp_path, *words, "--headless", "--once", within_s=20 * WITHIN_S)
    assert done.status == 0, done.err
    assert re.search(r"(?m)^Chromium .*MiB", done.out), done.out
    assert re.search(r"\[120 tokens, .* per second, .*; 3 stages\]", done.err + done.out), done.err
    assert "France" in done.out
