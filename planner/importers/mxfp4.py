"""Numbers of MXFP4 (OCP Microscaling Formats 1.0, section 5.3): 4 bits each, and a power of two for 32 of them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

BLOCK: Final = 32
_HALVES: Final = (0, 1, 2, 3, 4, 6, 8, 12)  # of the numbers without their sign
FP4_8BIT: Final = np.array([128 + half for half in _HALVES] + [128 - half for half in _HALVES], np.uint8)
_SCALES: Final = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)  # of halves
_SCALES[255] = np.nan  # stands for no number


def fp4_scales(exponents: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """By what to multiply FP4_8BIT - 128, from the biased exponents of blocks: NaN where they are 255."""
    found: npt.NDArray[np.float32] = _SCALES[exponents]
    return found


def alternating_nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(rows, bytes) -> (rows, 2 * bytes): of each byte the low half, then the high one, as in safetensors files."""
    found = np.empty((packed.shape[0], 2 * packed.shape[1]), np.uint8)
    found[:, ::2], found[:, 1::2] = packed & 0x0F, packed >> 4
    return found
