"""Weights of 8-bit floats with a scale for each tile: the numbers of ml_dtypes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from planner.errors import CorruptModel, ModelError, UnknownArchitecture
from planner.importers.float8 import NUMBERS
from planner.importers.safetensors import open_safetensors, read_files
from tests.planner.importers.families.checkpoints import Floats, load, write_folder

SIDE = 16  # of a tile
Bytes = npt.NDArray[np.uint8]


def packed(weight: Floats) -> tuple[Bytes, Floats]:
    """The bytes of a matrix, and the scale of each tile, by which its largest number is the largest of float8."""
    down, across = (-(-size // SIDE) for size in weight.shape)
    scales = np.empty((down, across), np.float32)
    found = np.empty(weight.shape, ml_dtypes.float8_e4m3fn)
    for row in range(down):
        for column in range(across):
            tile = np.s_[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE]
            scales[row, column] = np.abs(weight[tile]).max() / np.float32(448)
            found[tile] = (weight[tile] / scales[row, column]).astype(ml_dtypes.float8_e4m3fn)
    return found.view(np.uint8), scales


def unpacked(stored: Bytes, scales: Floats) -> Floats:
    """The numbers that they stand for."""
    numbers: Floats = stored.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    wide = np.repeat(np.repeat(scales, SIDE, 0), SIDE, 1)
    return numbers * wide[: numbers.shape[0], : numbers.shape[1]]


def safetensors(tensors: dict[str, tuple[str, npt.NDArray[Any]]]) -> bytes:
    header, body = dict[str, Any](), bytearray()
    for name, (kind, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(body)


def folders(root: Path, case: str) -> tuple[Path, Path]:
    """A checkpoint whose matrices are float8 but for embedding, head and router, and one of the same plain numbers."""
    checkpoint = load(case)
    ours, plain = (write_folder(checkpoint, root / name) for name in ("float8", "plain"))
    tensors: dict[str, tuple[str, npt.NDArray[Any]]] = {}
    same: dict[str, tuple[str, npt.NDArray[Any]]] = {}
    for name, weight in checkpoint.weights().items():
        tensors[name] = same[name] = ("F32", weight)
        if weight.ndim == 2 and "layers" in name and not name.endswith("gate.weight"):
            stored, scales = packed(weight)
            tensors[name] = ("F8_E4M3", stored)
            tensors[f"{name}_scale_inv"] = ("F32", scales)
            same[name] = ("F32", unpacked(stored, scales))
    assert len(tensors) > len(same) + 10
    (ours / "model.safetensors").write_bytes(safetensors(tensors))
    (plain / "model.safetensors").write_bytes(safetensors(same))
    changed(ours, {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [SIDE, SIDE]})
    return ours, plain


def changed(folder: Path, packing: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": packing}))


def test_each_byte_is_the_number_of_ml_dtypes() -> None:
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(NUMBERS, expected)


@pytest.mark.parametrize("case", ["deepseek-v3", "qwen3-moe", "starcoder2"])
def test_a_folder_reads_as_the_numbers_that_it_stands_for(case: str, tmp_path: Path) -> None:
    ours, plain = (open_safetensors(folder) for folder in folders(tmp_path, case))
    assert ours.tensors.keys() == plain.tensors.keys()
    for name, expected in plain.tensors.items():
        found = ours.tensors[name]
        np.testing.assert_array_equal(found.float32(), expected.float32(), err_msg=name)
        if len(found.shape) == 2 and found.shape[0] > SIDE:
            rows = found.rows(3, SIDE + 1)
            np.testing.assert_array_equal(rows.float32(), expected.float32()[3 : SIDE + 1], err_msg=name)
            np.testing.assert_array_equal(rows.rows(2, 5).float32(), expected.float32()[5:8], err_msg=name)


WEIGHT = "model.layers.0.mlp.down_proj.weight"
STORED = np.zeros((20, 40), np.uint8)
BAD: dict[str, tuple[dict[str, tuple[str, npt.NDArray[Any]]], Any, type[ModelError], str]] = {
    "no scales": ({WEIGHT: ("F8_E4M3", STORED)}, [16, 16], UnknownArchitecture, "without .*_scale_inv"),
    "scales of other tiles": (
        {WEIGHT: ("F8_E4M3", STORED), f"{WEIGHT}_scale_inv": ("F32", np.ones((2, 2), np.float32))},
        [16, 16],
        CorruptModel,
        "for each tile of 16 x 16",
    ),
    "scales that are no numbers": (
        {WEIGHT: ("F8_E4M3", STORED), f"{WEIGHT}_scale_inv": ("F32", np.full((2, 3), np.nan, np.float32))},
        [16, 16],
        CorruptModel,
        "a finite number",
    ),
    "a row": (
        {WEIGHT: ("F8_E4M3", STORED[0]), f"{WEIGHT}_scale_inv": ("F32", np.ones(3, np.float32))},
        [16, 16],
        CorruptModel,
        "for each tile of 16 x 16",
    ),
    "tiles of nothing": ({WEIGHT: ("F8_E4M3", STORED)}, [0, 16], UnknownArchitecture, "weight_block_size"),
    "one scale for all": ({WEIGHT: ("F8_E4M3", STORED)}, None, UnknownArchitecture, "weight_block_size"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_matrix_of_tiles_is_refused(case: str, tmp_path: Path) -> None:
    tensors, sides, error, says = BAD[case]
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
    (tmp_path / "config.json").write_text("{}")
    changed(tmp_path, {"quant_method": "fp8", "weight_block_size": sides})
    with pytest.raises(error, match=says):
        read_files(tmp_path)
