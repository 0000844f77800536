"""Folders that say what no model of Whisper's kind can be are refused in one line, before anything is stored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import CorruptModel, MissingTensor, ModelError, UnknownArchitecture
from planner.importers.registry import answering, locate
from planner.importers.speech.whisper import open_whisper
from planner.importers.speech.whisper_graphs import mel_filters
from tests.planner.importers.speech.whisper_folders import write

Changed = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("speech") / "small", "small")


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Changed:
    """The folder with other values in one of its JSON files."""

    def made(name: str, **values: Any) -> Path:
        for file in folder.iterdir():
            if file.suffix == ".safetensors":
                (tmp_path / file.name).symlink_to(file)
            else:
                shutil.copyfile(file, tmp_path / file.name)
        said = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(said | values))
        return tmp_path

    return made


@pytest.mark.parametrize(
    ("file", "values", "kind", "says"),
    [
        ("config.json", {"d_model": 0}, CorruptModel, "expected d_model between 1 and"),
        ("config.json", {"d_model": 65}, CorruptModel, "cannot be shared evenly"),
        ("config.json", {"max_source_positions": 10**9}, CorruptModel, "expected max_source_positions"),
        ("config.json", {"encoder_layers": 3}, MissingTensor, "encoder.layers.2.self_attn.q_proj.weight"),
        ("config.json", {"decoder_layers": 1}, UnknownArchitecture, "has no place in whisper"),
        ("config.json", {"scale_embedding": True}, UnknownArchitecture, "not scaled"),
        ("config.json", {"activation_function": "relu"}, UnknownArchitecture, "expected exact GELU"),
        ("generation_config.json", {"suppress_tokens": [51865]}, CorruptModel, "suppress_tokens as a list"),
        ("generation_config.json", {"lang_to_id": {"<|en|>": True}}, CorruptModel, "lang_to_id as tokens"),
        ("generation_config.json", {"no_timestamps_token_id": 51864}, CorruptModel, "no_timestamps_token_id"),
        ("generation_config.json", {"max_initial_timestamp_index": -1}, CorruptModel, "as a number"),
        ("preprocessor_config.json", {"hop_length": 80}, UnknownArchitecture, "expected hop_length 160"),
        ("preprocessor_config.json", {"feature_size": 128}, CorruptModel, "128 bands, not 80"),
        ("preprocessor_config.json", {"mel_filters": [[1.0]]}, CorruptModel, "mel_filters of \\(80, 201\\)"),
    ],
)
def test_refused(
    changed: Changed, file: str, values: dict[str, Any], kind: type[ModelError], says: str
) -> None:
    with pytest.raises(kind, match=says) as refusal:
        open_whisper(changed(file, **values))
    assert "\n" not in str(refusal.value)


def test_filters_of_a_folder_are_taken_as_they_are(changed: Changed) -> None:
    filters = np.abs(np.random.default_rng(1).standard_normal((80, 201)))
    found = open_whisper(changed("preprocessor_config.json", mel_filters=filters.tolist()))
    np.testing.assert_array_equal(found.filters, filters.T)


@pytest.mark.parametrize("mels", [80, 128])
def test_computed_filters_are_triangles_of_equal_area(mels: int) -> None:
    filters = mel_filters(mels)
    assert filters.shape == (201, mels)
    assert (filters >= 0).all()
    assert ((filters > 0).sum(axis=1) <= 2).all()  # no line is in more than two bands


def test_it_answers_no_questions(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match="writes what is said and answers no questions"):
        answering(locate(str(folder), tmp_path).open())
