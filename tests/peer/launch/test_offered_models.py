"""What a founder serves: at most one model that answers in words, anywhere among the others, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.errors import BadCommand
from peer.launch import model_import
from peer.launch.offered_models import served_of_store
from peer.launch.stored_models import Kind, StoredModel
from peer.state.generated.commands import ModelOffered
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
    assert served_of_store(store, names, "8bit") == (own.model_id if own is not None else None, offered)


def test_a_second_one_that_answers_is_refused_by_name(store: Store) -> None:
    with pytest.raises(
        BadCommand, match="talker and other both answer in words, and a mesh has one model that does"
    ):
        served_of_store(store, ("talker", "det", "other"), "8bit")
