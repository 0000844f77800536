"""What a GGUF file says: its metadata and where each tensor's bytes lie. No count is believed unchecked.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3, little-endian. Nothing is
copied but strings; tensor bytes stay in the memory map until they are asked for.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from planner.errors import CorruptModel, NoSuchModel

Scalar = int | float | bool | str
Value = Scalar | list[str] | npt.NDArray[np.generic]

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
MAX_NAME_BYTES = 65_535  # the format's limit for keys; tensor names are shorter still
MAX_SHARDS = 10_000
SHARD_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, str] = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    _BOOL: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor as stored. `shape`: rows first, unlike in the file; `payload`: (rows..., bytes)."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    payload: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata and tensors of one GGUF model, all its shards joined."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, FileTensor]

    def text(self, key: str) -> str | None:
        """A string value, None when absent."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a string", value)

    def number(self, key: str) -> float | None:
        """A finite number, None when absent. A list whose items are all equal counts as that number."""
        value = self.metadata.get(key)
        if isinstance(value, np.ndarray) and value.size and bool((value == value[0]).all()):
            value = value[0].item()
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self._wrong(key, "a finite number", value)
        return value

    def whole(self, key: str) -> int | None:
        """A whole number of 0 or more, None when absent."""
        value = self.number(key)
        if value is None:
            return None
        if value < 0 or value != int(value):
            raise self._wrong(key, "a whole number", value)
        return int(value)

    def flag(self, key: str) -> bool | None:
        """A truth value, None when absent."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false", value)

    def texts(self, key: str) -> list[str] | None:
        """A list of strings, None when absent."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, list):
            return value
        if isinstance(value, np.ndarray) and not value.size:
            return []
        raise self._wrong(key, "a list of strings", value)

    def numbers(self, key: str) -> npt.NDArray[np.generic] | None:
        """A list of numbers, None when absent."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, np.ndarray):
            return value
        raise self._wrong(key, "a list of numbers", value)

    def _wrong(self, key: str, expected: str, value: Value) -> CorruptModel:
        return CorruptModel(f"{self.path.name}: {key} should be {expected}, is {str(value)[:60]!r}")


def read_gguf(path: Path) -> GgufFile:
    """Opens a GGUF file, or every shard of a split one (any shard's path will do)."""
    paths = shard_paths(path)
    if len(paths) == 1:
        return _read_one(paths[0])
    parts = [_read_one(part) for part in paths]
    tensors: dict[str, FileTensor] = {}
    for part in parts:
        if twice := tensors.keys() & part.tensors.keys():
            raise CorruptModel(f"{part.path.name}: tensor {min(twice)} is in an earlier shard too")
        tensors.update(part.tensors)
    expected = parts[0].whole("split.tensors.count")
    if expected is not None and expected != len(tensors):
        raise CorruptModel(
            f"{path.name}: the {len(parts)} shards should hold {expected} tensors, hold {len(tensors)}"
        )
    return GgufFile(paths[0], parts[0].metadata, tensors)


def model_stem(path: Path) -> str:
    """The file's name without suffix and shard number: what people call the model."""
    match = SHARD_NAME.fullmatch(path.name)
    return match["stem"] if match else path.stem


def shard_paths(path: Path) -> list[Path]:
    """Every file of the model that `path` is one of, in order. Raises CorruptModel or NoSuchModel."""
    match = SHARD_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= count <= MAX_SHARDS or not 1 <= int(match["number"]) <= count:
        raise CorruptModel(f"{path.name}: shard numbers should run from 00001 to the count")
    paths = [path.with_name(f"{match['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    if missing := [part.name for part in paths if not part.is_file()]:
        raise NoSuchModel(
            f"{path.name} is one of {count} shards and {len(missing)} are missing beside it, the first is "
            f"{missing[0]}: put them all into one folder"
        )
    return paths


def _read_one(path: Path) -> GgufFile:
    try:
        size = path.stat().st_size
        if size == 0:
            raise CorruptModel(f"{path.name} is empty: download it again")
        content: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
    except FileNotFoundError as error:
        raise NoSuchModel(f"there is no file {path}") from error
    except OSError as error:
        raise NoSuchModel(f"{path} cannot be read: {error.strerror}") from error
    return _Reader(path, content).file()


class _Reader:
    """A cursor over the header. Every read says how far it goes and fails with CorruptModel past the end."""

    def __init__(self, path: Path, content: npt.NDArray[np.uint8]) -> None:
        self._path = path
        self._content = content
        self._view = content.data
        self._at = 0

    def file(self) -> GgufFile:
        if bytes(self._take(4, "the magic")) != MAGIC:
            raise self._corrupt("not a GGUF file (it does not start with GGUF)")
        version = self._u32("the version")
        if version & 0xFFFF == 0 and version:
            raise self._corrupt("big-endian GGUF; convert it to little-endian with gguf-convert-endian first")
        if version not in (2, 3):
            raise self._corrupt(f"expected GGUF version 2 or 3, got {version}; convert the model again")
        tensor_count = self._count("tensors", 24)  # name length, dimensions, kind and offset take 24 bytes
        value_count = self._count("metadata values", 12)
        metadata: dict[str, Value] = {}
        for _ in range(value_count):
            key = self._string("a metadata key", MAX_NAME_BYTES)
            if key in metadata:
                raise self._corrupt(f"metadata {key} appears twice")
            metadata[key] = self._value(key, self._u32(f"the type of {key}"))
        infos = [self._tensor_info() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._corrupt(f"general.alignment should be a power of two, is {str(alignment)[:40]}")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, FileTensor] = {}
        for name, kind, shape, offset in infos:
            if name in tensors:
                raise self._corrupt(f"tensor {name} appears twice")
            tensors[name] = self._tensor(name, kind, shape, start + offset)
        return GgufFile(self._path, metadata, tensors)

    def _tensor_info(self) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int]:
        name = self._string("a tensor name", MAX_NAME_BYTES)
        dimensions = self._u32(f"the dimensions of {name}")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise self._corrupt(f"tensor {name}: expected 1 to {MAX_DIMENSIONS} dimensions, got {dimensions}")
        shape = tuple(self._u64(f"the shape of {name}") for _ in range(dimensions))[::-1]
        number = self._u32(f"the type of {name}")
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise self._corrupt(
                f"tensor {name} has type {number}, which this gguf package does not know"
            ) from error
        return name, kind, shape, self._u64(f"the offset of {name}")

    def _tensor(
        self, name: str, kind: GGMLQuantizationType, shape: tuple[int, ...], start: int
    ) -> FileTensor:
        if kind not in GGML_QUANT_SIZES:
            raise self._corrupt(
                f"tensor {name} has type {kind.name}, whose size the gguf package does not know"
            )
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if not all(shape) or shape[-1] % block:
            raise self._corrupt(
                f"tensor {name}: {kind.name} needs columns in multiples of {block}, shape is {shape}"
            )
        row_bytes = shape[-1] // block * block_bytes
        length = math.prod(shape[:-1]) * row_bytes
        if start + length > len(self._content):
            raise self._corrupt(
                f"the file ends early: tensor {name} needs bytes up to {start + length}, the file has "
                f"{len(self._content)}; download it again"
            )
        payload = self._content[start : start + length].reshape(*shape[:-1], row_bytes)
        return FileTensor(name, kind, shape, payload)

    def _value(self, key: str, kind: int) -> Value:
        if kind == _STRING:
            return self._string(key, len(self._content))
        if kind == _ARRAY:
            return self._array(key)
        dtype = self._dtype(key, kind)
        scalar = np.frombuffer(self._take(dtype.itemsize, key), dtype)[0].item()
        if kind == _BOOL:
            return bool(scalar)
        assert isinstance(scalar, (int, float))
        return scalar

    def _array(self, key: str) -> Value:
        kind = self._u32(f"the item type of {key}")
        if kind == _ARRAY:
            raise self._corrupt(f"metadata {key} is a list of lists, which no model needs")
        if kind == _STRING:
            return [self._string(key, len(self._content)) for _ in range(self._count(key, 8))]
        dtype = self._dtype(key, kind)
        count = self._count(key, dtype.itemsize)
        return np.frombuffer(self._take(count * dtype.itemsize, key), dtype)

    def _dtype(self, key: str, kind: int) -> np.dtype[np.generic]:
        if kind not in _SCALARS:
            raise self._corrupt(f"metadata {key} has the unknown type {kind}")
        return np.dtype(_SCALARS[kind])

    def _count(self, what: str, item_bytes: int) -> int:
        """A count of items of at least `item_bytes` each, refused when the file cannot hold them."""
        count = self._u64(f"the number of {what}")
        left = len(self._content) - self._at
        if count * item_bytes > left:
            raise self._corrupt(
                f"the header promises {count} {what}, the file has {left} bytes left: download it again"
            )
        return count

    def _string(self, what: str, limit: int) -> str:
        length = self._u64(f"the length of {what}")
        if length > limit:
            raise self._corrupt(
                f"{what} is {length} bytes long, at most {limit} can be: download the file again"
            )
        # vocabularies hold pieces of characters now and then; they can never be produced as text anyway
        return bytes(self._take(length, what)).decode("utf-8", "replace")

    def _u32(self, what: str) -> int:
        return int(struct.unpack("<I", self._take(4, what))[0])

    def _u64(self, what: str) -> int:
        return int(struct.unpack("<Q", self._take(8, what))[0])

    def _take(self, length: int, what: str) -> memoryview:
        start, self._at = self._at, self._at + length
        if self._at > len(self._content):
            raise self._corrupt(f"the file ends early, inside {what}: download it again")
        return self._view[start : self._at]

    def _corrupt(self, text: str) -> CorruptModel:
        return CorruptModel(f"{self._path.name}: {text}")
