"""What a founder serves: the first model that answers in words is the mesh's own, and all others are offered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from peer.launch import model_import, offered_models
from peer.launch.offered_models import Room, served_of_store
from peer.launch.stored_models import Kind, StoredModel
from peer.state.generated.commands import DecoderOffered, ModelOffered
from planner.model.store import Store


def stored(name: str, kind: Kind, digit: str) -> StoredModel:
    return StoredModel(digit * 64, name, "8bit", kind, ("u",), (), True)


TALKER, OTHER = stored("talker", Kind.ANSWERS, "a"), stored("other", Kind.ANSWERS, "b")
DET, OCR = stored("det", Kind.GRAPH, "c"), stored("ocr", Kind.GRAPH, "d")
KNOWN = {each.name: each for each in (TALKER, OTHER, DET, OCR)}
OFFERED_DET, OFFERED_OCR = ModelOffered("c" * 64, "det"), ModelOffered("d" * 64, "ocr")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    monkeypatch.setattr(model_import, "find_or_import_any", lambda _, name, __: KNOWN[name])
    return Store(tmp_path)


@pytest.mark.parametrize(
    ("names", "own", "offered"),
    [
        (("talker",), TALKER, []),
        (("talker", "det"), TALKER, [OFFERED_DET]),
        (("det", "talker", "ocr"), TALKER, [OFFERED_DET, OFFERED_OCR]),
        (("talker", "talker"), TALKER, []),
        (("ocr", "det"), None, [OFFERED_OCR, OFFERED_DET]),
    ],
)
def test_the_one_that_answers_is_the_meshs_own_and_the_others_are_offered(
    store: Store, names: tuple[str, ...], own: StoredModel | None, offered: list[ModelOffered]
) -> None:
    assert served_of_store(store, names, "8bit", Room()) == (
        own.model_id if own is not None else None,
        offered,
    )


@pytest.mark.parametrize(("asked", "context"), [(None, 512), (64, 64), (4096, 512)])
def test_a_second_one_that_answers_is_offered_with_the_room_that_is_promised(
    store: Store, monkeypatch: pytest.MonkeyPatch, asked: int | None, context: int
) -> None:
    monkeypatch.setattr(Store, "manifest_bytes", lambda _, model: model.encode())
    manifest = SimpleNamespace(
        name="other", context=512, units=("embed", "attn", "ffn", "head"), speech=None, source=None
    )
    monkeypatch.setattr(offered_models, "decode_manifest", lambda _: manifest)
    own, offered = served_of_store(store, ("talker", "det", "other"), "8bit", Room(asked, 3, "throughput"))
    assert own == TALKER.model_id
    assert offered == [OFFERED_DET, DecoderOffered("other", OTHER.model_id, 4, context, 3, "throughput")]
