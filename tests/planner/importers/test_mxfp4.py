"""Experts of MXFP4: from a folder and from a GGUF file, in 8 bits without loss."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from planner.errors import CorruptModel, ModelError, UnknownArchitecture
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.importers.safetensors import open_safetensors
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.planner.importers.families import gguf_files
from tests.planner.importers.families.checkpoints import Checkpoint, Floats, load, write_folder
from tests.planner.tiny_models import safetensors_bytes

MXFP4: Final = GGMLQuantizationType.MXFP4
Bytes = npt.NDArray[np.uint8]
Packed = dict[str, tuple[Bytes, Bytes]]  # by name of the plain tensor: blocks and scales


@dataclass(frozen=True)
class Mixture:
    """gpt-oss with experts in MXFP4. `plain`: the same numbers as tensors of a folder; `raw`: rows of GGUF."""

    checkpoint: Checkpoint
    plain: dict[str, Floats]
    raw: dict[str, Bytes]
    packed: Packed


@pytest.fixture(scope="module")
def mixture() -> Mixture:
    checkpoint = load("gpt-oss")
    plain, raw, packed = dict(checkpoint.weights()), {}, {}
    for name in [name for name in plain if name.endswith(("gate_up_proj", "down_proj"))]:
        rows = np.ascontiguousarray(plain[name].swapaxes(1, 2))  # (experts, rows, columns)
        raw[name] = quantize(rows, MXFP4)
        plain[name] = np.ascontiguousarray(dequantize(raw[name], MXFP4).swapaxes(1, 2))
        packed[name] = as_folder(raw[name])
    return Mixture(checkpoint, plain, raw, packed)


def as_folder(raw: Bytes) -> tuple[Bytes, Bytes]:
    """Blocks of GGUF, whose low halves come first, as neighbours in a byte, and their scales."""
    blocks = raw.reshape(*raw.shape[:-1], -1, 17)
    scales, nibbles = blocks[..., 0], blocks[..., 1:]
    numbers = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
    return numbers[..., ::2] | numbers[..., 1::2] << 4, np.ascontiguousarray(scales)


def write_packed(mixture: Mixture, folder: Path, packed: Packed, **config: Any) -> Path:
    """As OpenAI publishes it."""
    write_folder(mixture.checkpoint, folder)
    tensors: dict[str, npt.NDArray[Any]] = {n: w for n, w in mixture.plain.items() if n not in mixture.packed}
    for name, (blocks, scales) in packed.items():
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, "F32"))
    said = {**mixture.checkpoint.config, "quantization_config": {"quant_method": "mxfp4"}, **config}
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def test_a_folder_and_a_file_are_the_numbers_that_they_stand_for(mixture: Mixture, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plain = write_folder(mixture.checkpoint, tmp_path / "plain")
    (plain / "model.safetensors").write_bytes(safetensors_bytes(mixture.plain, "F32"))
    packed = open_safetensors(write_packed(mixture, tmp_path / "packed", mixture.packed), "model")
    file = gguf_files.write(mixture.checkpoint, tmp_path / "model.gguf", mixture.raw)

    def units(source: Any, weights: Any) -> Any:
        return decode_manifest(store.manifest_bytes(build_model(source, weights, store))).units

    assert units(packed, "f32") == units(open_safetensors(plain, "model"), "f32")
    assert units(open_gguf(file), "8bit") == units(packed, "8bit")
    for source in (packed, open_gguf(file)):
        for name in ("ffn.1.gate_e5", "ffn.0.down_e0"):
            tensor = source.tensor(name)
            blocks = tensor.blocks()
            assert blocks is not None
            scaled = (blocks.q.astype(np.float64) - 128).reshape(*blocks.d.shape, 32) * blocks.d[..., None]
            np.testing.assert_array_equal(scaled.reshape(tensor.shape), tensor.float32())
            np.testing.assert_array_equal(tensor.rows(3, 9).float32(), tensor.float32()[3:9])
    assert len(units(packed, "4bit")) == len(units(packed, "8bit"))


def test_what_is_no_mxfp4_is_refused(mixture: Mixture, tmp_path: Path) -> None:
    name, (blocks, scales) = next(iter(mixture.packed.items()))
    no_number = scales.copy()
    no_number[0, 0, 0] = 255
    cases: dict[str, tuple[Packed, dict[str, Any], type[ModelError], str]] = {
        "few scales": ({name: (blocks, scales[..., :1])}, {}, CorruptModel, "beside its scales"),
        "half blocks": ({name: (blocks[..., :8], scales)}, {}, CorruptModel, "beside its scales"),
        "no experts": ({name: (blocks[0], scales)}, {}, CorruptModel, "beside its scales"),
        "other experts": ({name: (blocks[:2], scales[:2])}, {}, CorruptModel, "should be"),
        "another method": (
            {},
            {"quantization_config": {"quant_method": "awq"}},
            UnknownArchitecture,
            "quantized",
        ),
        "a scale that is no number": ({name: (blocks, no_number)}, {}, CorruptModel, "finite"),
    }
    for number, (case, (changes, config, error, words)) in enumerate(cases.items()):
        folder = write_packed(mixture, tmp_path / str(number), {**mixture.packed, **changes}, **config)
        with pytest.raises(error, match=words):
            build_model(open_safetensors(folder), "8bit", Store(tmp_path / "store"))
        assert case
