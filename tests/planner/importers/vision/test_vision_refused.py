"""Folders of models that see and that cannot be imported: each is refused by one line that says what was expected."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import CorruptModel, MissingTensor, ModelError, NoSuchModel, UnknownArchitecture
from planner.importers.decoder_units import decoder_source
from planner.importers.registry import answering, locate
from planner.importers.vision.folder import SourceVision, open_vision
from tests.planner.importers.vision.checkpoints import load, weights_of
from tests.planner.tiny_models import safetensors_bytes

Change = Callable[[dict[str, Any]], object]


def changed(folder: Path, file: str, change: Change) -> None:
    said = json.loads((folder / file).read_text())
    change(said)
    (folder / file).write_text(json.dumps(said))


def with_tensors(folder: Path, case: str, change: Change) -> None:
    weights: dict[str, Any] = dict(weights_of(load(case).shapes, load(case).seed))
    change(weights)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights, "F32"))


CONFIG, PREPARING = "config.json", "preprocessor_config.json"


@pytest.mark.parametrize(
    ("case", "file", "change", "error", "why"),
    [
        ("llava", CONFIG, lambda c: c.update(model_type="qwen3_vl"), UnknownArchitecture, "'qwen3_vl' is not"),
        ("llava", CONFIG, lambda c: c.update(vision_feature_layer=[-2, -5]), UnknownArchitecture, "of one number"),
        ("llava", CONFIG, lambda c: c.update(vision_feature_layer=-9), UnknownArchitecture, "of one number"),
        ("llava", CONFIG, lambda c: c.update(image_token_index=4000), CorruptModel, "token of a picture"),
        ("llava", CONFIG, lambda c: c.update(text_config=7), CorruptModel, "an object text_config"),
        ("llava", CONFIG, lambda c: c["text_config"].update(model_type="t5"), UnknownArchitecture, "'t5'"),
        ("llava", CONFIG, lambda c: c["vision_config"].update(patch_size=0), CorruptModel, "makes no sense"),
        ("vit", CONFIG, lambda c: c.update(num_attention_heads=5), CorruptModel, "makes no sense"),
        ("vit", CONFIG, lambda c: c.update(hidden_act="swish_glu"), UnknownArchitecture, "hidden_act 'swish_glu'"),
        ("vit", CONFIG, lambda c: c.update(num_channels=1), UnknownArchitecture, "three colours"),
        ("vit", CONFIG, lambda c: c.update(num_hidden_layers=1 << 40), CorruptModel, "makes no sense"),
        ("dinov2", CONFIG, lambda c: c.update(use_swiglu_ffn=True), UnknownArchitecture, "use_swiglu_ffn"),
        ("clip", CONFIG, lambda c: c["text_config"].update(num_attention_heads=0), CorruptModel, "makes no sense"),
        ("clip", PREPARING, lambda c: c.update(resample=1), UnknownArchitecture, "bilinear or bicubic"),
        ("clip", PREPARING, lambda c: c.update(image_std=[1, 0, 1]), CorruptModel, "image_mean and image_std"),
        ("clip", PREPARING, lambda c: c.update(size={"shortest_edge": 20}), UnknownArchitecture, "square of 24 pixels"),
        ("clip", PREPARING, lambda c: c.update(do_center_crop=False), UnknownArchitecture, "stay oblong"),
        ("siglip", PREPARING, lambda c: c.update(do_pad=True), UnknownArchitecture, "pads pictures"),
    ],
)  # fmt: skip
def test_what_a_folder_says_is_checked(
    case: str, file: str, change: Change, error: type[ModelError], why: str, tmp_path: Path
) -> None:
    folder = load(case).write(tmp_path / "model")
    changed(folder, file, change)
    with pytest.raises(error) as caught:
        open_vision(folder)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("case", "change", "error", "why"),
    [
        (
            "vit",
            lambda t: t.update(stranger=np.zeros(3, np.float32)),
            UnknownArchitecture,
            "stranger has no place",
        ),
        ("vit", lambda t: t.pop("layernorm.weight"), MissingTensor, "layernorm.weight"),
        ("clip", lambda t: t.update({"logit_scale": np.ones(7, np.float32)}), CorruptModel, "one number"),
        ("llava", lambda t: t.pop("multi_modal_projector.linear_1.weight"), CorruptModel, "found 0"),
        (
            "llava",
            lambda t: t.update({"vision_tower.more": np.zeros(3, np.float32)}),
            UnknownArchitecture,
            "vision_tower.more has no place",
        ),
    ],
)
def test_tensors_are_those_of_the_model(
    case: str, change: Change, error: type[ModelError], why: str, tmp_path: Path
) -> None:
    folder = load(case).write(tmp_path / "model")
    with_tensors(folder, case, change)
    with pytest.raises(error) as caught:
        open_vision(folder)
    assert why in str(caught.value)


def test_places_with_axes_are_of_models_without_encoded_rows(tmp_path: Path) -> None:
    seeing = open_vision(load("qwen2-vl").write(tmp_path / "model"))
    assert seeing.decoder is not None
    a = seeing.decoder.architecture
    for more in ({"encoded": 8}, {"encoded": 8, "marked": True}):
        both = replace(seeing.decoder, architecture=replace(a, **more))
        with pytest.raises(UnknownArchitecture, match="axes of places or encoded rows expected, got both"):
            decoder_source(both, "f32")


def test_numbers_that_are_none_are_refused_before_anything_is_kept(tmp_path: Path) -> None:
    folder = load("vit").write(tmp_path / "model")
    with_tensors(folder, "vit", lambda t: t.update({"layernorm.bias": np.full(32, np.nan, np.float32)}))
    with pytest.raises(CorruptModel, match="finite numbers expected"), open_vision(folder).graph(tmp_path):
        raise AssertionError("nothing is there to be cut")
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def test_a_folder_without_its_preprocessor_says_what_to_do(tmp_path: Path) -> None:
    folder = load("vit").write(tmp_path / "model")
    (folder / PREPARING).unlink()
    with pytest.raises(NoSuchModel, match=r"no preprocessor_config\.json"):
        open_vision(folder)


def test_names_lead_to_what_sees(tmp_path: Path) -> None:
    seeing = locate(str(load("vit").write(tmp_path / "vit")), tmp_path).open()
    assert isinstance(seeing, SourceVision)
    with pytest.raises(UnknownArchitecture, match="computes outputs of inputs and answers no questions"):
        answering(seeing)
    talking = locate(str(load("llava").write(tmp_path / "llava")), tmp_path).open()
    assert isinstance(talking, SourceVision)
    assert answering(talking) is talking.decoder
