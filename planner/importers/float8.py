"""Weights of 8-bit floats (E4M3 without infinity) with a scale for each tile of a matrix, as of DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptModel, UnknownArchitecture

FP8: Final = "F8_E4M3"  # as files call it
METHOD: Final = "fp8"  # as config.json does
SCALES: Final = "_scale_inv"  # behind the name of a matrix: what its numbers are multiplied with
MOST_SIDE: Final = 1 << 14  # of a tile
_SIDES: Final = (128, 128)
_BIAS, _MANTISSA = 7, 8  # of exponents; steps between two of them

Floats = npt.NDArray[np.float32]


def _numbers() -> Floats:
    """The number of each byte: sign, four bits of exponent, three of mantissa; all ones are no number."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    small = mantissa / _MANTISSA * 2.0 ** (1 - _BIAS)
    large = (1 + mantissa / _MANTISSA) * 2.0 ** (exponent - _BIAS)
    found = np.where(exponent == 0, small, large) * np.where(codes >> 7, -1, 1)
    found[(codes & 127) == 127] = np.nan
    return found.astype(np.float32)


NUMBERS: Final = _numbers()


@dataclass(frozen=True, slots=True)
class Tiles:
    """Scales of the tiles of a matrix of `columns`, (tiles down, tiles across); each tile has `height` rows of `width`
    numbers but for those at the ends.
    """

    scales: Floats
    columns: int
    height: int
    width: int

    def numbers(self, payload: npt.NDArray[np.uint8], rows: npt.NDArray[np.intp] | None = None) -> Floats:
        """What the bytes of the matrix stand for: float32 (rows, columns), of all rows or of those."""
        stored = payload.reshape(-1, self.columns)
        rows = np.arange(len(stored)) if rows is None else rows
        wide = np.repeat(self.scales[rows // self.height], self.width, axis=1)[:, : self.columns]
        found: Floats = NUMBERS[stored[rows]] * wide
        return found


def sides_of(config: Mapping[str, Any] | None, where: str) -> tuple[int, int]:
    """Rows and columns of a tile, as config.json says. Raises UnknownArchitecture."""
    packing = (config or {}).get("quantization_config")
    said = packing.get("weight_block_size", list(_SIDES)) if isinstance(packing, dict) else list(_SIDES)
    match said:
        case [int(height), int(width)] if 1 <= height <= MOST_SIDE and 1 <= width <= MOST_SIDE:
            return height, width
    raise UnknownArchitecture(
        f"{where}: float8 weights with a scale for each tile expected (weight_block_size [128, 128]), got {said!r:.60}"
    )


def tiles_of(
    name: str, shape: tuple[int, ...], scales: Floats | None, sides: tuple[int, int], where: str
) -> Tiles:
    """The tiles of the matrix `name` of that shape. Raises UnknownArchitecture, CorruptModel."""
    if scales is None:
        raise UnknownArchitecture(
            f"{where}: tensor {name} is {FP8} without {name}{SCALES}: scales of its tiles expected"
        )
    tiles = tuple(-(-size // side) for size, side in zip(shape, sides, strict=False))
    if len(shape) != len(sides) or scales.shape != tiles or not np.isfinite(scales).all():
        raise CorruptModel(
            f"{where}: tensor {name}{SCALES} should have a finite number for each tile of {sides[0]} x {sides[1]} of "
            f"{shape}, is {scales.shape}"
        )
    return Tiles(scales, shape[1], *sides)
