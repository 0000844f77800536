"""Which arrays may stand for a value of a model, and how their bytes lie on the wire (docs/protocol.md, chapter Runs).

Row-major, little-endian. Strings are UTF-8, each after its length (4 bytes). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from peer.errors import WrongTensor
from peer.limits import MAX_VALUE_BYTES
from planner.model.graph_manifest import GraphManifest, Value, ValueType

Array = npt.NDArray[Any]

LENGTH_BYTES: Final = 4
NUMPY: Final[Mapping[ValueType, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "int16": np.dtype("<i2"),
    "uint16": np.dtype("<u2"),
    "int32": np.dtype("<i4"),
    "uint32": np.dtype("<u4"),
    "int64": np.dtype("<i8"),
    "uint64": np.dtype("<u8"),
    "bool": np.dtype("?"),
    "complex64": np.dtype("<c8"),
    "complex128": np.dtype("<c16"),
    "string": np.dtype(object),
}


def checked(array: Array, value: Value) -> Array:
    """Returns `array` as the value wants it. Raises WrongTensor for another type or shape, or too many bytes."""
    wanted = _numpy(value)
    if value.dtype == "string":
        if array.dtype.kind not in "UO":
            raise WrongTensor(f"{value.name}: an array of strings expected, got {array.dtype}")
        array = array.astype(object)
    elif array.dtype != wanted:
        raise WrongTensor(
            f"{value.name}: an array of {value.dtype} expected, got {array.dtype}; convert it first"
        )
    check_shape(array.shape, value)
    if array.nbytes > MAX_VALUE_BYTES:
        raise WrongTensor(f"{value.name}: at most {MAX_VALUE_BYTES} bytes expected, got {array.nbytes}")
    return array


def arrays_of(manifest: GraphManifest, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    """What may stand for inputs, such as lists, as arrays; arrays stay as they are. Raises WrongTensor."""
    values = {value.name: value for value in manifest.values if value.name in manifest.inputs}
    found: dict[str, Array] = {}
    for name, given in inputs.items():
        value = values.get(name)
        plain = value is not None and not isinstance(given, np.ndarray | np.generic)
        try:
            found[name] = (
                np.asarray(given, _numpy(value)) if plain and value is not None else np.asarray(given)
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise WrongTensor(f"{name}: what makes an array expected: {error}") from None
    return found


def check_shape(shape: Sequence[int], value: Value) -> None:
    """Raises WrongTensor unless the shape has the value's axes; symbolic sizes are any."""
    fits = len(shape) == len(value.shape) and all(
        isinstance(size, str) or size == given for size, given in zip(value.shape, shape, strict=True)
    )
    if not fits:
        words = ", ".join(map(str, value.shape))
        raise WrongTensor(f"{value.name}: shape ({words}) expected, got {tuple(shape)}")


def check_total(total: int, shape: Sequence[int], value: Value) -> None:
    """Raises WrongTensor unless so many bytes hold a value of that shape. Strings: at least their lengths."""
    count, dtype = math.prod(shape), _numpy(value)
    least = count * (LENGTH_BYTES if value.dtype == "string" else dtype.itemsize)
    if total > MAX_VALUE_BYTES or total < least or (total != least and value.dtype != "string"):
        raise WrongTensor(f"{value.name}: {least} bytes expected for shape {tuple(shape)}, got {total}")


def held_bytes(array: Array) -> int:
    """What keeping an array takes: as many bytes as it has on the wire."""
    if array.dtype != object:
        return array.nbytes
    return sum(LENGTH_BYTES + len(str(word).encode()) for word in array.reshape(-1))


def to_bytes(array: Array, value: Value) -> bytes | memoryview:
    """The bytes of an array that was checked."""
    if value.dtype == "string":
        words = [str(word).encode() for word in array.reshape(-1)]
        return b"".join(len(word).to_bytes(LENGTH_BYTES, "little") + word for word in words)
    plain = np.ascontiguousarray(array, _numpy(value))
    return memoryview(plain.reshape(-1).view(np.uint8).data)


def from_bytes(data: bytes | bytearray, shape: Sequence[int], value: Value) -> Array:
    """The array in `data`. Raises WrongTensor unless shape and bytes agree."""
    check_shape(shape, value)
    check_total(len(data), shape, value)
    if value.dtype != "string":
        return np.frombuffer(data, _numpy(value)).reshape(tuple(shape))
    words, at = list[str](), 0
    for _ in range(math.prod(shape)):
        stop = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "little")
        if stop > len(data):
            raise WrongTensor(f"{value.name}: a string ends after the {len(data)} bytes of the value")
        try:
            words.append(bytes(data[at + LENGTH_BYTES : stop]).decode())
        except UnicodeDecodeError:
            raise WrongTensor(f"{value.name}: strings in UTF-8 expected") from None
        at = stop
    if at != len(data):
        raise WrongTensor(f"{value.name}: {at} bytes of strings expected, got {len(data)}")
    return np.array(words, object).reshape(tuple(shape))


def _numpy(value: Value) -> np.dtype[Any]:
    dtype = NUMPY.get(value.dtype)
    if dtype is None:
        raise WrongTensor(
            f"{value.name}: values of {value.dtype} cannot leave a peer; import the model again"
        )
    return dtype
