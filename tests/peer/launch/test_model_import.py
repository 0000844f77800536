"""Names of models on the command line: contents tell files apart, and what is unchanged is not imported again."""

from __future__ import annotations

import argparse
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from peer.bench.single import bench_single
from peer.cli.demo import demo
from peer.cli.gateway_embedder import embedder
from peer.cli.main import main
from peer.cli.serve_join import serve
from peer.cli.validate.command import validate
from peer.launch import model_import
from peer.launch.model_import import find_or_import, find_or_import_encoder
from planner.errors import CorruptModel, CorruptStore, NoSuchModel, NotInStore, UnknownArchitecture
from planner.importers import registry
from planner.importers.registry import WheelFile
from planner.model.import_index import IMPORTER
from planner.model.manifest import decode_manifest, encode_manifest
from planner.model.store import BlobRef, Store
from tests.planner.plain_bert import TinyBert
from tests.planner.tiny_models import TinyModel

TINY = TinyModel(blocks=1, hidden=32, heads=2, kv_heads=1, head_size=16, ffn=32)


@dataclass
class Imports:
    """Counts imports, which run without an engine."""

    count: int = 0


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Imports:
    counted = Imports()
    build = model_import.build_model

    def counting(*args: Any) -> str:
        counted.count += 1
        return build(*args)

    monkeypatch.setattr(model_import, "build_model", counting)
    monkeypatch.setattr("peer.audit.envelope_recording.record", lambda *_: None)
    return counted


def gguf(path: Path, seed: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(TINY.but(seed=seed).write_gguf(path))


def folder(path: Path, seed: int) -> str:
    return str(TINY.but(seed=seed).write_folder(path))


def in_a_repo(path: Path, seed: int) -> str:
    folder(path, seed)
    return "hf:owner/repo"


@pytest.mark.parametrize("write", [gguf, folder, in_a_repo])
def test_what_is_unchanged_is_imported_once_and_what_changed_anew(
    write: Callable[[Path, int], str], tmp_path: Path, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = tmp_path / "model.gguf", Store(tmp_path / "store")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(path))
    name = write(path, 1)
    first = find_or_import(store, name, "8bit")
    assert (find_or_import(store, name, "8bit"), imports.count) == (first, 1)
    assert find_or_import(store, name, "f16") != first
    write(path, 2)
    second = find_or_import(store, name, "8bit")
    assert second != first
    assert (find_or_import(store, name, "8bit"), imports.count) == (second, 3)
    write(path, 1)
    assert (find_or_import(store, name, "8bit"), imports.count) == (first, 3), "these contents are known"


def test_a_setting_of_a_folder_is_part_of_it(tmp_path: Path, imports: Imports) -> None:
    store, name = Store(tmp_path / "store"), folder(tmp_path / "model", 1)
    first = find_or_import(store, name, "8bit")
    (tmp_path / "model" / "chat_template.json").write_text('{"chat_template": "{{ messages }}"}')
    find_or_import(store, name, "8bit")
    assert imports.count == 2
    (tmp_path / "model" / "chat_template.json").unlink()
    (tmp_path / "model" / "README.md").write_text("nothing that an import reads")
    assert (find_or_import(store, name, "8bit"), imports.count) == (first, 2)


def test_two_files_of_one_name_are_two_models(
    tmp_path: Path, imports: Imports, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store")
    names = [gguf(tmp_path / part / "model.gguf", seed) for seed, part in enumerate(("one", "two"))]
    ids = [find_or_import(store, name, "8bit") for name in names]
    assert len(set(ids)) == 2
    assert [find_or_import(store, name, "8bit") for name in reversed(names)] == ids[::-1]
    assert [find_or_import(store, model_id[:8], "8bit") for model_id in ids] == ids
    assert imports.count == 2
    assert {decode_manifest(store.manifest_bytes(model_id)).name for model_id in ids} == {"model"}
    assert main(["models", "--store", str(store.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for model_id, name in zip(ids, names, strict=True):
        (line,) = [line for line in lines if name in line]
        assert line.startswith(f"{model_id[:12]}  model  8bit  ")


def test_a_model_that_is_not_whole_any_more_is_imported_again(tmp_path: Path, imports: Imports) -> None:
    store, name = Store(tmp_path / "store"), gguf(tmp_path / "model.gguf", 1)
    model_id = find_or_import(store, name, "8bit")
    store.blob_path(decode_manifest(store.manifest_bytes(model_id)).units[1].blob.sha256).unlink()
    with pytest.raises(CorruptStore, match=r"is not whole in the store .*: import it again"):
        find_or_import(store, model_id, "8bit")
    assert (find_or_import(store, name, "8bit"), imports.count) == (model_id, 2)
    assert find_or_import(store, model_id, "8bit") == model_id


def test_a_short_name_is_known_without_its_file(
    tmp_path: Path, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Path(gguf(tmp_path / "source.gguf", 1)).read_bytes()
    wanted = WheelFile("tiny==1", "tiny/Tiny.gguf", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(registry, "SHORT_NAMES", {"tiny": wanted})
    store = Store(tmp_path / "store")
    (store.root / "sources").mkdir()
    shutil.copy(tmp_path / "source.gguf", store.root / "sources" / "Tiny.gguf")
    other = find_or_import(store, gguf(tmp_path / "tiny.gguf", 2), "8bit")
    model_id = find_or_import(store, "tiny", "8bit")
    assert model_id != other
    (store.root / "sources" / "Tiny.gguf").unlink()
    assert (find_or_import(store, "tiny", "8bit"), imports.count) == (model_id, 2)


def test_a_file_that_changes_during_its_import_is_not_remembered(
    tmp_path: Path, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, name = Store(tmp_path / "store"), gguf(tmp_path / "model.gguf", 1)
    build = model_import.build_model

    def disturbed(*args: Any) -> str:
        model_id = build(*args)
        gguf(tmp_path / "model.gguf", 2)
        return model_id

    monkeypatch.setattr(model_import, "build_model", disturbed)
    with pytest.raises(CorruptModel, match="changed while it was imported"):
        find_or_import(store, name, "8bit")
    monkeypatch.setattr(model_import, "build_model", build)
    second = find_or_import(store, name, "8bit")
    assert second == find_or_import(Store(tmp_path / "other"), name, "8bit")


@pytest.mark.parametrize(("write", "known"), [(gguf, {1: "cae7c79633cf"}), (folder, {1: "bc18a602b0e3"})])
def test_another_import_of_the_same_files_has_another_number(
    write: Callable[[Path, int], str], known: dict[int, str], tmp_path: Path, imports: Imports
) -> None:
    store = Store(tmp_path / "store")
    model_id = find_or_import(store, write(tmp_path / "model.gguf", 1), "8bit")
    manifest = decode_manifest(store.manifest_bytes(model_id))
    manifest = replace(manifest, name="tiny", tokenizer=BlobRef("", 0, ()))  # which a library writes
    made = hashlib.sha256(encode_manifest(manifest)).hexdigest()[:12]
    assert known.get(IMPORTER) == made, "imports changed: raise IMPORTER, or stored models stay as they were"


# --- what is not there


def options(store: Path, model: str) -> argparse.Namespace:
    """What the commands read before they look for the model."""
    rest: dict[str, Any] = {"browsers": [], "weights": "8bit", "api": None, "api_embedding_model": None}
    return argparse.Namespace(store=store, model=model, what="", rounds=1, tokens=1, **rest)


@pytest.mark.parametrize("command", [serve, demo, validate, bench_single])
@pytest.mark.parametrize("name", ["model", "model.gguf", "{}/absent/model.gguf", "{}/gone.gguf"])
def test_a_path_that_does_not_exist_is_an_error_whatever_is_stored(
    command: Callable[[argparse.Namespace], object], name: str, tmp_path: Path, imports: Imports
) -> None:
    store = Store(tmp_path / "store")
    find_or_import(store, gguf(tmp_path / "model.gguf", 1), "8bit")
    find_or_import(store, gguf(tmp_path / "gone.gguf", 2), "8bit")
    (tmp_path / "gone.gguf").unlink()
    with pytest.raises(NoSuchModel, match=r"there is no model '.*': expected the path of a \.gguf file"):
        command(options(store.root, name.format(tmp_path)))


@pytest.mark.parametrize("name", ["absent", "model", "hf:owner"])
async def test_an_embedding_model_that_does_not_exist_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(NoSuchModel):
        async with embedder(Store(tmp_path), name, 1):
            pass


def test_an_unknown_id_names_those_there_are(tmp_path: Path, imports: Imports) -> None:
    store = Store(tmp_path / "store")
    model_id = find_or_import(store, gguf(tmp_path / "model.gguf", 1), "8bit")
    absent = "0123" if not model_id.startswith("0123") else "4567"
    with pytest.raises(NotInStore, match=rf"begins with '{absent}'; it has: {model_id[:12]} \(model\)"):
        find_or_import(store, absent, "8bit")


# --- embedding models


def test_embedding_models_are_found_the_same_way(tmp_path: Path, imports: Imports) -> None:
    store = Store(tmp_path / "store")
    names = [str(TinyBert(max_tokens=tokens).write(tmp_path / f"{tokens}" / "bert")) for tokens in (8, 12)]
    ids = [find_or_import_encoder(store, name) for name in names]
    assert len(set(ids)) == 2
    assert [find_or_import_encoder(store, each) for each in (*names, *ids)] == [*ids, *ids]
    with pytest.raises(UnknownArchitecture, match="makes embeddings and answers no questions"):
        find_or_import(store, ids[0], "8bit")
    with pytest.raises(UnknownArchitecture, match="makes embeddings and answers no questions"):
        find_or_import(store, names[0], "f32")
    words = find_or_import(store, gguf(tmp_path / "model.gguf", 1), "f32")
    with pytest.raises(UnknownArchitecture, match="answers in words and makes no embeddings"):
        find_or_import_encoder(store, words)


def test_the_list_of_models_names_what_is_damaged(
    tmp_path: Path, imports: Imports, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store")
    assert main(["models", "--store", str(store.root)]) == 0
    assert "no models in" in capsys.readouterr().err
    model_id = find_or_import(store, gguf(tmp_path / "model.gguf", 1), "8bit")
    store.blob_path(decode_manifest(store.manifest_bytes(model_id)).units[1].blob.sha256).unlink()
    odd = store.put_manifest(b"no manifest")
    assert main(["models", "--store", str(store.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert any(line.startswith(model_id[:12]) and "not whole: import it again" in line for line in lines)
    assert any(line.startswith(odd[:12]) and "damaged: import it again" in line for line in lines)
