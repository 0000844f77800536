"""Names of models on the command line: contents tell files apart, and what is unchanged is not imported again."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import numpy.typing as npt
import onnx
import pytest

from peer.audit.norm_envelopes import Envelopes, decode_envelopes, encode_envelopes
from peer.bench import single
from peer.bench.single import bench_single
from peer.cli.demo import demo
from peer.cli.gateway_embedder import embedder
from peer.cli.main import main
from peer.cli.serve_join import serve
from peer.cli.validate.command import validate
from peer.launch import model_import
from peer.launch.model_import import (
    ENVELOPES,
    find_or_import,
    find_or_import_encoder,
    find_or_import_graph,
)
from peer.model.chat_template import Message
from peer.model.tokenizer import text_of
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import FASTEST
from peer.runtime.kv_slots import KvSlots
from planner.errors import (
    CorruptModel,
    CorruptStore,
    ModelError,
    NoSuchModel,
    NotInStore,
    OldFormat,
    UnknownArchitecture,
)
from planner.importers import registry
from planner.importers.onnx.asked import SourceGraph
from planner.importers.package_files import PackageFile
from planner.model.graph_manifest import encode_graph_manifest
from planner.model.import_index import IMPORTER
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest, encode_manifest
from planner.model.store import BlobRef, Store
from planner.types import WeightFormat
from tests.planner.importers.families.checkpoints import load, write_folder
from tests.planner.importers.onnx import made_up
from tests.planner.importers.onnx.cut_models import imported
from tests.planner.importers.onnx.made_up import Made
from tests.planner.plain_bert import TinyBert
from tests.planner.tiny_models import TinyModel
from tests.seeds import seeds

TINY = TinyModel(blocks=1, hidden=32, heads=2, kv_heads=1, head_size=16, ffn=32)


@dataclass
class Imports:
    """Counts imports, which run without an engine."""

    count: int = 0


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Imports:
    counted = Imports()
    build = vars(model_import)["build_model"]

    def counting(*args: Any, **more: Any) -> str:
        counted.count += 1
        return build(*args, **more)

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


def test_a_model_whose_bytes_are_damaged_is_imported_again_and_never_used(
    tmp_path: Path, imports: Imports, capsys: pytest.CaptureFixture[str]
) -> None:
    store, name = Store(tmp_path / "store"), gguf(tmp_path / "model.gguf", 1)
    model_id = find_or_import(store, name, "8bit")
    manifest = decode_manifest(store.manifest_bytes(model_id))
    for number, ref in enumerate([manifest.tokenizer, *(unit.blob for unit in manifest.units)]):
        path = store.blob_path(ref.sha256)
        right = path.read_bytes()
        path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
        with pytest.raises(
            CorruptStore, match=r"is damaged in the store .* expected hash .*: import it again"
        ):
            find_or_import(Store(store.root), model_id, "8bit")
        capsys.readouterr()
        assert find_or_import(Store(store.root), name, "8bit") == model_id
        assert imports.count == 2 + number
        assert "is damaged in the store (blob" in capsys.readouterr().err
        assert path.read_bytes() == right
    path = store.root / "models" / model_id / "manifest.json"
    path.write_bytes(path.read_bytes()[:-1])
    assert find_or_import(Store(store.root), name, "8bit") == model_id
    assert "is damaged, and it is imported again" in capsys.readouterr().err
    assert find_or_import(Store(store.root), model_id, "8bit") == model_id


@pytest.mark.series
def test_damaged_envelopes_are_set_aside_and_recorded_again(
    tmp_path: Path, imports: Imports, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, name = Store(tmp_path / "store"), gguf(tmp_path / "model.gguf", 1)
    model_id = find_or_import(store, name, "8bit")
    path = store.beside_manifest(model_id, ENVELOPES)
    units = len(decode_manifest(store.manifest_bytes(model_id)).units)
    right = encode_envelopes(Envelopes(tuple((-7, number) for number in range(units - 1))))
    monkeypatch.setattr("peer.audit.envelope_recording.record", lambda *_: path.write_bytes(right))
    find_or_import(store, name, "8bit")
    assert not path.exists(), "what was never recorded is not missed"
    for at in random.Random(1).sample(range(len(right)), seeds(len(right))):
        damaged = right[:at] + bytes([right[at] ^ 4]) + right[at + 1 :]
        for spoilt in (damaged, right[:at], right[:at] + bytes(len(right) - at), right[:at] + right):
            path.write_bytes(spoilt)
            find_or_import(store, name, "8bit")
            assert decode_envelopes(path.read_bytes(), units) == decode_envelopes(right, units)
            said = capsys.readouterr().err
            for aside in path.parent.glob("*.aside-1"):
                assert aside.read_bytes() == spoilt
                assert "it is envelopes.json.aside-1 now" in said.replace("\n", "")
                aside.unlink()


def test_a_short_name_is_known_without_its_file(
    tmp_path: Path, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Path(gguf(tmp_path / "source.gguf", 1)).read_bytes()
    wanted = PackageFile("tiny==1", "tiny/Tiny.gguf", len(content), hashlib.sha256(content).hexdigest())
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
    build = vars(model_import)["build_model"]

    def disturbed(*args: Any, **more: Any) -> str:
        model_id = build(*args, **more)
        gguf(tmp_path / "model.gguf", 2)
        return model_id

    monkeypatch.setattr(model_import, "build_model", disturbed)
    with pytest.raises(CorruptModel, match="changed while it was imported"):
        find_or_import(store, name, "8bit")
    monkeypatch.setattr(model_import, "build_model", build)
    second = find_or_import(store, name, "8bit")
    assert second == find_or_import(Store(tmp_path / "other"), name, "8bit")


@pytest.mark.parametrize(
    ("write", "known"),
    [(gguf, {3: "814fbc939753", 4: "814fbc939753"}), (folder, {3: "814fbc939753", 4: "814fbc939753"})],
)
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


def test_a_model_that_answers_is_not_offered_beside_another_one(tmp_path: Path, imports: Imports) -> None:
    store = Store(tmp_path / "store")
    file = gguf(tmp_path / "talker.gguf", 1)
    why = "answers in words and is no model of inputs and outputs: a mesh has one model that answers"
    with pytest.raises(UnknownArchitecture, match=why):
        find_or_import_graph(store, file)
    assert imports.count == 0
    with pytest.raises(UnknownArchitecture, match=why):
        find_or_import_graph(store, find_or_import(store, file, "8bit"))


def options(store: Path, model: str) -> argparse.Namespace:
    """What the commands read before they look for the model."""
    rest: dict[str, Any] = {
        "browsers": [],
        "weights": "8bit",
        "api": None,
        "api_embedding_model": None,
        "more": [],
        "context": None,
        "sessions": 1,
        "goal": None,
        "objective": "latency",
    }
    return argparse.Namespace(store=store, model=model, what="", rounds=1, tokens=1, **rest)


@pytest.mark.parametrize("command", [serve, demo, validate, bench_single])
@pytest.mark.parametrize("name", ["model", "model.gguf", "{}/absent/model.gguf", "{}/gone.gguf"])
def test_a_path_that_does_not_exist_is_an_error_whatever_is_stored(
    command: Callable[[argparse.Namespace], object],
    name: str,
    tmp_path: Path,
    imports: Imports,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(single, "find_spec", lambda _: object())  # as where its extra is installed
    store = Store(tmp_path / "store")
    find_or_import(store, gguf(tmp_path / "model.gguf", 1), "8bit")
    find_or_import(store, gguf(tmp_path / "gone.gguf", 2), "8bit")
    (tmp_path / "gone.gguf").unlink()
    with pytest.raises(
        NoSuchModel, match=r"there is no model '.*': expected the path of a \.gguf or \.onnx file"
    ):
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


# --- what is accepted can be computed and asked


def computed(store: Store, model_id: str) -> npt.NDArray[np.float32]:
    """Logits behind a question's first tokens and one more, with all units in one process."""
    manifest = decode_manifest(store.manifest_bytes(model_id))
    asked = text_of(store, manifest).encode_chat([Message("user", "Hi")])[:8]
    execution = Execution(
        make_shard(manifest, store, 0, len(manifest.units)), threads=1, context=16, form=FASTEST
    )
    slots = KvSlots(1, 16)
    slots.admit(b"")
    execution.ensure(slots, 1, 16)
    execution.prompt(execution.embed(np.array(asked)), Row(0, 0))
    rows = execution.alone(execution.embed(np.array([1])), Row(0, len(asked)))
    found = execution.head(rows)
    execution.close()
    return found


def shaped(draw: random.Random) -> dict[str, Any]:
    """Sizes of a small model, half of the time with one that no model can have."""
    kv_heads = draw.choice((1, 2, 3))
    sizes: dict[str, Any] = {
        "hidden": draw.choice((1, 7, 31, 32, 48, 100)),
        "kv_heads": kv_heads,
        "heads": kv_heads * draw.choice((1, 2, 3)),
        "head_size": draw.choice((2, 6, 8, 16, 20, 24, 56, 64, 100)),
        "ffn": draw.choice((1, 31, 32, 96)),
        "vocab": draw.choice((261, 288)),
        "blocks": draw.choice((1, 2)),
        "tied": draw.random() < 0.5,
        "family": draw.choice(("llama", "qwen2", "qwen3")),
        "config": {"max_position_embeddings": draw.choice((1, 17, 255, 256, 4096))},
    }
    sizes |= {"bias": sizes["family"] == "qwen2", "qk_norm": sizes["family"] == "qwen3"}
    wrong: tuple[dict[str, Any], ...] = (
        *({name: 0} for name in ("hidden", "heads", "kv_heads", "head_size", "ffn", "vocab", "blocks")),
        {"head_size": 7},
        {"heads": 3, "kv_heads": 2},
        {"vocab": 1},
        *({"config": {"max_position_embeddings": value}} for value in (0, -1, 1 << 25, 0.5, None)),
        *({"config": {"rope_theta": value}} for value in (float("nan"), float("inf"), 0, -1.0, 1e-30, "1")),
        *({"config": {"rms_norm_eps": value}} for value in (float("nan"), 0, 1e-60, 1e30)),
        *(
            {"config": {"rope_scaling": {"rope_type": "linear", "factor": value}}}
            for value in (0, float("nan"), 1e-320)
        ),
        {
            "config": {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                    "original_max_position_embeddings": 8192,
                }
            }
        },
        *({"config": {"num_hidden_layers": value}} for value in (1025, 1 << 60)),
        *({"config": {"num_attention_heads": value}} for value in (2048, 1 << 60)),
    )
    return sizes | (draw.choice(wrong) if draw.random() < 0.5 else {})


@pytest.mark.parametrize("seed", range(40))
def test_what_is_accepted_computes_and_the_rest_is_refused_in_one_line(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    sizes = shaped(draw)
    weights: WeightFormat = draw.choice(("f32", "f16", "8bit", "4bit"))
    path, store = tmp_path / "model", Store(tmp_path / "store")
    TINY.but(**sizes).write_folder(path)
    try:
        model_id = find_or_import(store, str(path), weights)
    except ModelError as error:
        refusal = str(error)
    else:
        assert np.isfinite(computed(store, model_id)).all()
        return
    assert re.search("expected|needs|cannot share|should be|finite|do not fit", refusal), refusal
    assert "\n" not in refusal
    assert store.models() == []


@pytest.mark.parametrize("head_size", [2, 8, 20, 24, 56, 100])
def test_heads_that_the_engine_does_not_take_are_filled_up(head_size: int, tmp_path: Path) -> None:
    """Cached for 4 KV heads of 16, 32, 64 or 112 values, and nothing is stored in their place."""
    TINY.but(heads=4, kv_heads=4, head_size=head_size).write_folder(tmp_path / "model")
    store = Store(tmp_path / "store")
    model_id = find_or_import(store, str(tmp_path / "model"), "f32")
    attention = decode_manifest(store.manifest_bytes(model_id)).units[1]
    qkv = attention.tensor("qkv.w")
    assert qkv is not None
    assert qkv.shape == (12 * head_size, 32)
    assert attention.kv_bytes_per_token == 2 * 4 * 4 * (-(-head_size // 16) * 16)
    assert np.isfinite(computed(store, model_id)).all()


@pytest.mark.parametrize("template", ["", " \n"])
def test_an_empty_template_is_none(template: str, tmp_path: Path, imports: Imports) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "model"
    TINY.write_folder(path)
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    manifest = decode_manifest(store.manifest_bytes(find_or_import(store, str(path), "8bit")))
    assert manifest.chat_template is None
    assert text_of(store, manifest).render_chat([Message("user", "Hi")]).startswith("<|im_start|>user\nHi")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"chat_template": "{% if %}"}, "chat template does not compile"),
        ({"chat_template": "{% if false %}{% endif %}"}, "make no token of a question: expected one token"),
        ({"chat_template": "{{ messages[3].content }}"}, "chat template failed"),
        ({"chat_template": "{{ '" + "x" * (1 << 20) + "' }}"}, "up to .* characters"),
    ],
)
def test_a_template_without_prompts_is_refused(
    settings: dict[str, Any], says: str, tmp_path: Path, imports: Imports
) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "model"
    TINY.write_folder(path)
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(CorruptModel, match=f"model: .*{says}.*; choose another file of this model"):
        find_or_import(store, str(path), "8bit")
    assert imports.count == 0


def test_words_that_no_peer_could_read_are_refused(tmp_path: Path, imports: Imports) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "model"
    TINY.write_folder(path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(
        json.dumps(tokenizer | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}})
    )
    with pytest.raises(CorruptModel, match=r"decoder is ByteLevel, or made of .*; choose another file"):
        find_or_import(store, str(path), "8bit")


def test_what_no_peer_would_read_again_is_refused_before_it_is_written(
    tmp_path: Path, imports: Imports
) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "model"
    TINY.write_folder(path, config={"eos_token_id": list(range(65))})
    with pytest.raises(CorruptModel, match=r"cannot be kept: .*end_tokens"):
        find_or_import(store, str(path), "8bit")
    assert [*(store.root / "blobs").iterdir()] == []


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are Unicode")
def test_a_name_that_is_no_text_is_shown_with_marks(tmp_path: Path, imports: Imports) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / os.fsdecode(b"mod\xffel")
    TINY.write_folder(path)
    manifest = decode_manifest(store.manifest_bytes(find_or_import(store, str(path), "8bit")))
    assert manifest.name == "mod?el"


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[SourceGraph]:
    """ONNX files that are imported, by the steps of an import in this process."""
    asked: list[SourceGraph] = []

    def importing(source: SourceGraph, store: Store, *_: object) -> str:
        asked.append(source)
        made = Made(onnx.load(str(source.source)), dict(source.sizes))
        found = imported(store.root / f"steps-{len(asked)}", made, sample=source.sample)
        for blob in found.manifest.blobs(0, len(found.manifest.units)):
            store.put_blob([found.store.blob_path(blob.sha256).read_bytes()])
        return store.put_manifest(encode_graph_manifest(replace(found.manifest, name=source.name)))

    monkeypatch.setattr(model_import, "import_graph", importing)
    return asked


def onnx_file(path: Path) -> str:
    path.write_bytes(made_up.chain().model.SerializeToString())
    return str(path)


def test_an_onnx_file_is_imported_once_for_each_way_to_ask(
    graphs: list[SourceGraph], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = onnx_file(tmp_path / "mine.onnx"), str(tmp_path / "store")
    np.savez(tmp_path / "sample.npz", x=np.ones((7, 16), np.float32))
    ways = (
        (), ("--name", "Ours"), ("--size", "rows=5"), ("--sample", str(tmp_path / "sample.npz")),
    )  # fmt: skip
    ids = []
    for times, way in enumerate(ways, 1):
        for _ in range(2):
            assert main(["import", path, *way, "--store", store]) == 0
            name, weights, parts, *_size, model_id = capsys.readouterr().out.split("  ")
            assert (weights, parts) == ("onnx", "3 units")
            assert name == ("Ours" if "--name" in way else "mine")
        ids.append(model_id.strip())
        assert len(graphs) == times, "what is unchanged is found again"
    assert len(set(ids)) == 4
    assert graphs[2].sizes == (("rows", 5),)
    np.savez(tmp_path / "sample.npz", x=np.ones((8, 16), np.float32))
    assert main(["import", path, *ways[3], "--store", store]) == 0
    assert len(graphs) == 5, "another sample is another import"
    assert find_or_import_graph(Store(tmp_path / "store"), path) == ids[0]
    assert find_or_import_graph(Store(tmp_path / "store"), ids[1][:12]) == ids[1]
    capsys.readouterr()
    assert main(["models", "--store", store]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("mine  onnx" in line and "for runs" in line and line.endswith(path) for line in lines) == 4
    assert main(["models", "--json", "--store", store]) == 0
    assert {each["kind"] for each in json.loads(capsys.readouterr().out)} == {"graph"}


def test_a_changed_onnx_file_or_its_data_is_imported_anew(graphs: list[SourceGraph], tmp_path: Path) -> None:
    path = made_up.saved_outside(made_up.chain().model, tmp_path)
    store = Store(tmp_path / "store")
    first = find_or_import_graph(store, str(path))
    content = bytearray((tmp_path / "model.bin").read_bytes())
    content[0] ^= 1
    (tmp_path / "model.bin").write_bytes(content)
    assert find_or_import_graph(store, str(path)) != first
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tiny.gguf", "--name", "Ours"), "--name, --sample, --size and --tiles are for .onnx files, and"),
        (("tiny.gguf", "--size", "rows=5"), "--name, --sample, --size and --tiles are for .onnx files, and"),
        (("mine.onnx", "--size", "rows"), "expected NAME=NUMBER with a number from 1 to 1048576"),
        (("mine.onnx", "--size", "rows=0"), "expected NAME=NUMBER"),
        (("mine.onnx", "--size", "rows=99999999999"), "expected NAME=NUMBER"),
        (("mine.onnx", "--size", "=5"), "expected NAME=NUMBER"),
        (("mine.onnx", "--size", "row=5"), "has no size called 'row': rows"),
        (("mine.onnx", "--sample", "nowhere.npz"), "nowhere.npz cannot be read"),
        (("broken.onnx",), "broken is no ONNX file, or ends early: get it again"),
    ],
)
def test_a_wrong_way_to_ask_for_an_onnx_file_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx_file(tmp_path / "mine.onnx")
    gguf(tmp_path / "tiny.gguf", 1)
    (tmp_path / "broken.onnx").write_bytes(b"\xff" * 99)
    try:
        status = main(["import", *words, "--store", "store"])
    except SystemExit as left:
        status = int(str(left.code))
    assert status != 0
    assert says in capsys.readouterr().err
    assert Store(tmp_path / "store").models() == []


def test_an_onnx_file_answers_nothing_and_makes_no_embeddings(
    graphs: list[SourceGraph], tmp_path: Path, imports: Imports
) -> None:
    path, store = onnx_file(tmp_path / "mine.onnx"), Store(tmp_path / "store")
    model_id = find_or_import_graph(store, path)
    for name in (path, model_id):
        with pytest.raises(UnknownArchitecture, match="computes outputs of inputs and answers no questions"):
            find_or_import(store, name, "8bit")
        with pytest.raises(UnknownArchitecture, match="computes outputs of inputs and makes no embeddings"):
            find_or_import_encoder(store, name)
    with pytest.raises(UnknownArchitecture, match="no model of inputs and outputs"):
        find_or_import_graph(store, gguf(tmp_path / "tiny.gguf", 1))
    assert imports.count == 0


def test_a_model_that_an_older_version_stored_says_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    model_id = store.put_manifest(b'{"format":"shoal-1","name":"old","units":[]}')
    with pytest.raises(OldFormat, match=rf"model {model_id[:12]}: .*shoal-1.*: import the model again"):
        find_or_import(store, model_id[:12], "8bit")


def test_experts_in_units_of_their_own_are_another_model(
    tmp_path: Path, imports: Imports, capsys: pytest.CaptureFixture[str]
) -> None:
    mixture = write_folder(load("mixtral").but(vocab_size=TINY.vocab), tmp_path / "mixture")
    TINY.write_tokenizer(mixture)
    words = ["import", str(mixture), "--weights", "f32", "--store", str(tmp_path / "store")]
    assert main([*words, "--expert-units", "4"]) == 0
    *_, apart = capsys.readouterr().out.split()
    store = Store(tmp_path / "store")
    whole = find_or_import(store, str(mixture), "f32")
    assert (imports.count, len(store.models())) == (2, 2)
    assert (
        find_or_import(store, str(mixture), "f32") == whole != apart == find_or_import(store, apart, "8bit")
    )
    assert imports.count == 2
    assert main([*words, "--expert-units", "9"]) == 1
    assert "in 1 to 8 units expected" in capsys.readouterr().err
