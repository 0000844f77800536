"""Decides which arrays may cross the wire and how their bytes lie (docs/protocol.md, chapter Tensors)."""

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from peer.errors import WrongTensor
from peer.limits import MAX_RANK, MAX_TENSOR_BYTES


class Dtype(IntEnum):
    """Data type codes on the wire."""

    FLOAT32 = 1
    INT32 = 2


_NUMPY: Final[dict[int, np.dtype[Any]]] = {Dtype.FLOAT32: np.dtype("<f4"), Dtype.INT32: np.dtype("<i4")}
_ITEM_BYTES: Final = 4  # both types


@dataclass(frozen=True, slots=True)
class Tensor:
    """A typed array as it travels: row-major, little-endian. `data` holds prod(shape) items."""

    dtype: Dtype
    shape: tuple[int, ...]
    data: bytes

    def array(self) -> NDArray[Any]:
        """A read-only view, shaped `shape`."""
        return np.frombuffer(self.data, _NUMPY[self.dtype]).reshape(self.shape)


def tensor_of(array: NDArray[Any]) -> Tensor:
    """The tensor for a float32 array, or an array of integers that fit into 32 bits.

    Raises WrongTensor for other data types, for integers out of range, too many dimensions or too many bytes.
    """
    match array.dtype.kind:
        case "f" if array.dtype.itemsize == _ITEM_BYTES:
            dtype, wire = Dtype.FLOAT32, array
        case "i" | "u":
            wire = array.astype("<i4", copy=False)
            if wire.dtype != array.dtype and not np.array_equal(wire, array):
                raise WrongTensor("expected integers that fit into 32 bits, got larger; send token ids only")
            dtype = Dtype.INT32
        case _:
            raise WrongTensor(f"expected a float32 or integer array, got {array.dtype}; convert it first")
    if array.ndim > MAX_RANK or wire.nbytes > MAX_TENSOR_BYTES:
        raise WrongTensor(
            f"expected at most {MAX_RANK} dimensions and {MAX_TENSOR_BYTES} bytes, "
            f"got shape {array.shape} of {wire.nbytes} bytes; send smaller chunks"
        )
    return Tensor(dtype, array.shape, np.ascontiguousarray(wire, _NUMPY[dtype]).tobytes())


def tensor_from_wire(dtype: int, shape: tuple[int, ...], data: bytes) -> Tensor:
    """The tensor for header fields and payload of a frame. Raises WrongTensor unless they agree."""
    if dtype not in _NUMPY:
        raise WrongTensor(f"expected a data type code of {[int(d) for d in Dtype]}, got {dtype}")
    if len(shape) > MAX_RANK:
        raise WrongTensor(f"expected at most {MAX_RANK} dimensions, got {len(shape)}")
    wanted = prod(shape) * _ITEM_BYTES
    if wanted > MAX_TENSOR_BYTES or wanted != len(data):
        raise WrongTensor(
            f"expected {wanted} bytes (at most {MAX_TENSOR_BYTES}) for shape {list(shape)}, got {len(data)}"
        )
    return Tensor(Dtype(dtype), shape, data)
