"""`shoal analyze`: a model of the store in lines, as JSON and as a page, with teams of described peers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peer.cli.main import main
from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.model.store import Store
from tests.e2e.graph_model import put_towers
from tests.planner.importers.families.checkpoints import load, write_folder

CLUSTER = str(Path(__file__).parents[4] / "examples" / "cluster.json")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder of models, the ids of one that answers in words and of one of inputs and outputs."""
    root = tmp_path_factory.mktemp("analyze")
    store = Store(root / "store")
    words = build_model(
        open_safetensors(write_folder(load("llama"), root / "folder"), "words"), "8bit", store
    )
    return store.root, words, put_towers(store)[0]


def test_a_model_is_told_drawn_and_given_to_programs(
    stored: tuple[Path, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, words, towers = stored
    page = tmp_path / "page.html"
    given = ["--store", str(root), "--on", CLUSTER, "--html", str(page)]
    assert main(["analyze", words, *given]) == 0
    told = capsys.readouterr()
    assert "heads (2)" in told.out
    assert "team of" in told.out
    assert str(page) in told.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["analyze", words, "--store", str(root), "--on", CLUSTER, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {team["kind"] for team in found["teams"]} == {"attn", "ffn", "head"}
    assert found["bytes"] == sum(unit["bytes"] for unit in found["units"])
    assert main(["analyze", towers, "--store", str(root)]) == 0
    assert "only units of decoders are cut" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "why"),
    [(["--on", "nowhere.json"], "nowhere.json"), (["--html", "/nowhere/page.html"], "can be written")],
)
def test_what_cannot_be_read_or_written_is_said(
    stored: tuple[Path, str, str], capsys: pytest.CaptureFixture[str], more: list[str], why: str
) -> None:
    root, words, _ = stored
    assert main(["analyze", words, "--store", str(root), *more]) != 0
    assert why in capsys.readouterr().err
