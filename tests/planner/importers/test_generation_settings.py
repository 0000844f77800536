"""What model files say of how answers are drawn: Hugging Face's generation_config.json and GGUF's general.sampling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import CorruptModel
from planner.importers.decoder_units import build_model
from planner.importers.generation_settings import of_folder, of_gguf
from planner.importers.gguf import open_gguf
from planner.importers.gguf_file import GgufFile
from planner.importers.safetensors import open_safetensors
from planner.model.manifest import decode_manifest
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.store import Store
from tests.planner.tiny_models import TinyModel

LLAMA_3 = {"bos_token_id": 128000, "do_sample": True, "temperature": 0.6, "top_p": 0.9}
QWEN_3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
QWEN_25 = {**QWEN_3, "temperature": 0.7, "top_p": 0.8, "repetition_penalty": 1.05}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (None, None),
        ({}, None),
        ({"eos_token_id": 2, "max_length": 2048, "temperature": None}, None),
        (LLAMA_3, SamplingDefaults(0.6, top_p=0.9)),
        (QWEN_3, SamplingDefaults(0.6, 20, 0.95)),
        (QWEN_25, SamplingDefaults(0.7, 20, 0.8, 0.0, 1.05)),
        ({"do_sample": True}, SamplingDefaults(1.0)),
        ({"temperature": 0.6}, SamplingDefaults(0.6)),
        ({"top_k": 64, "min_p": 0.05}, SamplingDefaults(1.0, 64, min_p=0.05)),
        ({"top_k": -1, "temperature": 1}, SamplingDefaults(1.0)),
        ({"temperature": 0}, SamplingDefaults(0.0)),
        ({"do_sample": False}, SamplingDefaults(0.0)),
        ({**QWEN_25, "do_sample": False}, SamplingDefaults(0.0, repetition_penalty=1.05)),
        ({"repetition_penalty": 1.1}, SamplingDefaults(0.7, top_p=0.95, repetition_penalty=1.1)),
    ],
)
def test_of_a_folder(config: dict[str, Any] | None, found: SamplingDefaults | None, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert of_folder(tmp_path) == found


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"do_sample": "yes"}, "do_sample should be true or false"),
        ({"temperature": "hot"}, "temperature should be a finite number"),
        ({"temperature": True}, "temperature should be a finite number"),
        ({"temperature": float("nan")}, "temperature should be a finite number"),
        ({"temperature": -0.1}, "temperature should be a number from 0 to 100, is -0.1"),
        ({"top_k": 2.5}, "top_k should be a whole number"),
        ({"top_k": 2**40}, "top_k should be a whole number"),
        ({"top_p": 0}, "top_p should be a number from"),
        ({"top_p": 1.01}, "top_p should be a number from"),
        ({"min_p": 2}, "min_p should be a number from 0 to 1"),
        ({"do_sample": False, "repetition_penalty": 0}, "repetition_penalty should be a number from 0.01"),
    ],
)
def test_what_a_folder_may_not_say(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    with pytest.raises(CorruptModel, match=words):
        of_folder(tmp_path)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, None),
        ({"sequence": "k;p;t"}, None),
        ({"temp": 0.6000000238, "top_p": 0.949999988, "top_k": 20}, SamplingDefaults(0.6, 20, 0.95)),
        (
            {"temp": 0.7, "min_p": 0.05, "penalty_repeat": 1.05},
            SamplingDefaults(0.7, min_p=0.05, repetition_penalty=1.05),
        ),
        ({"top_k": -1, "temp": 1.0}, SamplingDefaults(1.0)),
    ],
)
def test_of_a_gguf_file(said: dict[str, Any], found: SamplingDefaults | None) -> None:
    keys = {f"general.sampling.{name}": value for name, value in said.items()}
    assert of_gguf(GgufFile(Path("m.gguf"), keys, {})) == found


def test_what_a_gguf_file_may_not_say() -> None:
    with pytest.raises(CorruptModel, match=r"m\.gguf: general\.sampling\.top_p should be a number from"):
        of_gguf(GgufFile(Path("m.gguf"), {"general.sampling.top_p": 2.0}, {}))


def test_an_import_pins_them_with_the_model(tiny_model: TinyModel, tmp_path: Path) -> None:
    """The same files without settings are another model, with the id that they always had."""
    folder = tiny_model.write_folder(tmp_path / "m")
    store = Store(tmp_path / "store")
    plain = build_model(open_safetensors(folder), "8bit", store)
    assert decode_manifest(store.manifest_bytes(plain)).sampling is None
    (folder / "generation_config.json").write_text(json.dumps(QWEN_25))
    says = build_model(open_safetensors(folder), "8bit", store)
    assert decode_manifest(store.manifest_bytes(says)).sampling == SamplingDefaults(0.7, 20, 0.8, 0.0, 1.05)
    assert says != plain
    assert open_gguf(tiny_model.write_gguf(tmp_path / "m.gguf")).sampling is None
