"""How a GGUF file reads as a SourceModel: names, numbers, rows in half-split order.

GGUF files of some families hold the rows of Q and K interleaved inside each head (the converter permutes those of
llama). Moving whole rows leaves block formats exact. What is a family's own is in planner.importers.families.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from planner.errors import CorruptModel, MissingTensor, UnknownArchitecture
from planner.importers.architecture import Architecture, RopeScaling
from planner.importers.families.family import Family, Source
from planner.importers.families.placed import Placed
from planner.importers.families.table import family_of
from planner.importers.generation_settings import of_gguf
from planner.importers.gguf_file import FileTensor, GgufFile, model_stem, read_gguf
from planner.importers.layout import check_numbers, check_tensors, tensor_shapes
from planner.importers.mxfp4 import FP4_8BIT, fp4_scales
from planner.importers.rotary import yarn_amplitude
from planner.importers.tokenizer import tokenizer_from_gguf
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import BlockQuantized, SourceTensor, TokenizerSource

MOST_NUMBERS = 1 << 12  # of a small tensor that is read at once: rotary factors
ROWS_AT_ONCE = 1024  # bounds what dequantizing holds beside its result
BLOCK = 32  # columns that share a scale in Q4_0, Q4_1 and Q8_0

_HARMLESS = (r"rope_freqs\.weight", r"blk\.\d+\.attn_rot_embd")


def open_gguf(path: Path, name: str | None = None) -> GgufModel:
    """Opens a model of a family of the table. Errors: see planner.errors.ModelError."""
    file = read_gguf(path)
    refuse_unreadable(file)
    family = family_of(file.text("general.architecture"), "gguf", file.path.name)
    architecture = _architecture(file, family)
    places = Placed(family.gguf, architecture)
    shapes = tensor_shapes(architecture)

    def found(ours: str) -> tuple[int, ...] | None:
        tensor = file.tensors.get(places.file_name(ours))
        if tensor is not None and (1, *tensor.shape) == expected[ours]:
            return expected[ours]  # a matrix of one row, which some converters make a vector
        return None if tensor is None else tensor.shape

    expected = {ours: places.file_shape(ours, shape) for ours, shape in shapes.items()}
    check_tensors(expected, found, places.file_name, file.path.name)
    _refuse_strangers(file, {places.file_name(ours) for ours in shapes}, family)
    tokenizer = tokenizer_from_gguf(file, architecture.vocab)

    def tensor(ours: str, shape: tuple[int, ...]) -> GgufTensor:
        stored, expert = file.tensors[places.file_name(ours)], places.expert(ours)
        payload = stored.payload if expert is None else stored.payload[expert]
        place = places.place(ours)
        turned = place.by_head and place.transposed
        if place.by_head and not turned:
            payload = payload.reshape(-1, payload.shape[-1])
        return GgufTensor(replace(stored, shape=shape, payload=payload), places.order(ours), turned)

    tensors = {ours: tensor(ours, shape) for ours, shape in shapes.items()}
    return GgufModel(
        name or model_stem(path), architecture, tokenizer, of_gguf(file), tensors, file.path.name
    )


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A GGUF file as planner.importers.architecture.SourceModel."""

    name: str
    architecture: Architecture
    tokenizer: TokenizerSource
    sampling: SamplingDefaults | None
    tensors: Mapping[str, GgufTensor]
    file: str

    def tensor(self, name: str) -> SourceTensor:
        """The tensor with our name `name`; MissingTensor when this model has none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise MissingTensor(f"{self.file}: this model has no tensor {name}") from None


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor in the memory map. `row_order`: which rows of what is stored it has (None: all, as they are).
    `turned`: what is stored are matrices (heads, columns, rows), whose rows are below one another here.
    """

    stored: FileTensor
    row_order: npt.NDArray[np.intp] | None = None
    turned: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first, as the architecture counts them."""
        return self.stored.shape

    @property
    def kind(self) -> str:
        """The name of the tensor type, such as "Q4_0"."""
        return str(self.stored.kind.name)

    def float32(self) -> npt.NDArray[np.float32]:
        """The weight dequantized, C-contiguous, rows in half-split order."""
        payload, kind = self.stored.payload, self.stored.kind
        if self.turned:
            matrices = _numbers(payload.reshape(-1, payload.shape[-1]), kind)
            turned = matrices.reshape(*payload.shape[:2], -1).swapaxes(1, 2).reshape(-1, payload.shape[1])
            return np.ascontiguousarray(turned if self.row_order is None else turned[self.row_order])
        if self.row_order is not None and payload.ndim == 1:
            return np.ascontiguousarray(_numbers(payload, kind)[self.row_order])
        rows = payload.reshape(-1, payload.shape[-1])
        count = self.shape[0] if payload.ndim > 1 else 1
        out = np.empty((count, self.shape[-1]), np.float32)
        for start in range(0, count, ROWS_AT_ONCE):
            chunk = self._rows(rows, slice(start, start + ROWS_AT_ONCE))
            out[start : start + ROWS_AT_ONCE] = _numbers(chunk, kind)
        return out.reshape(self.shape)

    def blocks(self) -> BlockQuantized | None:
        """The exact block form of Q4_0, Q4_1, Q8_0 and MXFP4 matrices; None for everything else."""
        if len(self.shape) != 2 or self.turned:
            return None
        payload = self.stored.payload
        rows = self._rows(payload.reshape(-1, payload.shape[-1]), slice(None))
        match self.stored.kind:
            case GGMLQuantizationType.Q4_0:
                blocks = rows.reshape(rows.shape[0], -1, 2 + BLOCK // 2)
                return BlockQuantized(4, _nibbles(blocks[:, :, 2:]), _halves(blocks[:, :, :2]), None)
            case GGMLQuantizationType.Q4_1:
                blocks = rows.reshape(rows.shape[0], -1, 4 + BLOCK // 2)
                d, m = _halves(blocks[:, :, :2]), _halves(blocks[:, :, 2:4])
                return BlockQuantized(4, _nibbles(blocks[:, :, 4:]), d, m)
            case GGMLQuantizationType.Q8_0:
                blocks = rows.reshape(rows.shape[0], -1, 2 + BLOCK)
                q = (blocks[:, :, 2:] ^ np.uint8(0x80)).reshape(rows.shape[0], -1)  # int8 + 128, as uint8
                return BlockQuantized(8, q, _halves(blocks[:, :, :2]), None)
            case GGMLQuantizationType.MXFP4:
                blocks = rows.reshape(rows.shape[0], -1, 1 + BLOCK // 2)
                return BlockQuantized(
                    8, FP4_8BIT[_nibbles(blocks[:, :, 1:])], fp4_scales(blocks[:, :, 0]), None
                )
            case _:
                return None

    def rows(self, first: int, stop: int) -> GgufTensor:
        """Rows [first, stop) of a matrix."""
        stored = replace(self.stored, shape=(stop - first, *self.shape[1:]))
        if self.turned:
            order = np.arange(self.shape[0], dtype=np.intp) if self.row_order is None else self.row_order
            return GgufTensor(stored, order[first:stop], turned=True)
        if self.row_order is None:
            return GgufTensor(replace(stored, payload=self.stored.payload[first:stop]))
        return GgufTensor(stored, self.row_order[first:stop])

    def _rows(self, rows: npt.NDArray[np.uint8], which: slice) -> npt.NDArray[np.uint8]:
        chosen = rows[which] if self.row_order is None else rows[self.row_order[which]]
        return np.asarray(chosen)


def _numbers(payload: npt.NDArray[np.uint8], kind: GGMLQuantizationType) -> npt.NDArray[np.float32]:
    if kind == GGMLQuantizationType.F64:
        return np.ascontiguousarray(payload).view("<f8").astype(np.float32)
    numbers: npt.NDArray[np.float32] = dequantize(np.ascontiguousarray(payload), kind)
    return numbers


def refuse_unreadable(file: GgufFile) -> None:
    """Tries one block of each type in the file, so that a type nobody can dequantize is found on opening."""
    for kind, name in {tensor.kind: name for name, tensor in file.tensors.items()}.items():
        try:
            _numbers(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError as error:
            raise CorruptModel(
                f"{file.path.name}: tensor {name} has type {kind.name}, which the gguf package cannot turn into "
                "numbers; choose another quantization"
            ) from error


def _halves(pairs: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """(rows, blocks, 2) bytes of a float16 -> (rows, blocks) float32."""
    return np.ascontiguousarray(pairs).view("<f2")[:, :, 0].astype(np.float32)


def _nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(rows, blocks, 16) -> (rows, columns): low halves are a block's first 16 columns."""
    q = np.empty((*packed.shape[:2], BLOCK), np.uint8)
    np.bitwise_and(packed, 0x0F, out=q[:, :, : BLOCK // 2])
    np.right_shift(packed, 4, out=q[:, :, BLOCK // 2 :])
    return q.reshape(packed.shape[0], -1)


def _architecture(file: GgufFile, family: Family) -> Architecture:
    said = GgufNumbers(file, family.gguf)
    where = file.path.name
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise MissingTensor(
            f"{where}: tensor token_embd.weight (embed.weight) is missing; the model is incomplete"
        )
    hidden, heads = said.whole("embedding_length"), said.whole("attention.head_count")
    if not heads:
        raise CorruptModel(f"{where}: expected at least one head, got 0")
    head_size = said.whole("attention.key_length", 0) or hidden // heads
    value_size = said.whole("attention.value_length", 0) or head_size
    rope_dims = said.whole("rope.dimension_count", 0) or head_size
    uneven = value_size != head_size or (rope_dims != head_size and not family.partial)
    if uneven and not family.own_heads:
        raise UnknownArchitecture(
            f"{where}: expected keys, values and rotary parts of one size per head, "
            f"got {head_size}, {value_size} and {rope_dims}; this variant is not supported"
        )
    _, head = family.gguf.place("head.weight")
    scaling = _rope_scaling(file, said.family)
    architecture = Architecture(
        family=said.family,
        blocks=said.whole("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=said.whole("attention.head_count_kv", 0) or heads,
        head_size=head_size,
        ffn=said.whole("feed_forward_length"),
        vocab=embedding.shape[0],
        context=said.whole("context_length"),
        norm_epsilon=said.real("attention.layer_norm_rms_epsilon"),
        rope_base=said.real("rope.freq_base", 0.0) or 10_000.0,
        rope_dims=rope_dims,
        rope_scaling=scaling,
        rope_amplitude=1.0 if scaling is None else scaling.amplitude,
        rope_factors=_rope_factors(file, rope_dims),
        qkv_bias=False,
        qk_norm=False,
        tied_embedding=head not in file.tensors,
        activation=family.activations[0],
    )
    architecture = family.gguf.features(architecture, said)
    if said.whole("expert_count", 0) != architecture.experts:
        raise UnknownArchitecture(
            f"{where}: mixtures of experts of {said.family} are not supported; choose a dense model"
        )
    check_numbers(architecture, where)
    return architecture


class GgufNumbers:
    """The metadata of one file as planner.importers.families.family.Said."""

    def __init__(self, file: GgufFile, source: Source) -> None:
        self._file = file
        self._keys = source.keys
        self.where = file.path.name
        self.family = file.text("general.architecture") or ""

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """Returns a whole number of at least 0."""
        value = self._file.whole(self._key(key))
        if value is None and otherwise is None:
            raise self._missing(key)
        return value if value is not None else otherwise or 0

    def real(self, key: str, otherwise: float | None = None) -> float:
        """Returns a finite number."""
        value = self._file.number(self._key(key))
        if value is None and otherwise is None:
            raise self._missing(key)
        return float(value) if value is not None else otherwise or 0.0

    def flag(self, key: str, otherwise: bool) -> bool:
        """Returns a truth value."""
        value = self._file.flag(self._key(key))
        return otherwise if value is None else value

    def word(self, key: str, otherwise: str) -> str:
        """Returns a text."""
        return self._file.text(self._key(key)) or otherwise

    def reals(self, key: str) -> tuple[float, ...] | None:
        """Returns the numbers of the tensor `key`."""
        stored = self._file.tensors.get(key)
        if stored is None:
            return None
        if math.prod(stored.shape) > MOST_NUMBERS:
            raise CorruptModel(
                f"{self.where}: tensor {key} should hold at most {MOST_NUMBERS} numbers, is {stored.shape}"
            )
        return tuple(GgufTensor(stored).float32().reshape(-1).tolist())

    def words(self, key: str) -> tuple[str, ...] | None:
        """Returns a list of texts."""
        value = self._file.texts(self._key(key))
        return None if value is None else tuple(value)

    def rope(self) -> None:
        """Nothing: the metadata has it among its other keys."""

    def within(self, _key: str) -> None:
        """Nothing: metadata has no objects."""

    def has_tensor(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._file.tensors

    def _key(self, key: str) -> str:
        return f"{self.family}.{self._keys.get(key, key)}"

    def _missing(self, key: str) -> CorruptModel:
        return CorruptModel(f"{self.where}: metadata {self._key(key)} is missing; convert the model again")


def _rope_scaling(file: GgufFile, family: str) -> RopeScaling | None:
    kind = file.text(f"{family}.rope.scaling.type")
    factor = file.number(f"{family}.rope.scaling.factor") or file.number(f"{family}.rope.scale_linear")
    if kind not in (None, "none", "linear", "yarn"):
        raise UnknownArchitecture(
            f"{file.path.name}: rope scaling {kind!r} is not supported; known are none, linear, yarn and Llama 3's"
        )
    if kind == "none" or factor in (None, 0.0, 1.0):
        return None
    assert factor is not None
    if factor < 0:
        raise CorruptModel(f"{file.path.name}: expected a rope scaling factor above 0, got {factor}")
    if kind == "yarn":
        return _yarn(file, f"{family}.rope.scaling", factor)
    return RopeScaling("linear", factor)


def _yarn(file: GgufFile, prefix: str, factor: float) -> RopeScaling:
    """As llama.cpp reads it."""
    original = file.whole(f"{prefix}.original_context_length") or 0
    loud = file.number(f"{prefix}.attn_factor")
    return RopeScaling(
        "yarn",
        factor,
        original_context=original,
        fast=file.number(f"{prefix}.yarn_beta_fast") or 32.0,
        slow=file.number(f"{prefix}.yarn_beta_slow") or 1.0,
        amplitude=yarn_amplitude(factor) * (1.0 if loud is None else loud),
    )


def _rope_factors(file: GgufFile, rope_dims: int) -> tuple[float, ...] | None:
    """Llama 3's scaling, which the converter bakes into divisors of the frequencies."""
    stored = file.tensors.get("rope_freqs.weight")
    if stored is None:
        return None
    if stored.shape != (rope_dims // 2,):
        raise CorruptModel(
            f"{file.path.name}: rope_freqs.weight should be {(rope_dims // 2,)}, is {stored.shape}"
        )
    factors = GgufTensor(stored).float32()
    if not np.isfinite(factors).all() or (factors <= 0).any():
        raise CorruptModel(f"{file.path.name}: rope_freqs.weight should hold numbers above 0")
    return tuple(float(factor) for factor in factors)


def _refuse_strangers(file: GgufFile, known: set[str], family: Family) -> None:
    """A tensor we ignored would mean a model computed wrongly; biases that are all zero do not matter."""
    harmless = re.compile("|".join((*_HARMLESS, *family.gguf.ignored)))
    for name in sorted(file.tensors.keys() - known):
        if harmless.fullmatch(name):
            continue
        if name.endswith(".bias") and not GgufTensor(file.tensors[name]).float32().any():
            continue
        raise UnknownArchitecture(
            f"{file.path.name}: tensor {name} has no place in {file.text('general.architecture')} "
            "as known here; this variant is not supported"
        )
