"""What a blob will hold before any of it is computed: its tensors at their offsets, and the source rows that each row
of them comes from.

A part is written a few rows at a time, so that no more than a few megabytes of a model of any size are in memory, and
parts of a blob do not depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.model.checked_fields import DTYPE_BYTES, DType, StoredTensor
from planner.model.sources import SourceTensor

ALIGN: Final = 64  # bytes; a cache line, so that kernels may load stored tensors in place
VALUES_AT_ONCE: Final = (
    1 << 19
)  # weights of a chunk: 2 MiB as float32, so that what is made of them stays in the cache

Array = npt.NDArray[Any]
Tensors = dict[str, Array]
Encode = Callable[[SourceTensor], Tensors]
_NUMPY: Final[dict[DType, str]] = {"f32": "<f4", "f16": "<f2", "u8": "u1"}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source tensor that become rows from `first` on of the stored tensors that `encode` makes of them.
    `height`: how many rows these have, where their first axis does not say it.
    """

    source: SourceTensor
    first: int
    encode: Encode
    height: int | None = None


@dataclass(frozen=True, slots=True)
class BlobPlan:
    """Stored tensors, each aligned, and where their rows come from."""

    tensors: tuple[StoredTensor, ...]
    rows: tuple[Rows, ...]

    @property
    def bytes(self) -> int:
        """The size of the blob, padding included."""
        return sum(_padded(tensor.bytes) for tensor in self.tensors)

    def chunks(self) -> Iterator[Callable[[], list[tuple[int, memoryview]]]]:
        """Each makes some rows: (offset, bytes) of every piece. Calling it raises CorruptModel for bad weights."""
        places = {tensor.name: tensor for tensor in self.tensors}
        for rows in self.rows:
            shape = rows.source.shape
            height = shape[0] if len(shape) > 1 else 1
            step = max(1, VALUES_AT_ONCE * height // max(math.prod(shape), 1))
            for start in range(0, height, step):
                stop = min(start + step, height)
                yield lambda rows=rows, start=start, stop=stop, height=height: _made(  # type: ignore[misc]
                    places, rows, start, stop, height
                )


def planned(shapes: Sequence[tuple[str, DType, tuple[int, ...]]], rows: Sequence[Rows]) -> BlobPlan:
    """Tensors of these names, types and shapes one behind another."""
    tensors: list[StoredTensor] = []
    offset = 0
    for name, dtype, shape in shapes:
        size = math.prod(shape) * DTYPE_BYTES[dtype]
        tensors.append(StoredTensor(name, dtype, shape, offset, size))
        offset += _padded(size)
    return BlobPlan(tuple(tensors), tuple(rows))


def _made(
    places: dict[str, StoredTensor], rows: Rows, start: int, stop: int, height: int
) -> list[tuple[int, memoryview]]:
    source = rows.source if stop - start == height else rows.source.rows(start, stop)
    found = []
    for name, array in rows.encode(source).items():
        tensor = places[name]
        row_bytes = tensor.bytes // (rows.height or tensor.shape[0])
        stored = np.ascontiguousarray(array, _NUMPY[tensor.dtype])
        offset = tensor.offset + (rows.first + start) * row_bytes
        found.append((offset, memoryview(stored.reshape(-1).view(np.uint8).data)))
    return found


def _padded(size: int) -> int:
    return size + -size % ALIGN
