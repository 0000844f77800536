"""In which form each tensor of a unit is stored, and what it costs to keep.

Forms of a linear layer `name` with N outputs and K inputs, B = K/32 blocks (K padded to whole blocks):
    8bit   name.q8 u8 (N, B, 32), name.scale f32 (N, B):           w = scale * (q - 128)
    4bit   name.q4 u8 (N, B, 16), name.scale, name.zero u8 (N, ceil(B/2)), and where the source needs it
           name.rest f32 (N, B):                                    w = scale * (q - zero) + rest
    f32    name.w f32 (N, K)           f16   name.w f16 (N, K)
A nibble pair holds the lower index in the low nibble. Q4_1 is `d * q + m`: `zero` is the whole number nearest
to -m/d and `rest = m + zero * d`, so the sum of both is the file's weight exactly and what is multiplied with
quantized activations is centred. A linear may be several of the source, with rows below one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, assert_never

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptModel
from planner.model.blob_plan import ALIGN, BlobPlan, Rows, Tensors, planned
from planner.model.checked_fields import DType, StoredTensor
from planner.model.sources import BlockQuantized, SourceTensor
from planner.model.store import BlobRef, Store
from planner.types import UnitKind, WeightFormat

BLOCK: Final = 32  # columns that share a scale: the block of every GGUF type that maps exactly

Progress = Callable[[int, int], None]

_DTYPES: Final[dict[np.dtype[Any], DType]] = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(np.uint8): "u8",
}


def resident_bytes(kind: UnitKind, tensors: Iterable[StoredTensor]) -> int:
    """What the unit's weights occupy on a CPU once loaded.

    The embedding is read row by row from its blob and stays on disk. Half floats are widened. Quantized
    linears are repacked by the kernels with one float more per block (the sum that corrects for the zero
    point), which replaces the zero points; their scales stay beside the repacked form.
    """
    if kind == "embed":
        return 0
    total = 0
    for tensor in tensors:
        values = math.prod(tensor.shape)
        if tensor.dtype == "f16":
            total += 4 * values
        else:
            total += tensor.bytes
        if tensor.name.endswith(".scale"):
            total += 4 * values
    return total


def quantize_8bit(w: npt.NDArray[np.float32]) -> Tensors:
    """Symmetric: the largest magnitude of a block becomes 127."""
    blocks = _blocked(w)
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    q = np.rint(blocks / np.where(scale > 0, scale, np.float32(1))[..., None]) + 128
    return {"q8": np.clip(q, 0, 255).astype(np.uint8), "scale": scale.astype(np.float32)}


def quantize_4bit(w: npt.NDArray[np.float32]) -> Tensors:
    """Asymmetric with a whole zero point: the least and greatest of a block, and 0, span the 16 values."""
    blocks = _blocked(w)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    scale = ((high - low) / np.float32(15)).astype(np.float32)
    divisor = np.where(scale > 0, scale, np.float32(1))
    zero = np.clip(np.rint(-low / divisor), 0, 15)
    q = np.clip(np.rint(blocks / divisor[..., None]) + zero[..., None], 0, 15)
    return {"q": q.astype(np.uint8), "scale": scale, "zero": zero.astype(np.uint8)}


def exact_8bit(blocks: BlockQuantized) -> Tensors:
    """Q8_0 as it is."""
    rows, columns = blocks.q.shape
    return {"q8": blocks.q.reshape(rows, columns // BLOCK, BLOCK), "scale": blocks.d}


def exact_4bit(blocks: BlockQuantized) -> Tensors:
    """Q4_0 and Q4_1 without loss; see the module's docstring."""
    rows, columns = blocks.q.shape
    q = blocks.q.reshape(rows, columns // BLOCK, BLOCK)
    if blocks.m is None:
        return {"q": q, "scale": blocks.d, "zero": np.full(blocks.d.shape, 8, np.uint8)}
    d, m = blocks.d.astype(np.float64), blocks.m.astype(np.float64)
    zero = np.clip(np.rint(np.divide(-m, d, out=np.zeros_like(d), where=d != 0)), 0, 15)
    return {
        "q": q,
        "scale": blocks.d,
        "zero": zero.astype(np.uint8),
        "rest": (m + zero * d).astype(np.float32),
    }


def pack_nibbles(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Two values a byte along the last axis, lower index in the low nibble; an odd end is padded with 0."""
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.uint8)], axis=-1)
    high = np.left_shift(values[..., 1::2], np.uint8(4))
    return np.bitwise_or(values[..., 0::2], high)


def _blocked(w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    rows, columns = w.shape
    padding = -columns % BLOCK
    if padding:
        w = np.concatenate([w, np.zeros((rows, padding), np.float32)], axis=1)
    return w.reshape(rows, -1, BLOCK)


def _matrix(tensor: SourceTensor, name: str, shape: tuple[int, int]) -> SourceTensor:
    if tensor.shape != shape:
        raise CorruptModel(f"tensor {name}: shape {shape} expected, got {tensor.shape}")
    return tensor


def _finite(values: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    if not np.isfinite(values).all():
        raise CorruptModel(f"tensor {name}: finite numbers expected, found NaN or infinity")
    return values


def _one(tensor: SourceTensor, name: str, weights: WeightFormat) -> Tensors:
    """One linear before fusing. 4-bit values are not packed yet."""
    blocks = tensor.blocks() if weights in ("8bit", "4bit") else None
    if blocks is not None and not all(
        np.isfinite(part).all() for part in (blocks.d, blocks.m) if part is not None
    ):
        raise CorruptModel(f"tensor {name}: finite scales expected, found NaN or infinity")
    match weights:
        case "8bit":
            exact = blocks is not None and blocks.bits == 8
            return exact_8bit(blocks) if exact and blocks else quantize_8bit(_finite(tensor.float32(), name))
        case "4bit":
            exact = blocks is not None and blocks.bits == 4
            return exact_4bit(blocks) if exact and blocks else quantize_4bit(_finite(tensor.float32(), name))
        case "f32":
            return {"w": _finite(tensor.float32(), name)}
        case "f16":
            with np.errstate(over="ignore"):
                return {"w": _finite(tensor.float32().astype(np.float16), f"{name} as float16")}
        case _:
            assert_never(weights)


class Parts(Protocol):
    """Where tensors come from: an opened model."""

    def tensor(self, name: str) -> SourceTensor:
        """Raises planner.errors.MissingTensor where there is none of that name."""


class StoredParts:
    """Tensors of one blob, collected in their order, in the form that is asked for."""

    def __init__(self, source: Parts, weights: WeightFormat) -> None:
        self._source = source
        self._weights = weights
        self._shapes: list[tuple[str, DType, tuple[int, ...]]] = []
        self._rows: list[Rows] = []

    def plan(self) -> BlobPlan:
        """What the blob will hold."""
        return planned(self._shapes, self._rows)

    def vector(self, name: str, parts: Sequence[tuple[str, int]]) -> None:
        """The vectors of `parts` (tensor name, length) behind one another."""
        first = 0
        for part, length in parts:
            tensor = self._source.tensor(part)
            if tensor.shape != (length,):
                raise CorruptModel(f"tensor {part}: shape ({length},) expected, got {tensor.shape}")
            self._rows.append(Rows(tensor, first, partial(_vector, name, part)))
            first += length
        self._shapes.append((name, "f32", (first,)))

    def linear(self, name: str, parts: Sequence[tuple[str, int]], columns: int) -> None:
        """The fused linear of `parts` (tensor name, rows) below one another, as tensors called `name.*`."""
        self._add(name, parts, columns, self._weights)

    def plain(self, name: str, parts: Sequence[tuple[str, int]], columns: int) -> None:
        """As `linear`, in float32 whatever form is asked for: small, and what it decides is decided for good."""
        self._add(name, parts, columns, "f32")

    def table(self, name: str, rows: int, columns: int) -> None:
        """Embedding or head matrix `name`.weight. It keeps 8 bits where the rest has 4: it decides every token and is
        read row by row.
        """
        kept: WeightFormat = "8bit" if self._weights == "4bit" else self._weights
        self._add(name, [(f"{name}.weight", rows)], columns, kept)

    def matrix(self, name: str, part: str, rows: int, columns: int) -> None:
        """A matrix of float32 that operators of ONNX take as it is, whatever the form of linears."""
        tensor = _matrix(self._source.tensor(part), part, (rows, columns))
        self._shapes.append((name, "f32", (rows, columns)))
        self._rows.append(Rows(tensor, 0, partial(_vector, name, part)))

    def matrices(self, name: str, part: str, count: int, rows: int, columns: int) -> None:
        """As `matrix`, of `count` matrices below one another: (count, rows, columns)."""
        tensor = _matrix(self._source.tensor(part), part, (count * rows, columns))
        self._shapes.append((name, "f32", (count, rows, columns)))
        self._rows.append(Rows(tensor, 0, partial(_vector, name, part), count * rows))

    def _add(self, name: str, parts: Sequence[tuple[str, int]], columns: int, weights: WeightFormat) -> None:
        tensors = [(_matrix(self._source.tensor(part), part, (rows, columns)), part) for part, rows in parts]
        rest = weights == "4bit" and any(_has_minimum(tensor) for tensor, _ in tensors)
        height = sum(rows for _, rows in parts)
        self._shapes += [
            (f"{name}.{part}", dtype, shape) for part, dtype, shape in _stored(weights, height, columns, rest)
        ]
        first = 0
        for tensor, part in tensors:
            self._rows.append(Rows(tensor, first, partial(_encoded, name, part, weights, rest)))
            first += tensor.shape[0]


def _stored(
    weights: WeightFormat, rows: int, columns: int, rest: bool
) -> Sequence[tuple[str, DType, tuple[int, ...]]]:
    """Names, types and shapes of what a linear becomes."""
    blocks = -(-columns // BLOCK)
    match weights:
        case "8bit":
            return (("q8", "u8", (rows, blocks, BLOCK)), ("scale", "f32", (rows, blocks)))
        case "4bit":
            wide: list[tuple[str, DType, tuple[int, ...]]] = [("rest", "f32", (rows, blocks))]
            return (
                ("q4", "u8", (rows, blocks, BLOCK // 2)),
                *(wide if rest else []),
                ("scale", "f32", (rows, blocks)),
                ("zero", "u8", (rows, -(-blocks // 2))),
            )
        case "f32" | "f16":
            return (("w", weights, (rows, columns)),)
        case _:
            assert_never(weights)


def _has_minimum(tensor: SourceTensor) -> bool:
    """Whether it is Q4_1, which has numbers to add to its blocks."""
    blocks = tensor.rows(0, 1).blocks()
    return blocks is not None and blocks.bits == 4 and blocks.m is not None


def _encoded(name: str, part: str, weights: WeightFormat, rest: bool, tensor: SourceTensor) -> Tensors:
    """Rows of one linear as tensors called `name.*`."""
    made = _one(tensor, part, weights)
    if rest and "rest" not in made:
        made["rest"] = np.zeros_like(made["scale"])
    if "q" in made:
        made["q4"] = pack_nibbles(made.pop("q"))
        made["zero"] = pack_nibbles(made["zero"])
    return {f"{name}.{key}": array for key, array in made.items()}


def _vector(name: str, part: str, tensor: SourceTensor) -> Tensors:
    return {name: _finite(tensor.float32(), part)}


def put_tensors(store: Store, tensors: Tensors) -> tuple[BlobRef, tuple[StoredTensor, ...]]:
    """One blob with all tensors, each aligned."""
    stored: list[StoredTensor] = []
    offset = 0
    for name, array in tensors.items():
        dtype = _DTYPES[array.dtype]
        stored.append(StoredTensor(name, dtype, array.shape, offset, array.nbytes))
        offset += array.nbytes + -array.nbytes % ALIGN

    def chunks() -> Iterator[bytes | memoryview]:
        for array in tensors.values():
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            yield memoryview(little.reshape(-1).view(np.uint8).data)
            yield b"\0" * (-array.nbytes % ALIGN)

    return store.put_blob(chunks()), tuple(stored)


def params_of(tensors: Iterable[StoredTensor]) -> int:
    """Weights, not counting scales, zero points and rests."""
    total = 0
    for tensor in tensors:
        values = math.prod(tensor.shape)
        if tensor.name.endswith(".q4"):
            total += 2 * values
        elif not tensor.name.endswith((".scale", ".zero", ".rest")):
            total += values
    return total
