"""A mixture of 8 experts, 2 chosen, over three processes of which none holds all experts, not even of one block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from peer.model.tokenizer import text_of
from peer.session.sampling import GREEDY
from planner.importers.decoder_units import build_model
from planner.importers.safetensors import open_safetensors
from planner.model.manifest import Manifest, ManifestUnit, decode_manifest
from planner.model.store import Store
from tests.e2e.command import Running, run, running
from tests.e2e.real_mesh import Models
from tests.e2e.unsplit import Unsplit
from tests.planner.importers.families.checkpoints import load, write_folder
from tests.planner.tiny_models import TinyModel

PROMPT: Final = "hello, experts of the world"
TOKENS: Final = 24
EXPERTS, BLOCKS, EXPERT_UNITS = 8, 2, 4
CUTS: Final = (4, 9)  # embedding, attention, 4 experts · 4 experts, attention, 4 experts · 4 experts, head
NAMES: Final = ("one", "two", "three")


@dataclass(frozen=True)
class Mixture:
    """The mixture in a store, imported by the command; whole, and with its experts in units of their own."""

    store: Store
    whole: str
    apart: str

    @property
    def manifest(self) -> Manifest:
        return decode_manifest(self.store.manifest_bytes(self.apart))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Mixture:
    root = tmp_path_factory.mktemp("mixture")
    checkpoint = load("mixtral").but(vocab_size=TinyModel().vocab, max_position_embeddings=512)
    folder = write_folder(checkpoint, root / "tiny-mixture")
    TinyModel().write_tokenizer(folder)
    store = Store(root / "store")
    words = ["import", folder, "--weights", "f32", "--expert-units", EXPERT_UNITS, "--store", store.root]
    done = run(root, *words)
    assert done.status == 0, done.err
    whole = build_model(open_safetensors(folder, "tiny-mixture"), "f32", store)
    return Mixture(store, whole, done.out.split()[-1])


def experts_of(unit: ManifestUnit) -> set[str]:
    return {one.name.split(".")[1] for one in unit.tensors if one.name.startswith("experts.")}


@contextmanager
def three_peers(mixture: Mixture, home: Path) -> Iterator[tuple[str, dict[str, Running]]]:
    """A founder that only introduces, and three processes with stores of their own."""
    words = ["serve", mixture.apart, "--port", 0, "--name", "founder", "--memory", 0, "--bind", "127.0.0.1"]
    words += ["--cuts", ",".join(map(str, CUTS)), "--context", 256, "--protection", "basic"]
    with ExitStack() as stack:
        founder = stack.enter_context(running(home, *words, "--store", mixture.store.root))
        link = founder.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        peers = {}
        for name in NAMES:
            its = ["--store", home / name, "--state", home / f"{name}-state", "--name", name]
            joins = ["join", link, "--memory", "1GiB", "--bind", "127.0.0.1", *its]
            peers[name] = stack.enter_context(running(home, *joins))
        founder.until(r"plan \d+: .*holds units 0-3.*holds units 4-8.*holds units 9-11")
        yield link, peers


def status(home: Path, link: str) -> dict[str, Any]:
    shown = run(home, "status", link, "--json", "--store", home / "asker")
    assert shown.status == 0, shown.err
    found: dict[str, Any] = json.loads(shown.out)
    return found


def test_three_peers_of_which_none_holds_all_experts(mixture: Mixture, tmp_path: Path) -> None:
    manifest = mixture.manifest
    stages = [manifest.units[first:stop] for first, stop in pairwise((0, *CUTS, len(manifest.units)))]
    for block in range(BLOCKS):
        shares = [
            sum(len(experts_of(unit)) for unit in units if unit.name.startswith(f"ffn.{block}."))
            for units in stages
        ]
        assert sum(shares) == EXPERTS
        assert max(shares) == EXPERTS // 2
    expected = Unsplit(Models(mixture.store, {"f32": mixture.whole}), "f32").answer(
        list(text_of(mixture.store, manifest).encode(PROMPT)), TOKENS, GREEDY
    )
    assert len(set(expected)) > TOKENS // 3, "an answer that says something"
    text = text_of(mixture.store, manifest).decode(expected)
    with three_peers(mixture, tmp_path) as (link, _):
        asked = ["generate", link, PROMPT, "--raw", "--max-tokens", TOKENS, "--temperature", 0]
        done = run(tmp_path, *asked, "--store", tmp_path / "asker")
        assert done.status == 0, done.err
        assert done.out.rstrip("\n") == text.rstrip("\n")
        members = {each["name"]: each for each in status(tmp_path, link)["members"] if each["compute"]}
        assert members.keys() >= set(NAMES)
        held = []
        for name in NAMES:
            report, planned = members[name]["report"], members[name]["planned"]
            ((first, stop),) = report["runs"]
            units = manifest.units[first:stop]
            held.append((first, stop))
            loaded = sum(tensor.bytes for unit in units for tensor in unit.tensors if unit.kind != "embed")
            assert report["weight_bytes"] == planned["weight_bytes"] == loaded
            fetched = {path.name: path.stat().st_size for path in (tmp_path / name / "blobs").iterdir()}
            weights = {unit.blob.sha256: unit.blob.bytes for unit in manifest.units}
            assert {sha: size for sha, size in fetched.items() if sha in weights} == {
                unit.blob.sha256: unit.blob.bytes for unit in units
            }
        assert sorted(held) == [(0, 4), (4, 9), (9, len(manifest.units))]
