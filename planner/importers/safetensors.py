"""How a Hugging Face folder (config.json, tokenizer.json, *.safetensors) reads as a SourceModel.

The header of a safetensors file is 8 bytes of length and JSON: tensor -> dtype, shape, offsets. Read here
directly: bfloat16 needs no other library and every number is checked. Pickled weights are never opened.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from planner.errors import CorruptModel, MissingTensor, NoSuchModel, UnknownArchitecture
from planner.importers.architecture import Architecture
from planner.importers.families.family import Source
from planner.importers.families.placed import Placed
from planner.importers.families.table import family_of
from planner.importers.float8 import FP8, SCALES, Tiles, sides_of, tiles_of
from planner.importers.generation_settings import of_folder
from planner.importers.hf_config import Json, architecture_from_config, read_json, tokenizer_from_folder
from planner.importers.layout import check_numbers, check_tensors, tensor_shapes
from planner.importers.mxfp4 import BLOCK, FP4_8BIT, alternating_nibbles, fp4_scales
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import BlockQuantized, SourceTensor, TokenizerSource

HEADER_LIMIT_BYTES = 100 << 20  # the format's own limit
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

BYTES = "U8"
_NUMBERS: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_DTYPES: Mapping[str, str] = {**_NUMBERS, BYTES: "u1", FP8: "u1"}
_NOTHING = re.compile(r"(?!)")  # fits no name
_HARMLESS = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)


@dataclass(frozen=True, slots=True)
class _TextPart:
    """How the tensors of a decoder begin in a folder with more than it, and patterns of all others there."""

    prefix: str
    others: tuple[str, ...]


_TEXT_PARTS: Mapping[str, _TextPart] = {
    "llama4": _TextPart("language_model.", (r"vision_model\..*", r"multi_modal_projector\..*"))
}


def open_safetensors(folder: Path, name: str | None = None) -> SafetensorsModel:
    """Opens a folder with a model of a family of the table. Errors: see planner.errors.ModelError."""
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a Hugging Face model folder")
    part = _TEXT_PARTS.get(str(config.get("model_type")))
    if part is not None:
        return _open_text(folder, name, config, part)
    family = family_of(config.get("model_type"), "folder", folder.name)
    ignored = re.compile("|".join((*_HARMLESS, *family.folder.ignored)))
    return open_tensors(folder, name, config, read_files(folder, ignored))


def _open_text(folder: Path, name: str | None, config: Json, part: _TextPart) -> SafetensorsModel:
    """What answers in words of a folder that has more."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        raise CorruptModel(f"{folder.name}: config.json should have an object text_config")
    family = family_of(text.get("model_type"), "folder", folder.name)
    ignored = re.compile("|".join((*_HARMLESS, *family.folder.ignored, *part.others)))
    files = read_files(folder, ignored)
    for called in files:
        if not called.startswith(part.prefix):
            raise UnknownArchitecture(
                f"{folder.name}: tensor {called[:80]} has no place in {config['model_type']} as known here; this "
                "variant is not supported"
            )
    found = {called.removeprefix(part.prefix): tensor for called, tensor in files.items()}
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id") if key in config}
    return open_tensors(folder, name, {**ids, **text}, found)


def open_tensors(
    folder: Path, name: str | None, config: Json, tensors: Mapping[str, FolderTensor]
) -> SafetensorsModel:
    """The same of a decoder that is a part of what the folder holds: its `config` and `tensors`."""
    family = family_of(config.get("model_type"), "folder", folder.name)
    files = _called_in_full(tensors, family.folder, folder.name)
    architecture = architecture_from_config(config, family, frozenset(files), folder.name)
    check_numbers(architecture, folder.name)
    places = Placed(family.folder, architecture)
    shapes = tensor_shapes(architecture)

    def found(ours: str) -> tuple[int, ...] | None:
        tensor = files.get(places.file_name(ours))
        return None if tensor is None else tensor.shape

    expected = {ours: places.file_shape(ours, shape) for ours, shape in shapes.items()}
    check_tensors(expected, found, places.file_name, folder.name)
    known = {places.file_name(ours) for ours in shapes}
    known.add(places.file_name("head.weight"))  # a tied model may carry a copy
    _refuse_strangers(files, known, architecture, folder.name)
    tokenizer = tokenizer_from_folder(folder, config, architecture.vocab)

    def tensor(ours: str, shape: tuple[int, ...]) -> FolderTensor:
        stored, expert = files[places.file_name(ours)], places.expert(ours)
        return replace(
            stored if expert is None else stored.expert(expert),
            shape=shape,
            row_order=places.order(ours),
            transposed=places.place(ours).transposed,
            shift=places.place(ours).shift,
        )

    placed = {ours: tensor(ours, shape) for ours, shape in shapes.items()}
    called = name or folder.resolve().name
    return SafetensorsModel(called, architecture, tokenizer, of_folder(folder), placed, folder.name)


@dataclass(frozen=True, slots=True)
class SafetensorsModel:
    """A Hugging Face folder as planner.importers.architecture.SourceModel."""

    name: str
    architecture: Architecture
    tokenizer: TokenizerSource
    sampling: SamplingDefaults | None
    tensors: Mapping[str, FolderTensor]
    file: str

    def tensor(self, name: str) -> SourceTensor:
        """The tensor with our name `name`; MissingTensor when this model has none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise MissingTensor(f"{self.file}: this model has no tensor {name}") from None


@dataclass(frozen=True, slots=True)
class FolderTensor:
    """One tensor in the memory map. `shape`: as it is read. `row_order`: which rows of what is stored it has (None:
    all, as they are). `transposed`: what is stored has columns for rows. `shift`: what is added to each number.
    `scales`: of MXFP4 alone, whose rows lie one after the other though their tensor has the shape of a transposed one.
    `tiles`: of float8 alone, as its matrix is stored.
    """

    kind: str  # "F32", "F16", "BF16", "F64", "F8_E4M3", "MXFP4"
    shape: tuple[int, ...]
    payload: npt.NDArray[np.uint8]
    row_order: npt.NDArray[np.intp] | None = None
    transposed: bool = False
    shift: float = 0.0
    scales: npt.NDArray[np.uint8] | None = None
    tiles: Tiles | None = None

    def expert(self, number: int) -> FolderTensor:
        """What is stored of one of the experts, which are the first axis."""
        scales = None if self.scales is None else self.scales.reshape(self.shape[0], -1)[number]
        payload = self.payload.reshape(self.shape[0], -1)[number]
        return replace(self, shape=self.shape[1:], payload=payload, scales=scales)

    def float32(self) -> npt.NDArray[np.float32]:
        """The weight as float32, C-contiguous."""
        blocks = self.blocks()
        if blocks is not None:
            numbers = (blocks.q.astype(np.float32) - 128).reshape(*blocks.d.shape, BLOCK) * blocks.d[
                ..., None
            ]
            return np.ascontiguousarray(numbers.reshape(self.shape))
        if self.tiles is not None:
            return self._of_tiles(self.tiles)
        stored = np.ascontiguousarray(self.payload).view(_DTYPES[self.kind])
        if self.transposed:
            stored = stored.reshape(self.shape[-1], -1).T
        if self.row_order is not None:
            stored = stored.reshape(-1, *self.shape[1:])[self.row_order]
        if self.kind == "BF16":  # the upper half of a float32
            numbers = (stored.astype(np.uint32) << 16).view(np.float32)
        else:
            numbers = stored.astype(np.float32)
        if self.shift:
            numbers = numbers + np.float32(self.shift)
        return np.ascontiguousarray(numbers).reshape(self.shape)

    def _of_tiles(self, tiles: Tiles) -> npt.NDArray[np.float32]:
        """As float32."""
        payload = np.ascontiguousarray(self.payload)
        if self.transposed:
            numbers = tiles.numbers(payload).T
            numbers = numbers if self.row_order is None else numbers[self.row_order]
        else:
            numbers = tiles.numbers(payload, self.row_order)
        if self.shift:
            numbers = numbers + np.float32(self.shift)
        return np.ascontiguousarray(numbers).reshape(self.shape)

    def blocks(self) -> BlockQuantized | None:
        """The exact form of MXFP4; None for plain numbers."""
        if self.scales is None:
            return None
        columns = self.shape[-1]
        packed, scales = self.payload.reshape(-1, columns // 2), self.scales.reshape(-1, columns // BLOCK)
        if self.row_order is not None:
            packed, scales = packed[self.row_order], scales[self.row_order]
        return BlockQuantized(8, FP4_8BIT[alternating_nibbles(packed)], fp4_scales(scales), None)

    def rows(self, first: int, stop: int) -> FolderTensor:
        """Rows [first, stop) of a matrix."""
        shape = (stop - first, *self.shape[1:])
        if self.row_order is not None or self.transposed or self.tiles is not None:
            order = np.arange(self.shape[0], dtype=np.intp) if self.row_order is None else self.row_order
            return replace(self, shape=shape, row_order=order[first:stop])
        row_bytes = len(self.payload) // self.shape[0]
        return replace(self, shape=shape, payload=self.payload[first * row_bytes : stop * row_bytes])


def _called_in_full(files: Mapping[str, FolderTensor], source: Source, where: str) -> dict[str, FolderTensor]:
    """The tensors as this family calls them: some exports cut a prefix from all names, some have other names."""
    head = source.place("head.weight")[1]
    cut = source.prefix and not any(name.startswith(source.prefix) for name in files)
    prefix = source.prefix if cut else ""
    found: dict[str, FolderTensor] = {}
    for name, tensor in files.items():
        called = source.renamed.get(name, name if name == head else prefix + name)
        if called in found:
            raise CorruptModel(f"{where}: tensor {called[:80]} is there twice, under two names")
        found[called] = tensor
    return found


def read_files(folder: Path, without: re.Pattern[str] = _NOTHING) -> dict[str, FolderTensor]:
    """Every tensor of the folder but those whose whole name `without` fits, whatever their type is. Blocks of MXFP4 and
    their scales are one, of the name and the shape that plain numbers would have; so are float8 and theirs.
    """
    found = _read_all(folder, without)
    for name in [name for name, tensor in found.items() if tensor.kind == BYTES]:
        whole, _, part = name.rpartition("_")
        if part == "blocks":
            found[whole] = _mxfp4(name, found.pop(name), found.pop(f"{whole}_scales", None), folder.name)
    _join_tiles(folder, found)
    for name, tensor in found.items():
        if tensor.kind == BYTES:
            raise UnknownArchitecture(
                f"{folder.name}: tensor {name} is {BYTES}; supported are {', '.join(_NUMBERS)}, not quantized ones "
                "but MXFP4 and float8"
            )
    return found


def _join_tiles(folder: Path, found: dict[str, FolderTensor]) -> None:
    """Gives each matrix of float8 the scales that stand under a name of their own."""
    packed = [name for name, tensor in found.items() if tensor.kind == FP8]
    sides = sides_of(read_json(folder, "config.json"), folder.name) if packed else (0, 0)
    for name in packed:
        stored = found.pop(f"{name}{SCALES}", None)
        scales = stored.float32() if stored is not None and stored.kind in _NUMBERS else None
        tiles = tiles_of(name, found[name].shape, scales, sides, folder.name)
        found[name] = replace(found[name], tiles=tiles)


def _mxfp4(name: str, blocks: FolderTensor, scales: FolderTensor | None, where: str) -> FolderTensor:
    """Experts of `blocks` (experts, rows, blocks, bytes) and `scales` (experts, rows, blocks)."""
    shape = blocks.shape
    right = scales is not None and scales.kind == BYTES and len(shape) == 4 and shape[3] == BLOCK // 2
    if not right or scales is None or scales.shape != shape[:3] or not math.prod(shape):
        raise CorruptModel(
            f"{where}: tensor {name} should be (experts, rows, blocks, {BLOCK // 2}) beside its scales, is {shape}"
        )
    turned = (shape[0], shape[2] * BLOCK, shape[1])
    return FolderTensor("MXFP4", turned, blocks.payload, transposed=True, scales=scales.payload)


def _read_all(folder: Path, without: re.Pattern[str]) -> dict[str, FolderTensor]:
    if (folder / SINGLE).is_file():
        return _read_one(folder / SINGLE, without)
    where = _weight_map(folder)
    tensors: dict[str, FolderTensor] = {}
    for file in weight_files(folder):
        part = _read_one(folder / file, without)
        tensors.update({name: tensor for name, tensor in part.items() if where.get(name) == file})
    wanted = {name for name in where if not without.fullmatch(name)}
    if absent := sorted(wanted - set(tensors)):
        raise MissingTensor(
            f"{folder.name}: tensor {absent[0]} is not in {where[absent[0]]}, where the index says it is"
        )
    return tensors


def weight_files(folder: Path) -> list[str]:
    """Names of the files that hold the folder's tensors. Raises CorruptModel or NoSuchModel."""
    if (folder / SINGLE).is_file():
        return [SINGLE]
    files = sorted(set(_weight_map(folder).values()))
    for file in files:
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise CorruptModel(
                f"{folder.name}: {INDEX} names {file[:80]!r}, expected a .safetensors file beside it"
            )
        if not (folder / file).is_file():
            raise NoSuchModel(
                f"{folder.name}: {INDEX} names {file}, which is missing: download the folder again"
            )
    return files


def _weight_map(folder: Path) -> Mapping[str, str]:
    index = read_json(folder, INDEX)
    if index is None:
        raise _no_weights(folder)
    where = index.get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(file, str) for file in where.values()):
        raise CorruptModel(f"{folder.name}: {INDEX} should hold a weight_map from tensors to files")
    return where


def _no_weights(folder: Path) -> NoSuchModel:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return NoSuchModel(
            f"{folder} has only pickled weights, which are never opened because they can run code: "
            "convert them to safetensors"
        )
    return NoSuchModel(f"{folder} has neither {SINGLE} nor {INDEX}")


def _read_one(path: Path, without: re.Pattern[str]) -> dict[str, FolderTensor]:
    size = path.stat().st_size
    if size < 8:
        raise CorruptModel(f"{path.name}: the file ends early: download it again")
    content: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
    length = int.from_bytes(bytes(content[:8]), "little")
    if length > min(size - 8, HEADER_LIMIT_BYTES):
        raise CorruptModel(
            f"{path.name}: a header of {length} bytes does not fit; not a safetensors file, or cut short"
        )
    try:
        header = json.loads(bytes(content[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise CorruptModel(f"{path.name}: the header is not JSON; not a safetensors file") from error
    if not isinstance(header, dict):
        raise CorruptModel(f"{path.name}: the header should be an object, is a {type(header).__name__}")
    body = content[8 + length :]
    return {
        name: _tensor(path, name, entry, body)
        for name, entry in header.items()
        if name != "__metadata__" and not without.fullmatch(name)
    }


def _tensor(path: Path, name: str, entry: object, body: npt.NDArray[np.uint8]) -> FolderTensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]} if all(
            isinstance(size, int) and size >= 0 for size in shape
        ):
            pass
        case _:
            raise CorruptModel(
                f"{path.name}: the entry of tensor {name} should have dtype, shape and data_offsets"
            )
    if dtype not in _DTYPES:
        raise UnknownArchitecture(
            f"{path.name}: tensor {name} is {dtype}; supported are {', '.join(_NUMBERS)}, not quantized ones"
        )
    expected = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if not 0 <= start <= stop or stop - start != expected:
        raise CorruptModel(
            f"{path.name}: tensor {name} {tuple(shape)} {dtype} needs {expected} bytes, has {stop - start}"
        )
    if stop > len(body):
        raise CorruptModel(
            f"{path.name}: the file ends early: tensor {name} needs {stop} bytes after the header, there are "
            f"{len(body)}; download it again"
        )
    return FolderTensor(dtype, tuple(shape), body[start:stop])


def _refuse_strangers(
    files: Mapping[str, FolderTensor],
    known: set[str],
    architecture: Architecture,
    where: str,
) -> None:
    """A tensor we ignored would mean a model computed wrongly; biases that are all zero do not matter."""
    for name in sorted(files.keys() - known):
        if name.endswith(".bias") and not files[name].float32().any():
            continue
        raise UnknownArchitecture(
            f"{where}: tensor {name} has no place in {architecture.family} as known here; "
            "this variant is not supported"
        )
